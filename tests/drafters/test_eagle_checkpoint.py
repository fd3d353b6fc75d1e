"""EAGLE's released layouts, of tiny random weights: what is read, and what is refused and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from dartree_exp.config import compose
from dartree_exp.drafters import load_drafter
from dartree_exp.drafters.eagle.checkpoint import PICKLED, WEIGHTS, read_model, save_eagle
from dartree_exp.drafters.eagle.config import read_config
from dartree_exp.drafters.unpickle import main
from dartree_exp.drafters.values import CheckpointError
from dartree_exp.models.toy import toy_target

H, V, VD, INNER, KV, LAYERS = 32, 64, 40, 48, 16, 6
LLAMA: dict[str, Any] = {
    "attention_bias": False, "hidden_act": "silu", "hidden_size": H, "intermediate_size": INNER,
    "max_position_embeddings": 512, "model_type": "llama", "num_attention_heads": 4,
    "num_hidden_layers": 1, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_scaling": None,
    "rope_theta": 500000.0, "tie_word_embeddings": False, "vocab_size": V, "head_dim": 8,
}  # fmt: skip
OFFICIAL = LLAMA | {"architectures": ["LlamaForCausalLM"], "draft_vocab_size": VD}
FIRST = LLAMA | {"architectures": ["LlamaForCausalLM"], "bias": True}
SPECULATORS: dict[str, Any] = {
    "architectures": ["Eagle3Speculator"],
    "draft_vocab_size": VD,
    "eagle_aux_hidden_state_layer_ids": None,
    "norm_before_residual": True,
    "speculators_config": {
        "algorithm": "eagle3",
        "default_proposal_method": "greedy",
        "proposal_methods": [
            {"proposal_type": "greedy", "speculative_tokens": 5, "verifier_accept_k": 1}
        ],
        "verifier": {"architectures": ["LlamaForCausalLM"], "name_or_path": "someone/model"},
    },
    "speculators_model_type": "eagle3",
    "speculators_version": "0.4.0",
    "target_hidden_size": None,
    "tie_word_embeddings": False,
    "transformer_layer_config": LLAMA,
}
QWEN = SPECULATORS | {"transformer_layer_config": LLAMA | {"model_type": "qwen3"}}


def shapes(layout: str) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the releases (facts, not our modules)."""
    third, prefix = layout != "eagle2", "midlayer." if layout == "official" else "layers.0."
    read = 2 * H if third else H
    found: dict[str, tuple[int, ...]] = {
        f"{prefix}self_attn.q_proj.weight": (H, read),
        f"{prefix}self_attn.k_proj.weight": (KV, read),
        f"{prefix}self_attn.v_proj.weight": (KV, read),
        f"{prefix}self_attn.o_proj.weight": (H, H),
        f"{prefix}mlp.gate_proj.weight": (INNER, H),
        f"{prefix}mlp.up_proj.weight": (INNER, H),
        f"{prefix}mlp.down_proj.weight": (H, INNER),
        f"{prefix}post_attention_layernorm.weight": (H,),
        "fc.weight": (H, 3 * H if third else 2 * H),
    }
    if third:
        found |= {f"{prefix}{name}.weight": (H,) for name in ("hidden_norm", "input_layernorm")}
        found |= {"norm.weight": (H,), "lm_head.weight": (VD, H)}
    else:
        found |= {"fc.bias": (H,)}
    if layout != "official":
        found |= {"embed_tokens.weight": (V, H)}
    if layout == "qwen":
        found |= {f"{prefix}self_attn.{name}.weight": (8,) for name in ("q_norm", "k_norm")}
    return found


CONFIGS = {"official": OFFICIAL, "eagle2": FIRST, "speculators": SPECULATORS, "qwen": QWEN}
IDS = torch.tensor([i for i in range(V) if i % 8 < 5])  # 40 of 64


def tensors(layout: str) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    found = {n: 0.3 * torch.randn(s, generator=generator) for n, s in shapes(layout).items()}
    if layout != "eagle2":
        found["d2t"] = IDS - torch.arange(VD)
        found["t2d"] = torch.zeros(V, dtype=torch.bool).index_fill(0, IDS, True)
    return found


def write(folder: Path, layout: str, change: dict[str, Any] | None = None, **weights: Any) -> Path:
    folder.mkdir(exist_ok=True)
    stored = {n: t for n, t in (tensors(layout) | weights).items() if t is not None}
    save_file(stored, folder / WEIGHTS)
    (folder / "config.json").write_text(json.dumps(CONFIGS[layout] | (change or {})))
    return folder


def loaded(folder: Path, layout: str, **target: Any) -> Any:
    family = "eagle2" if layout == "eagle2" else "eagle"
    config = compose(["model=toy", f"drafter={family}", f"drafter.path={folder}"])
    return load_drafter(config.drafter, toy_target(layers=LAYERS, **target))


