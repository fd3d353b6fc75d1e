"""What the golden tests of the heads share."""

import torch
from torch import Tensor

from dartree_exp.drafters.block import Block
from dartree_exp.drafters.heads.head import Head


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
