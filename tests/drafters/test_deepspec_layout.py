"""DeepSpec's released checkpoints and folders with only a head: reading, writing, and refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from drafter_support import edit_tensors
from safetensors.torch import load_file, save_file

from dartree_exp.drafters.dflash.checkpoint import (
    EMBED,
    LM_HEAD,
    load_drafter,
    read_checkpoint,
    save_drafter,
)
from dartree_exp.drafters.dflash.config import CheckpointError, read_config
from markov_heads import MARKOV_HEADS

H, V, RANK, KV, INNER = 32, 40, 6, 16, 24

# config.json as released, of a tiny Qwen3: a deep copy of the target's configuration, then
# DeepSpec's keys at the top level.
RELEASED_CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3DSparkModel"], "attention_bias": False, "attention_dropout": 0.0,
    "block_size": 7,
    "bos_token_id": 0, "dtype": "bfloat16", "eos_token_id": 1, "head_dim": 8, "hidden_act": "silu",
    "hidden_size": H,
    "initializer_range": 0.02, "intermediate_size": INNER, "layer_types": ["full_attention"] * 2,
    "max_position_embeddings": 128, "max_window_layers": 2, "model_type": "qwen3",
    "num_attention_heads": 4,
    "num_hidden_layers": 2, "num_key_value_heads": 2, "num_target_layers": 4, "rms_norm_eps": 1e-6,
    "rope_scaling": None,
    "rope_theta": 1000000.0, "sliding_window": None, "tie_word_embeddings": False,
    "use_cache": True,
    "use_sliding_window": False, "vocab_size": V, "mask_token_id": 39, "target_layer_ids": [0, 2],
    "num_anchors": 512,
    "transformers_version": "4.57.1",
}  # fmt: skip
HEAD_SHAPES = {
    "vanilla": {},
    "gated": {"gate_proj.weight": (RANK, H + RANK), "gate_proj.bias": (RANK,)},
    "rnn": {"joint_proj.weight": (3 * RANK, 2 * RANK + H), "joint_proj.bias": (3 * RANK,)},
}


def released_shapes(head_type: str | None) -> dict[str, tuple[int, ...]]:
    """Names and shapes of DeepSpec's state dict (facts of the release, not of our modules)."""
    shapes: dict[str, tuple[int, ...]] = {EMBED: (V, H), LM_HEAD: (V, H), "fc.weight": (H, 2 * H)}
    shapes |= {"hidden_norm.weight": (H,), "norm.weight": (H,)}
    for layer in ("layers.0.", "layers.1."):
        attention, mlp = f"{layer}self_attn.", f"{layer}mlp."
        shapes |= {
            f"{attention}{name}_proj.weight": (rows, H)
            for name, rows in (("q", 32), ("k", KV), ("v", KV))
        }
        shapes |= {
            f"{attention}o_proj.weight": (H, 32),
            f"{attention}q_norm.weight": (8,),
            f"{attention}k_norm.weight": (8,),
        }
        shapes |= {f"{mlp}gate_proj.weight": (INNER, H), f"{mlp}up_proj.weight": (INNER, H)}
        shapes |= {f"{mlp}down_proj.weight": (H, INNER)}
        shapes |= {
            f"{layer}input_layernorm.weight": (H,),
            f"{layer}post_attention_layernorm.weight": (H,),
        }
    if head_type is not None:
        shapes |= {
            "markov_head.markov_w1.weight": (V, RANK),
            "markov_head.markov_w2.weight": (V, RANK),
        }
        shapes |= {f"markov_head.{name}": shape for name, shape in HEAD_SHAPES[head_type].items()}
        shapes |= {"confidence_head.proj.weight": (1, H + RANK), "confidence_head.proj.bias": (1,)}
    return shapes


@pytest.fixture
def released(tmp_path: Path, make_stub: Callable) -> Callable[..., tuple[Path, Any]]:
    """A checkpoint folder as DeepSpec writes it, in bfloat16, and the target that it fits."""

    def make(head_type: str | None, **changes: Any) -> tuple[Path, Any]:
        generator = torch.Generator().manual_seed(3)
        tensors = {
            name: (0.3 * torch.randn(shape, generator=generator)).bfloat16()
            for name, shape in released_shapes(head_type).items()
        }
        head: dict[str, Any] = {"enable_confidence_head": False, "markov_rank": 0}
        if head_type is not None:
            head = {
                "enable_confidence_head": True,
                "confidence_head_with_markov": True,
                "markov_rank": RANK,
            }
            head["markov_head_type"] = head_type
        folder = tmp_path / "released"
        folder.mkdir()
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        config = {
            key: value
            for key, value in (RELEASED_CONFIG | head | changes).items()
            if value != "absent"
        }
        (folder / "config.json").write_text(json.dumps(config))
        return folder, make_stub(tensors[EMBED].float(), tensors[LM_HEAD].float(), 4)

    return make


@pytest.mark.parametrize("head_type", [None, "vanilla", "gated", "rnn"])
def test_released_checkpoints_load(released: Callable, head_type: str | None):
    folder, target = released(head_type)
    stored, drafter = load_file(folder / "model.safetensors"), load_drafter(folder, target)
    assert drafter.num_drafts == 7  # anchor-first: block 7 drafts 7
    assert drafter.session([]).propose(torch.zeros(5, 2 * H), 3, 5).logits.shape == (7, V)
    assert torch.equal(drafter.backbone.fc.weight, stored["fc.weight"].float())
    if head_type is None:
        assert drafter.head is None and drafter.confidence is None
        return
    assert type(drafter.head) is MARKOV_HEADS[head_type]
    assert torch.equal(drafter.head.output, stored["markov_head.markov_w2.weight"].float())
    assert drafter.confidence is not None
    assert torch.equal(drafter.confidence.proj.bias, stored["confidence_head.proj.bias"].float())
    bare = load_drafter(folder, target, use_head=False)
    assert bare.head is None and bare.confidence is None and bare.num_drafts == 7


