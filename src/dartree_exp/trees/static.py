"""Static scoring: the head runs once, along its own greedy chain, and all paths use its rows.

The "Domino chain + DDTree" arm of DARTree's construction ablation (arXiv 2608.13524, table 2) and
DominoTree's `conditional-static` arm (arXiv 2607.08642).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from dartree_exp.interfaces import Block, CorrectionHead
from dartree_exp.trees.conditional import ConditionalScorer
from dartree_exp.trees.marginal import MarginalScorer
from dartree_exp.trees.menu import MenuScorer, Scoring


def along_chain(
    conditional: ConditionalScorer, rows: Callable[[Any, int], Tensor]
) -> Iterator[Tensor]:
    """rows(state, depth) [*R, 1, K] at each depth of the greedy chain from the root; the next state
    reads the best entry.
    """
    state = conditional.start()
    only = torch.zeros_like(conditional.root).unsqueeze(-1)
    for depth in range(1, conditional.num_drafts + 1):
        row = rows(state, depth)
        yield row
        if depth < conditional.num_drafts:
            place = row.max(dim=-1).indices
            state = conditional.advance(state, depth, only, conditional.token(place, depth))


class StaticScorer(MenuScorer):
    """One menu per depth: the corrected row in the state of the greedy chain from the root
    (DominoTree's static arm).

    The candidates are those of the base logits; with candidates=all the menus are the whole
    corrected rows.
    """

    @classmethod
    def of_round(
        cls, block: Block, roots: int | tuple[int, ...], head: CorrectionHead, how: Scoring
    ) -> MenuScorer:
        if how.menu is not None:
            whole = ConditionalScorer(block, roots, head, "all", "vocab")
            return CorrectedMarginals(block, whole, how.menu, how.normalise)
        return cls(ConditionalScorer(block, roots, head, how.candidates, how.normalise))

    def __init__(self, conditional: ConditionalScorer) -> None:
        table = conditional.table
        none = table.logits.new_empty(*table.requests, 0, table.count)
        rows = torch.cat([none, *along_chain(conditional, conditional.rows)], -2)
        super().__init__(table, conditional.roots, rows)
        self._conditional = conditional

    def one(self, request: int) -> StaticScorer:
        return StaticScorer(self._conditional.one(request))

    def finite(self) -> Bool[Tensor, "*R"]:
        return self._conditional.finite()

    def fault(self, request: int) -> str:
        return self._conditional.fault(request)


class CorrectedMarginals(MarginalScorer):
    """DDTree over the chain's corrected rows instead of the base logits (DARTree, table 2).

    conditional: over every column of the block, which makes the chain Domino's. The candidates of a
    depth are the `candidates` best of its corrected row; `normalise` as for marginal scores.
    """

    def __init__(
        self, block: Block, conditional: ConditionalScorer, candidates: int, normalise: str
    ) -> None:
        none = block.logits[..., :0, :]
        rows = torch.cat([none, *along_chain(conditional, conditional.logits)], -2)
        super().__init__(replace(block, logits=rows), conditional.roots, candidates, normalise)
        self._conditional = conditional

    def finite(self) -> Bool[Tensor, "*R"]:
        return self._conditional.finite()

    def fault(self, request: int) -> str:
        return self._conditional.fault(request)
