"""Domino's head and whole Domino checkpoints against the reference vectors (golden family
`domino_head`).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from drafter_support import greedy_chain, stub_target, tolerance
from safetensors.torch import load_file

from dartree_exp.drafters.dflash.checkpoint import load_drafter
from dartree_exp.drafters.dflash.config import read_config
from dartree_exp.drafters.heads.gru import GRUHead
from dartree_exp.drafters.heads.head import make_head
from dartree_exp.drafters.tensor_files import LEGACY_PREFIX
from dartree_exp.interfaces import Block
from golden_support import GoldenCase, carried, golden_cases

FAMILY = "domino_head"


def is_head(case: GoldenCase) -> bool:
    """Blocks of only a head; the other cases are complete checkpoints over rounds."""
    return "num_blocks" in case.spec["params"]


def is_anchor_first(case: GoldenCase) -> bool:
    return not is_head(case) and case.spec["params"]["shift_label"]


HEADS = golden_cases(FAMILY, is_head)
FULL = golden_cases(FAMILY, lambda case: not is_head(case))


def read_head(case: GoldenCase) -> GRUHead:
    """The golden head cases store the head's tensors only, so the checkpoint reader does not
    apply.
    """
    config = read_config(case.checkpoint)
    head = make_head(config.head, config.hidden_size, config.vocab_size)
    assert isinstance(head, GRUHead)
    tensors = load_file(case.checkpoint / "head.safetensors")
    head.load_state_dict(
        {k.removeprefix(LEGACY_PREFIX): v for k, v in tensors.items()}, assign=True
    )
    return head.requires_grad_(False).bind(case.arrays["target.embed_tokens.weight"])


@pytest.mark.parametrize("case", HEADS)
def test_greedy_chains(case: GoldenCase):
    head, arrays, params = read_head(case), case.arrays, case.spec["params"]
    skip = params["block_size"] - params["num_drafts"]
    for n in range(params["num_blocks"]):
        block = Block(arrays["hidden"][n, skip:], arrays["base_logits"][n, skip:].float(), None)
        root = int(arrays["block_ids"][n, 0])
        torch.testing.assert_close(
            head.start(root)[0], arrays["gru_states"][n, 0], **tolerance(case)
        )
        chain, logits = greedy_chain(head, block, root, None)
        assert chain == arrays["greedy_chain"][n].tolist()
        torch.testing.assert_close(
            logits, arrays["greedy_chain_logits"][n].float(), **tolerance(case)
        )


@pytest.mark.parametrize("case", HEADS)
def test_gathered_candidates_give_the_same_corrections(case: GoldenCase):
    head, arrays, params = read_head(case), case.arrays, case.spec["params"]
    skip = params["block_size"] - params["num_drafts"]
    block = Block(arrays["hidden"][0, skip:], arrays["base_logits"][0, skip:].float(), None)
    root, k = int(arrays["block_ids"][0, 0]), 4
    assert (
        head.prepare(block, torch.zeros(params["num_drafts"], k, dtype=torch.int64)).output.rows
        is not None
    )
    chain, logits = greedy_chain(head, block, root, k)
    seen = logits.isfinite()
    assert seen.sum() == k * params["num_drafts"]
    expected = arrays["greedy_chain_logits"][0].float()
    for depth in range(params["num_drafts"]):  # While the two chains agree, so do their logits.
        torch.testing.assert_close(
            logits[depth][seen[depth]], expected[depth][seen[depth]], **tolerance(case)
        )
        if chain[: depth + 2] != arrays["greedy_chain"][0, : depth + 2].tolist():
            break


@pytest.mark.parametrize("case", HEADS)
def test_teacher_forced_pass(case: GoldenCase):
    head, arrays, params = read_head(case), case.arrays, case.spec["params"]
    ids = arrays["block_ids"]
    embeds = arrays["target.embed_tokens.weight"][ids]
    drafts, skip = params["num_drafts"], params["block_size"] - params["num_drafts"]
    torch.testing.assert_close(head.states(embeds), arrays["gru_states"], **tolerance(case))
    base = arrays["base_logits"][:, skip:].float()
    corrections = head(arrays["hidden"][:, skip:], ids[:, :drafts])
    expected = arrays["teacher_forced_logits"][:, skip:].float()
    torch.testing.assert_close(base + corrections, expected, **tolerance(case))
    columns = torch.tensor([3, 0, 41])
    chosen = head(arrays["hidden"][:, skip:], ids[:, :drafts], columns)
    torch.testing.assert_close(
        base[..., columns] + chosen, expected[..., columns], **tolerance(case)
    )


@pytest.mark.parametrize("case", FULL)
def test_complete_checkpoints_over_rounds(case: GoldenCase):
    drafter = load_drafter(case.checkpoint, stub_target(case, 6))
    assert drafter.head is not None and drafter.num_drafts == case.spec["params"]["num_drafts"]
    session = drafter.session([])
    for r, line in enumerate(case.spec["rounds"]):
        arrays = {
            key.split(".", 1)[1]: value
            for key, value in case.arrays.items()
            if key.startswith(f"round{r}.")
        }
        root = int(arrays["root_token"])
        block = session.propose(arrays["target_hidden"][0], root, line["start"])
        torch.testing.assert_close(block.hidden, arrays["draft_hidden"], **tolerance(case))
        torch.testing.assert_close(block.logits, arrays["base_logits"], **tolerance(case))
        torch.testing.assert_close(
            drafter.head.start(root)[0], arrays["root_gru_state"], **tolerance(case)
        )
        chain, logits = greedy_chain(drafter.head, block, root, None)
        assert chain == arrays["greedy_chain"].tolist()
        torch.testing.assert_close(logits, arrays["greedy_chain_logits"], **tolerance(case))


def _wrong_prefix(head: GRUHead, block: Block) -> Block:
    head.pure_draft_prefix_len = 1 - head.pure_draft_prefix_len
    return block


def _slots_one_late(head: GRUHead, block: Block) -> Block:
    return Block(block.hidden.roll(1, 0), block.logits, None)


def _gates_swapped(head: GRUHead, block: Block) -> Block:
    weight = head.prefix_gru.weight_ih_l0
    reset, update, new = weight.chunk(3)
    weight.copy_(torch.cat([update, reset, new]))
    return block


@pytest.mark.parametrize("break_it", [_wrong_prefix, _slots_one_late, _gates_swapped])
@pytest.mark.parametrize("case", carried(FAMILY, is_head), ids=lambda case: case.name)
def test_control_a_broken_head_is_caught(case: GoldenCase, break_it: Callable):
    head, arrays, params = read_head(case), case.arrays, case.spec["params"]
    skip = params["block_size"] - params["num_drafts"]
    base = arrays["base_logits"][0, skip:].float()
    block = break_it(head, Block(arrays["hidden"][0, skip:], base, None))
    _, logits = greedy_chain(head, block, int(arrays["block_ids"][0, 0]), None)
    expected = arrays["greedy_chain_logits"][0].float()
    assert not torch.allclose(logits, expected, **tolerance(case))


@pytest.mark.parametrize("case", carried(FAMILY, is_anchor_first), ids=lambda case: case.name)
def test_control_the_other_slot_layout_is_caught(case: GoldenCase, tmp_path):
    for file in case.checkpoint.iterdir():
        text = file.read_bytes()
        (tmp_path / file.name).write_bytes(
            text.replace(b'"shift_label": true', b'"shift_label": false')
        )
    session = load_drafter(tmp_path, stub_target(case, 6)).session([])
    block = session.propose(
        case.arrays["round0.target_hidden"][0], int(case.arrays["round0.root_token"]), 9
    )
    assert not torch.allclose(
        block.logits, case.arrays["round0.base_logits"][:7], atol=5e-5, rtol=1e-4
    )
