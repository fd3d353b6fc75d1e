"""Read a Llama-architecture GGUF file into Hugging Face names, shapes and config.

Source: the GGUF specification and the `gguf` package (dequantisation). Two things differ from a
Hugging Face checkpoint: tensor names, and the row order of the query and key projections (rotary
pairs interleaved within each head). `load_state_dict` undoes both.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

_TOP = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def hf_name(name: str) -> str:
    """Hugging Face name of a GGUF tensor. Raises KeyError for a tensor that Llama does not have."""
    if name in _TOP:
        return _TOP[name]
    _, layer, part, suffix = name.split(".")
    return f"model.layers.{layer}.{_LAYER[part]}.{suffix}"


def undo_rope_permutation(rows: np.ndarray, heads: int) -> np.ndarray:
    """Rows [heads * head_dim, in], from interleaved pairs (0, half), (1, half + 1), ... to first
    halves, then second halves.
    """
    out, width = rows.shape
    half = out // heads // 2
    return rows.reshape(heads, half, 2, width).swapaxes(1, 2).reshape(out, width)


def read_metadata(path: Path) -> dict[str, Any]:
    """All key-value pairs of the file as Python objects."""
    from gguf import GGUFReader

    return {key: field.contents() for key, field in GGUFReader(str(path)).fields.items()}


def load_state_dict(path: Path) -> dict[str, torch.Tensor]:
    """All weights as contiguous float32 tensors under Hugging Face names (bf16 would round the
    scales).

    Raises:
        ValueError: another architecture than `llama`.
        KeyError: a tensor whose name has no counterpart.
    """
    import torch
    from gguf import GGUFReader, dequantize

    reader = GGUFReader(str(path))
    architecture = reader.fields["general.architecture"].contents()
    if architecture != "llama":
        raise ValueError(f"{path}: architecture {architecture!r} is not supported; must be 'llama'")
    heads = {
        "attn_q": reader.fields["llama.attention.head_count"].contents(),
        "attn_k": reader.fields["llama.attention.head_count_kv"].contents(),
    }
    state = {}
    for tensor in reader.tensors:
        values = np.asarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        values = values.reshape(tuple(int(n) for n in reversed(tensor.shape)))
        part = tensor.name.split(".")[-2]
        if part in heads:
            values = undo_rope_permutation(values, heads[part])
        state[hf_name(tensor.name)] = torch.from_numpy(np.array(values, order="C", copy=True))
    return state


def hf_config(meta: dict[str, Any], tied: bool) -> dict[str, Any]:
    """config.json of a `LlamaForCausalLM` from GGUF metadata. tied: there is no output matrix."""
    heads = meta["llama.attention.head_count"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": meta["llama.vocab_size"],
        "hidden_size": meta["llama.embedding_length"],
        "intermediate_size": meta["llama.feed_forward_length"],
        "num_hidden_layers": meta["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": meta["llama.attention.head_count_kv"],
        "head_dim": meta["llama.embedding_length"] // heads,
        "hidden_act": "silu",
        "max_position_embeddings": meta["llama.context_length"],
        # Stored as float32; this recovers 1e-5.
        "rms_norm_eps": float(f"{meta['llama.attention.layer_norm_rms_epsilon']:.6g}"),
        "rope_theta": float(meta["llama.rope.freq_base"]),
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": float(meta["llama.rope.freq_base"]),
        },
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": tied,
        "bos_token_id": meta["tokenizer.ggml.bos_token_id"],
        "eos_token_id": meta["tokenizer.ggml.eos_token_id"],
        "pad_token_id": meta["tokenizer.ggml.padding_token_id"],
        "dtype": "float32",
    }