@pytest.mark.parametrize("layout", CONFIGS)
def test_a_released_layout_is_read(tmp_path: Path, layout: str) -> None:
    drafter, stored = loaded(write(tmp_path / "e", layout), layout), tensors(layout)
    for name, value in drafter.model.state_dict().items():
        theirs = name if layout == "official" else name.replace("midlayer.", "layers.0.")
        assert torch.equal(value, stored[theirs]), name
    assert drafter.weights_sha256 and drafter.num_drafts == 8
    if layout == "eagle2":
        assert drafter.target_layer_ids == () and len(drafter.ids) == V
        assert drafter.logits(torch.ones(2, H)).shape == (2, V)
    else:
        assert drafter.target_layer_ids == (1, 2, 2)  # inputs of layers 2, 6 // 2 and 6 - 3
        assert torch.equal(drafter.ids, IDS)
        assert drafter.logits(torch.ones(2, H)).shape == (2, VD)
    assert drafter.model.midlayer.norm_first == (layout in ("speculators", "qwen"))
    own = "embed_tokens.weight" in stored
    table = stored["embed_tokens.weight"] if own else toy_target(layers=LAYERS).embed_weight
    assert torch.equal(drafter._embed, table)


@pytest.mark.parametrize("layout", ["official", "eagle2"])
def test_written_and_read_again(tmp_path: Path, layout: str) -> None:
    first = loaded(write(tmp_path / "e", layout), layout)
    restricted = None if layout == "eagle2" else first.ids
    save_eagle(tmp_path / "again", first.model, restricted, first._embed)
    again = loaded(tmp_path / "again", layout)
    assert again.model.config == first.model.config and torch.equal(again.ids, first.ids)
    for name, value in again.model.state_dict().items():
        assert torch.equal(value, first.model.state_dict()[name])


def test_a_whole_vocabulary_needs_no_maps(tmp_path: Path) -> None:
    head = torch.randn(V, H)
    none = {"d2t": None, "t2d": None}
    folder = write(
        tmp_path / "e", "official", {"draft_vocab_size": V}, **{"lm_head.weight": head}, **none
    )
    assert torch.equal(loaded(folder, "official").ids, torch.arange(V))


@pytest.mark.parametrize(
    ("layout", "change", "weights", "message"),
    [
        ("official", {"num_hidden_layers": 2}, {}, "num_hidden_layers = 2: EAGLE has 1 layer"),
        ("official", {"rope_theta": None}, {}, "rope_theta: missing"),
        ("official", {"rope_scaling": {"rope_type": "llama3"}}, {}, "only 'default' is supported"),
        ("official", {"draft_vocab_size": 65}, {}, r"draft_vocab_size = 65: must be in 1\.\.64"),
        ("official", {}, {"d2t": IDS}, "d2t and t2d name different target ids"),
        ("official", {}, {"t2d": None}, "missing tensors t2d"),
        ("official", {}, {"midlayer.hidden_norm.weight": None}, "missing tensors midlayer.hidden"),
        ("official", {"target_hidden_size": 48}, {}, r"fc\.weight is \[32, 96\], expected"),
        ("official", {"vocab_size": 72}, {}, r"t2d is \[64\], expected \[72\]"),
        ("official", {"attention_bias": True}, {}, "attention_bias = true"),
        ("official", {"eagle_aux_hidden_state_layer_ids": [1, 2, 6]}, {}, "inputs of layers 0..5"),
        ("official", {"speculators_model_type": "mtp"}, {}, "must be eagle3"),
        ("speculators", {"norm_before_fc": True}, {}, "norm_before_fc = true"),
        ("speculators", {"transformer_layer_config": {}}, {}, "leaves out defaults of the library"),
        ("eagle2", {"bias": False}, {}, "unexpected tensors fc.bias"),
        ("eagle2", {"qkv_bias": True}, {}, "missing tensors midlayer.self_attn.k_proj.bias"),
    ],
)
def test_what_does_not_fit_is_refused(
    tmp_path: Path, layout: str, change: dict[str, Any], weights: dict[str, Any], message: str
) -> None:
    with pytest.raises(CheckpointError, match=message) as error:
        loaded(write(tmp_path / "e", layout, change, **weights), layout)
    assert str(error.value).count("\n") == 0 and str(tmp_path / "e") in str(error.value)


@pytest.mark.parametrize(("layout", "other"), [("official", "eagle2"), ("eagle2", "eagle")])
def test_the_other_family_is_named(tmp_path: Path, layout: str, other: str) -> None:
    folder = write(tmp_path / "e", layout)
    right = "eagle" if other == "eagle2" else "eagle2"
    with pytest.raises(CheckpointError, match=f"use drafter.family={right}$"):
        read_config(folder, third=other == "eagle")


def test_a_drafter_of_another_target_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "e", "official")
    with pytest.raises(CheckpointError, match="vocab_size = 64, allowed: 80"):
        loaded(folder, "official", vocab_size=80)


def test_a_pickle_is_only_read_by_the_converter(tmp_path: Path) -> None:
    folder = write(tmp_path / "e", "official")
    torch.save(tensors("official"), folder / PICKLED)
    (folder / WEIGHTS).unlink()
    with pytest.raises(CheckpointError, match=r"is a pickle.*eagle\.convert"):
        read_model(folder, read_config(folder, third=True))
    assert main([str(folder), str(tmp_path / "out")], "convert", PICKLED, WEIGHTS) == 0
    assert torch.equal(loaded(tmp_path / "out", "official").ids, IDS)
