"""TreeFlash's head: it learns, is stored without the vocabulary head, and drafts as trained."""

import json

import torch
from training_support import run

from dartree_exp.drafters.dflash.checkpoint import load_drafter, read_checkpoint
from dartree_exp.interfaces import Block
from dartree_exp.training.export import export, load_run
from dartree_exp.training.model import load_vocabulary

CARD = {"name": "tiny", "target": "t", "data": {"file": "text", "sha256": "0" * 64, "held_out": []}}


def test_it_learns_and_drafts_as_trained(tiny, tmp_path):
    runs = tmp_path / "training"
    run(tiny, runs / "backbone", steps=60)
    curve = run(tiny, runs / "head", stage="head", head="swiglu", steps=60, init=runs / "backbone")
    assert sum(curve[-1]["loss"]) < sum(curve[0]["loss"]) - 0.05
    export(runs / "backbone", tmp_path / "shared", tiny.opened, CARD)
    export(runs / "head", tmp_path / "alone", tiny.opened, CARD, backbone=tmp_path / "shared")
    assert json.loads((tmp_path / "alone" / "config.json").read_text())["inner_dim"] == 8
    stored = read_checkpoint(tmp_path / "alone", dtype=torch.float32)
    assert set(stored.head.state_dict()) == {"gate_up_proj.weight", "down_proj.weight"}

    model, ids, _ = load_run(runs / "head", tiny.opened)
    vocabulary = load_vocabulary(tiny.opened, ids.tolist(), mask_token_id=0)
    model.head.bind(vocabulary.embed, lm_head=vocabulary.head)
    hidden, tokens = torch.randn(1, 4, 32), torch.tensor([[5, 9, 30, 7]])
    trained = model.head(hidden, tokens)[0]  # [4, Vd]

    drafter = load_drafter(tmp_path / "alone", tiny.opened)
    block = Block(hidden[0], torch.zeros(4, len(ids)), drafter.vocab_ids)
    prepared = drafter.head.prepare(block, drafter.vocab_ids.expand(4, -1))
    state = drafter.head.start(5)
    for depth in range(1, 5):
        drafted = drafter.head.correction(prepared, state, depth)[0]
        torch.testing.assert_close(drafted, trained[depth - 1], atol=0.1, rtol=0.05)
        if depth < 4:
            token = tokens[0, depth : depth + 1]
            state = drafter.head.advance(prepared, state, depth, torch.tensor([0]), token)
    assert trained.abs().max() > 0.5
