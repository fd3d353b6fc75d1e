"""Tiny random targets for tests and documentation: real transformers model classes."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import nn

from dartree_exp.engines.target import Target
from dartree_exp.models.codec import ToyCodec

VOCAB_SIZE = 64
EOS_IDS = (1, 2)
MASK_ID = 3
RESERVED_IDS = 4
"""0 = beginning of text, 1 and 2 = end of text, 3 = mask."""


def toy_target(
    family: str = "llama",
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    *,
    layers: int = 3,
    tied: bool = False,
    vocab_size: int = VOCAB_SIZE,
    eos_ids: tuple[int, ...] = EOS_IDS,
    max_positions: int = 2048,
    device: torch.device | str = "cpu",
    engine: str | None = "eager",
    **overrides: Any,
) -> Target:
    """A random Llama or Qwen3 (hidden 32, 4 query and 2 key-value heads of 8) whose greedy text
    varies.

    The weights are drawn in float64 and then cast, so float32 and float64 targets of one seed are
    the same model. overrides: further fields of the transformers configuration. Raises ValueError
    for an unknown family.
    """
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

    families: dict[str, tuple[Any, Any]] = {
        "llama": (LlamaConfig, LlamaForCausalLM),
        "qwen3": (Qwen3Config, Qwen3ForCausalLM),
    }
    if family not in families:
        raise ValueError(f"toy family must be one of {', '.join(families)}, got {family!r}")
    make_config, make_model = families[family]
    config = make_config(
        **{
            "vocab_size": vocab_size,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": layers,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "max_position_embeddings": max_positions,
            "tie_word_embeddings": tied,
            "bos_token_id": 0,
            "eos_token_id": list(eos_ids),
            "pad_token_id": 0,
            "attn_implementation": "sdpa",
            **overrides,
        }
    )
    model = make_model(config)
    _fill(model, seed)
    model = model.to(device, dtype)
    digest = _digest(model)
    return Target(
        model,
        name=f"toy-{family}",
        tokenizer=ToyCodec(vocab_size, RESERVED_IDS),
        eos_ids=eos_ids,
        weights_sha256=lambda: digest,
        engine=engine,
    )


@torch.no_grad()
def _fill(model: nn.Module, seed: int) -> None:
    """Overwrite every weight: norms near 1, matrices with gain well above 1/sqrt(fan_in).

    With the usual small initial values, the next token depends only on the last one, and greedy
    text falls into a short loop. Larger attention and MLP weights make it depend on the prefix.
    """
    generator = torch.Generator().manual_seed(seed)
    model.to(torch.float64)
    for name, weight in sorted(model.named_parameters()):
        noise = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
        if "q_norm" in name or "k_norm" in name:
            # Qwen3 normalises queries and keys: only these weights can sharpen attention.
            weight.copy_(2.0 * (1.0 + 0.1 * noise))
        elif weight.ndim == 1:
            weight.copy_(1.0 + 0.1 * noise)
        elif "embed_tokens" in name or "lm_head" in name:
            weight.copy_(0.5 * noise)
        else:
            weight.copy_(noise * (2.0 / weight.shape[1] ** 0.5))


def _digest(model: nn.Module) -> str:
    digest = hashlib.sha256()
    for name, weight in sorted(model.state_dict().items()):
        digest.update(name.encode())
        raw = weight.detach().cpu().flatten().view(torch.uint8)  # numpy has no bfloat16
        digest.update(raw.numpy().tobytes())
    return digest.hexdigest()
