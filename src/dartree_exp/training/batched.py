"""Batched greedy decoding of prompts of one length: no padding, no mask, a preallocated cache,
finished rows dropped.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
import torch.nn.functional as F
from torch import Tensor

from dartree_exp.training.features import LlamaStack

COMPACT_EVERY = (
    16  # steps between two drops of finished rows: a copy of the cache against work on dead rows
)


@torch.inference_mode()
def greedy(stack: LlamaStack, prompts: Tensor, cap: int, eos: Collection[int]) -> list[list[int]]:
    """Greedy continuations of prompts int64 [S, P], at most `cap` new ids each, EOS kept.

    float32; a continuation may differ from one decoded alone only where two logits are within
    rounding.
    """
    samples, length = prompts.shape
    shape = (len(stack.layers), 2, samples, stack.kv_heads, length + cap, stack.head_dim)
    cache = torch.empty(shape)
    answers: list[list[int]] = [[] for _ in range(samples)]
    rows = list(range(samples))
    x = stack.embed[prompts]
    start = 0
    for step in range(cap):
        logits = _forward(stack, x, cache, start)
        start = length + step
        chosen = logits.argmax(-1)
        for row, token in zip(rows, chosen.tolist(), strict=True):
            if not answers[row] or answers[row][-1] not in eos:
                answers[row].append(token)
        if step % COMPACT_EVERY == COMPACT_EVERY - 1 or step == 0:
            alive = [i for i, row in enumerate(rows) if answers[row][-1] not in eos]
            if not alive:
                break
            if len(alive) < len(rows):
                cache, chosen, rows = cache[:, :, alive], chosen[alive], [rows[i] for i in alive]
        x = stack.embed[chosen][:, None]
    return answers


def _forward(stack: LlamaStack, x: Tensor, cache: Tensor, start: int) -> Tensor:
    """Logits [S, V] of the last of x [S, T, H] at positions start..; writes their keys and values
    into the cache.
    """
    end = start + x.shape[1]
    for layer, (keys, values) in zip(stack.layers, cache, strict=True):
        q, keys[:, :, start:end], values[:, :, start:end] = stack.project(layer, x, start)
        past = keys[:, :, :end], values[:, :, :end]
        x = stack.finish(
            layer,
            x,
            F.scaled_dot_product_attention(q, *past, is_causal=start == 0, enable_gqa=True),
        )
    return F.linear(F.rms_norm(x[:, -1], (x.shape[-1],), stack.norm, stack.eps), stack.head)
