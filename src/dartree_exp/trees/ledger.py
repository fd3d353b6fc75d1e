"""Building a tree level by level, without reading anything from the device."""

from __future__ import annotations

import torch
from torch import Tensor

from dartree_exp.interfaces import DraftLaws, DraftTree


class Ledger:
    """The levels of a tree so far.

    The number of nodes of a level is known from shapes alone, so node indices are host integers:
    the nodes of a level are `first`, `first + 1`, ... in the order they were added.
    """

    def __init__(self, root: Tensor) -> None:
        """root: int64 [*R], the token of node 0."""
        tokens = root.unsqueeze(-1)
        self._minus_one = torch.full_like(tokens, -1)
        self._tokens = [tokens]
        self._places = [self._minus_one]  # index of the parent within the level above
        self._ranks = [self._minus_one]
        self._scores = [torch.zeros(tokens.shape, device=root.device)]
        self._depths = [0]
        self._above = [0]  # for each node, the index of the first node of the level above

    def add_level(self, parent: Tensor, token: Tensor, score: Tensor, rank: Tensor) -> None:
        """Append the next level, [*R, M] each: index of the parent within the level above (int64),
        token (int64), path score, rank (int64).
        """
        size, first = token.shape[-1], len(self._depths) - self._tokens[-1].shape[-1]
        self._places.append(parent)
        self._tokens.append(token)
        self._scores.append(score)
        self._ranks.append(rank)
        self._depths += [self._depths[-1] + 1] * size
        self._above += [first] * size

    def tree(self, proposal: str = "best", laws: DraftLaws | None = None) -> DraftTree:
        """The tree of all levels added so far."""
        size = len(self._depths)
        fields = torch.cat([*self._tokens, *self._places, *self._ranks], -1)
        tokens, places, ranks = fields.unflatten(-1, (3, size)).unbind(-2)
        depths, above = torch.tensor([self._depths, self._above], device=tokens.device).unbind()
        return DraftTree(
            tokens,
            places + above,
            depths.expand_as(tokens),
            torch.cat(self._scores, -1),
            ranks,
            supertree_size=size - 1,
            levels=self._depths[-1],
            proposal=proposal,
            laws=laws,
        )