@pytest.mark.parametrize("head_type", [None, "vanilla", "gated", "rnn"])
def test_what_is_written_has_the_released_names_and_reads_back(
    released: Callable, tmp_path: Path, head_type: str | None
):
    folder, _ = released(head_type)
    first = read_checkpoint(folder)
    tables = (first.tables[EMBED], first.tables[LM_HEAD])
    save_drafter(
        tmp_path / "again", first.backbone, first.head, confidence=first.confidence, tables=tables
    )
    before, after = (load_file(path / "model.safetensors") for path in (folder, tmp_path / "again"))
    assert before.keys() == after.keys() and all(
        torch.equal(before[key], after[key]) for key in before
    )
    raw = json.loads((tmp_path / "again" / "config.json").read_text())
    assert raw["architectures"] == ["Qwen3DSparkModel"] and raw["sample_from_anchor"] is True
    written = {key for key in json.loads((folder / "config.json").read_text()) if key in raw}
    assert {
        "markov_rank",
        "enable_confidence_head",
        "num_anchors",
        "target_layer_ids",
        "mask_token_id",
    } <= written
    assert read_config(tmp_path / "again") == first.config


def test_the_layout_is_deepspecs_only_if_deepspec_wrote_it(released: Callable):
    folder, target = released("vanilla", num_anchors="absent")
    with pytest.raises(CheckpointError, match=r"slot layout unknown.*sample_from_anchor"):
        load_drafter(folder, target)


@pytest.mark.parametrize(("value", "drafts"), [(True, 7), (False, 6)])
def test_a_stated_layout_wins(released: Callable, value: bool, drafts: int):
    folder, target = released("vanilla", sample_from_anchor=value)
    assert load_drafter(folder, target).num_drafts == drafts


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"markov_head_type": "bilinear"},
            "markov_head_type = 'bilinear': allowed are vanilla, gated, rnn",
        ),
        ({"markov_head_type": "absent"}, "markov_head_type: missing"),
        ({"confidence_head_with_markov": "absent"}, "confidence_head_with_markov: missing"),
        ({"markov_rank": 0}, "enable_confidence_head = true"),
        (
            {"markov_head_type": "gated"},
            r"missing tensors markov_head\.gate_proj\.bias, markov_head\.gate_proj\.weight",
        ),
        ({"enable_confidence_head": False}, r"unexpected tensors confidence_head\.proj\.bias"),
        (
            {"confidence_head_with_markov": False},
            r"confidence_head\.proj\.weight is \[1, 38\], expected \[1, 32\]",
        ),
        (
            {"markov_rank": 5},
            r"tensor markov_head\.markov_w1\.weight is \[40, 6\], expected \[40, 5\]",
        ),
    ],
)
def test_configs_and_tensors_must_agree(released: Callable, changes: dict[str, Any], message: str):
    folder, target = released("vanilla", **changes)
    with pytest.raises(CheckpointError, match=message):
        load_drafter(folder, target)


def test_tables_are_stored_both_or_not_at_all(released: Callable):
    folder, target = released("vanilla")
    edit_tensors(folder, lambda t: t.pop(EMBED))
    with pytest.raises(CheckpointError, match=r"missing tensors embed_tokens\.weight"):
        load_drafter(folder, target)
    edit_tensors(folder, lambda t: t.pop(LM_HEAD))
    assert load_drafter(folder, target).head is not None


@pytest.mark.parametrize("name", [EMBED, LM_HEAD])
def test_tables_of_another_target_are_refused(released: Callable, name: str):
    folder, target = released("vanilla")
    edit_tensors(folder, lambda t: t.update({name: t[name].roll(1, 0)}))
    with pytest.raises(CheckpointError, match=f"{name}: differs from the target's"):
        load_drafter(folder, target)


def test_specforges_dspark_needs_an_explicit_slot_layout(released: Callable):
    """Head options inside `dflash_config`; the layout is never taken from the architecture's name
    there.
    """
    folder, target = released("gated")
    raw = json.loads((folder / "config.json").read_text())
    inner = (
        "markov_rank",
        "markov_head_type",
        "enable_confidence_head",
        "confidence_head_with_markov",
        "mask_token_id",
    )
    raw["dflash_config"] = {"projector_type": "dspark"} | {key: raw.pop(key) for key in inner}
    (folder / "config.json").write_text(json.dumps(raw | {"sample_from_anchor": True}))
    assert load_drafter(folder, target).num_drafts == 7
    (folder / "config.json").write_text(json.dumps(raw))
    with pytest.raises(CheckpointError, match="slot layout unknown"):
        load_drafter(folder, target)


def test_deepspecs_layout_has_no_gru_head(make_parts: Callable, tmp_path: Path):
    backbone, gru, target = make_parts()
    with pytest.raises(CheckpointError, match="no gru head"):
        save_drafter(
            tmp_path / "d", backbone, gru, tables=(target.embed_weight, target.lm_head_weight)
        )
