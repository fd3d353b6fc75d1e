"""Batched use of the target in training: tapped and final hidden states of padded sequences, greedy
text, and the sizes of a layer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dartree_exp.engines.cache import head_shape
from dartree_exp.engines.target import Target

COMPACT_EVERY = 16
"""Steps between removals of finished rows: each copies the cache but saves work on those rows."""


class _AllTapped(Exception):
    """Ends the forward pass after the last tapped layer."""


def layer_shape(target: Target) -> dict[str, int | float]:
    """The target's sizes, for a drafter with the same kind of layers."""
    config: Any = target._model.config
    heads, kv_heads, head_dim = head_shape(config)
    return {
        "hidden_size": target.hidden_size,
        "intermediate_size": int(config.intermediate_size),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "vocab_size": target.vocab_size,
        "num_target_layers": target.num_layers,
        "rope_theta": float(config.rope_parameters["rope_theta"]),
        "max_position_embeddings": target.max_positions,
    }


@torch.inference_mode()
def tapped(target: Target, ids: Tensor, taps: Sequence[int], half: bool = False) -> Tensor:
    """Outputs of the tapped decoder layers for ids int64 [S, T], concatenated: [S, T, n * H].

    Sequences are padded on the right with any id: the mask is causal, so padding has no effect.
    half: products in bfloat16 (autocast), sums and the residual stream in the target's dtype.
    """
    model = target._model
    outputs: dict[int, Tensor] = {}

    def reader(layer: int) -> Callable[..., None]:
        def read(module: nn.Module, arguments: object, output: Tensor | tuple[Tensor, ...]) -> None:
            outputs[layer] = output if isinstance(output, Tensor) else output[0]
            if layer == max(taps):
                raise _AllTapped

        return read

    hooks = [model.model.layers[tap].register_forward_hook(reader(tap)) for tap in taps]
    try:
        with torch.autocast(target.device.type, torch.bfloat16, enabled=half):
            model.model(input_ids=ids.to(target.device), use_cache=False)
    except _AllTapped:
        pass
    finally:
        for hook in hooks:
            hook.remove()
    return torch.cat([outputs[tap] for tap in taps], dim=-1)


@torch.inference_mode()
def finished(target: Target, hidden: Tensor, layer: int, half: bool = False) -> Tensor:
    """Final-normed hidden states [S, T, H], from the output [S, T, H] of decoder layer `layer`.
    Padding and half: as `tapped`.
    """
    model = target._model.model
    length = hidden.shape[1]
    positions = torch.arange(length, device=hidden.device)[None]
    mask = torch.full((length, length), torch.finfo(hidden.dtype).min, device=hidden.device)
    mask = mask.triu(1)[None, None].to(hidden.dtype)
    with torch.autocast(target.device.type, torch.bfloat16, enabled=half):
        tables = model.rotary_emb(hidden, positions)
        for block in model.layers[layer + 1 :]:
            output = block(
                hidden,
                attention_mask=mask,
                position_ids=positions,
                position_embeddings=tables,
                use_cache=False,
            )
            hidden = output if isinstance(output, Tensor) else output[0]
        return model.norm(hidden)


@torch.inference_mode()
def greedy(target: Target, prompts: Tensor, cap: int, eos: Collection[int]) -> list[list[int]]:
    """Greedy continuations of prompts int64 [S, P] of equal length: at most `cap` new ids each,
    including the end token.

    They may differ from plain decoding only if two logits differ by less than rounding.
    """
    model = target._model
    cache: Any = None  # created by the library in the first step
    answers: list[list[int]] = [[] for _ in prompts]
    rows = list(range(len(prompts)))
    read = prompts.to(target.device)
    for step in range(cap):
        held = {} if cache is None else {"cache": cache}
        output = model(input_ids=read, use_cache=True, logits_to_keep=1, **held)
        cache = output["cache"]
        chosen = output.logits[:, -1].argmax(-1)
        for row, token in zip(rows, chosen.tolist(), strict=True):
            if not answers[row] or answers[row][-1] not in eos:
                answers[row].append(token)
        if step % COMPACT_EVERY == COMPACT_EVERY - 1 or step == 0:
            alive = [i for i, row in enumerate(rows) if answers[row][-1] not in eos]
            if not alive:
                break
            if len(alive) < len(rows):
                index = torch.tensor(alive, device=target.device)
                cache.batch_select_indices(index)
                chosen, rows = chosen[index], [rows[i] for i in alive]
        read = chosen[:, None]
    return answers
