"""Tiny random checkpoints in the released layouts that fit the toy target: what `drafter=domino` and its like load in tests."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from dartree_exp.models.toy import VOCAB_SIZE, toy_target

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INNER, BLOCK, RANK = 32, 4, 2, 8, 48, 6, 8
MARKOV = {"dspark": "vanilla", "dspark_gated": "gated", "dspark_rnn": "rnn"}
DRAFTERS = ("dflash", "domino", *MARKOV)


def write_toy_drafters(folder: Path) -> list[str]:
    """Write one checkpoint per drafter; the overrides that make `model=toy` bring them along."""
    for name in DRAFTERS:
        write_checkpoint(folder / name, name)
    paths = ",".join(f"{name}:{folder / name}" for name in DRAFTERS)
    return ["model=toy", f"++model.drafters={{{paths}}}"]


def write_checkpoint(folder: Path, drafter: str) -> None:
    """config.json as released (z-lab's for DFlash and Domino, DeepSpec's for DSpark), and weights of seed 0."""
    folder.mkdir(parents=True)
    section = {"mask_token_id": 3, "target_layer_ids": [1]}
    domino = {"projector_type": "domino", "emb_dim": RANK, "gru_hidden_dim": RANK, "pure_draft_prefix_len": 1}
    config = {
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": 1,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "vocab_size": VOCAB_SIZE,
        "block_size": BLOCK,
        "num_target_layers": 3,
        "max_position_embeddings": 2048,
        "rope_theta": 1e6,
        "rms_norm_eps": 1e-6,
    }
    if drafter in MARKOV:
        markov = {"markov_rank": RANK, "markov_head_type": MARKOV[drafter], "enable_confidence_head": False}
        config |= {"architectures": ["Qwen3DSparkModel"], "confidence_head_with_markov": False, **section, **markov}
        config["sample_from_anchor"] = True  # ours: released files do not say it, and it is never guessed
    else:
        section |= {"shift_label": True} | (domino if drafter == "domino" else {})
        config |= {"architectures": ["DFlashDraftModel"], "dflash_config": section}
    (folder / "config.json").write_text(json.dumps(config))

    generator = torch.Generator().manual_seed(0)
    weights = {
        name: torch.ones(shape) if "norm" in name else torch.randn(shape, generator=generator) / shape[-1] ** 0.5
        for name, shape in (_backbone() | _head(drafter)).items()
    }
    if drafter in MARKOV:  # DeepSpec's checkpoints carry frozen copies of the target's tables
        target = toy_target()
        weights["embed_tokens.weight"] = target.embed_weight.clone()
        weights["lm_head.weight"] = target.lm_head_weight.clone()
    save_file(weights, folder / "model.safetensors")


def _backbone() -> dict[str, tuple[int, ...]]:
    attention, layer = "layers.0.self_attn", "layers.0"
    return {
        "fc.weight": (HIDDEN, HIDDEN),
        "hidden_norm.weight": (HIDDEN,),
        "norm.weight": (HIDDEN,),
        f"{attention}.q_proj.weight": (HEADS * HEAD_DIM, HIDDEN),
        f"{attention}.k_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
        f"{attention}.v_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
        f"{attention}.o_proj.weight": (HIDDEN, HEADS * HEAD_DIM),
        f"{attention}.q_norm.weight": (HEAD_DIM,),
        f"{attention}.k_norm.weight": (HEAD_DIM,),
        f"{layer}.mlp.gate_proj.weight": (INNER, HIDDEN),
        f"{layer}.mlp.up_proj.weight": (INNER, HIDDEN),
        f"{layer}.mlp.down_proj.weight": (HIDDEN, INNER),
        f"{layer}.input_layernorm.weight": (HIDDEN,),
        f"{layer}.post_attention_layernorm.weight": (HIDDEN,),
    }


def _head(drafter: str) -> dict[str, tuple[int, ...]]:
    if drafter == "domino":
        return {
            "prefix_gru.weight_ih_l0": (3 * RANK, HIDDEN),
            "prefix_gru.weight_hh_l0": (3 * RANK, RANK),
            "embed_proj.0.weight": (RANK, HIDDEN + RANK),
            "embed_proj.2.weight": (VOCAB_SIZE, RANK),
        }
    if drafter not in MARKOV:
        return {}
    shapes = {"markov_w1.weight": (VOCAB_SIZE, RANK), "markov_w2.weight": (VOCAB_SIZE, RANK)}
    if drafter == "dspark_gated":
        shapes |= {"gate_proj.weight": (RANK, HIDDEN + RANK), "gate_proj.bias": (RANK,)}
    if drafter == "dspark_rnn":
        shapes |= {"joint_proj.weight": (3 * RANK, 2 * RANK + HIDDEN), "joint_proj.bias": (3 * RANK,)}
    return {f"markov_head.{name}": shape for name, shape in shapes.items()}
