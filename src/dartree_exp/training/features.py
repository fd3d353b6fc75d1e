"""Hidden-state features of a Llama target for whole sequences: a plain batched forward without
cache or head.

Only what capture needs: right-padded sequences under a causal mask (padding follows the text, so it
reaches nothing), fused projections, and no work above the last tapped layer. Taps follow
`target_layer_ids`: the output of decoder layer i.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dartree_exp.training.target import WEIGHTS, check_taps, read_target_config, reading_weights


def rope_tables(length: int, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """cos and sin, float32 [length, head_dim], in the half-split layout of Llama and Qwen3."""
    inverse = theta ** -(torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    angles = torch.outer(torch.arange(length, dtype=torch.float64), inverse).repeat(1, 2)
    return angles.cos().float(), angles.sin().float()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of x [..., head_dim] by tables that broadcast against it."""
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-high, low], dim=-1) * sin


class LlamaStack:
    """The first `depth` decoder layers of a Llama folder (None: all), float32, projections
    fused.
    """

    def __init__(self, folder: Path, depth: int | None = None) -> None:
        from safetensors.torch import load_file

        config = read_target_config(folder)
        with reading_weights(folder):
            state = load_file(str(folder / WEIGHTS))
            self._take(config, state, config["num_hidden_layers"] if depth is None else depth)

    def _take(self, config: dict[str, Any], state: dict[str, Tensor], count: int) -> None:
        self.config = config
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.head_dim, self.hidden_size = config["head_dim"], config["hidden_size"]
        self.eps, self.num_layers = config["rms_norm_eps"], config["num_hidden_layers"]
        self.embed = state["model.embed_tokens.weight"].float()
        self.norm = state["model.norm.weight"].float()
        self.head = state.get("lm_head.weight", self.embed).float()
        self.cos, self.sin = rope_tables(
            config["max_position_embeddings"], self.head_dim, config["rope_theta"]
        )
        self.layers = [self._fused(state, f"model.layers.{i}.") for i in range(count)]

    @staticmethod
    def _fused(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
        def part(name: str) -> Tensor:
            return state[f"{prefix}{name}.weight"].float()

        return {
            "qkv": torch.cat([part(f"self_attn.{n}_proj") for n in "qkv"]),
            "o": part("self_attn.o_proj"),
            "gate_up": torch.cat([part("mlp.gate_proj"), part("mlp.up_proj")]),
            "down": part("mlp.down_proj"),
            "norm1": part("input_layernorm"),
            "norm2": part("post_attention_layernorm"),
        }

    def project(
        self, layer: dict[str, Tensor], x: Tensor, start: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys (both rotated) and values [S, heads, T, head_dim] of x [S, T, H] at
        positions start..
        """
        samples, length, width = x.shape
        sizes = [
            self.heads * self.head_dim,
            self.kv_heads * self.head_dim,
            self.kv_heads * self.head_dim,
        ]
        cos, sin = self.cos[start : start + length, None], self.sin[start : start + length, None]
        fused = F.linear(F.rms_norm(x, (width,), layer["norm1"], self.eps), layer["qkv"])
        q, k, v = (t.view(samples, length, -1, self.head_dim) for t in fused.split(sizes, dim=-1))
        return (
            rotate(q, cos, sin).transpose(1, 2),
            rotate(k, cos, sin).transpose(1, 2),
            v.transpose(1, 2),
        )

    def finish(self, layer: dict[str, Tensor], x: Tensor, attended: Tensor) -> Tensor:
        """The layer's output from its input x [S, T, H] and the heads' result [S, heads, T,
        head_dim].
        """
        x = x + F.linear(attended.transpose(1, 2).flatten(2), layer["o"])
        h = F.rms_norm(x, (x.shape[-1],), layer["norm2"], self.eps)
        gate, up = F.linear(h, layer["gate_up"]).chunk(2, dim=-1)
        return x + F.linear(F.silu(gate).mul_(up), layer["down"])


class FeatureForward(LlamaStack):
    """Tapped hidden states of whole sequences; `bf16`: with bfloat16 products, three times the
    speed where in hardware.
    """

    def __init__(self, folder: Path, taps: tuple[int, ...], bf16: bool = False) -> None:
        check_taps(taps, read_target_config(folder))
        super().__init__(folder, max(taps) + 1)
        self.bf16 = bf16
        self.taps = taps

    @torch.inference_mode()
    def __call__(self, ids: Tensor) -> Tensor:
        """ids int64 [S, T], right padded with any id -> features float32 [S, T, len(taps) *
        hidden].
        """
        x, outputs = self.embed[ids], {}
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
            for index, layer in enumerate(self.layers):
                q, k, v = self.project(layer, x, 0)
                x = self.finish(
                    layer,
                    x,
                    F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True),
                )
                outputs[index] = x
        return torch.cat([outputs[tap] for tap in self.taps], dim=-1)
