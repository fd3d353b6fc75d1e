"""A target with only what drafters read, and helpers of the heads' golden tests."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from dartree_exp.drafters.heads.head import Head
from dartree_exp.interfaces import Block
from golden_support import GoldenCase


@dataclass
class StubTarget:
    embed_weight: Tensor
    lm_head_weight: Tensor
    num_layers: int
    name: str = "stub"
    architecture: str = "StubForCausalLM"

    @property
    def vocab_size(self) -> int:
        return self.embed_weight.shape[0]

    @property
    def hidden_size(self) -> int:
        return self.embed_weight.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        return self.embed_weight.dtype

    @property
    def device(self) -> torch.device:
        return self.embed_weight.device


def stub_target(case: GoldenCase, num_layers: int) -> StubTarget:
    """The target of a golden case."""
    arrays = case.arrays
    tables = arrays["target.embed_tokens.weight"], arrays["target.lm_head.weight"]
    return StubTarget(*tables, num_layers)


def tolerance(case: GoldenCase) -> dict[str, float]:
    return {
        "atol": case.spec["tolerance"]["logits_atol"],
        "rtol": case.spec["tolerance"]["logits_rtol"],
    }


def greedy_chain(head: Head, block: Block, root: int, k: int | None) -> tuple[list[int], Tensor]:
    """Chain by argmax over the k best base logits per depth (None: all), root first, and the
    corrected logits [D, V].
    """
    depths, vocabulary = block.logits.shape
    ids = block.logits.topk(k or vocabulary, dim=-1).indices
    prepared = head.prepare(block, ids)
    state, chain, rows = head.start(root), [root], []
    for depth in range(1, depths + 1):
        base = block.logits[depth - 1]
        corrected = base[ids[depth - 1]] + head.correction(prepared, state, depth)[0]
        token = ids[depth - 1, corrected.argmax()]
        rows.append(
            torch.full_like(base, -torch.inf).scatter(0, ids[depth - 1], corrected.to(base.dtype))
        )
        chain.append(int(token))
        state = head.advance(prepared, state, depth, torch.tensor([0]), token[None])
    return chain, torch.stack(rows)


def edit_config(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change a checkpoint's config.json in place."""
    raw = json.loads((folder / "config.json").read_text())
    change(raw)
    (folder / "config.json").write_text(json.dumps(raw))


def edit_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    """Change a checkpoint's tensors in place."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
