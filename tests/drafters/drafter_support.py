"""A target reduced to what drafters read of it, and what the golden tests of the heads share."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dartree_exp.drafters.block import Block
from dartree_exp.drafters.heads.head import Head
from golden_support import GoldenCase


@dataclass
class StubTarget:
    embed_weight: Tensor
    lm_head_weight: Tensor
    num_layers: int
    name: str = "stub"

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
