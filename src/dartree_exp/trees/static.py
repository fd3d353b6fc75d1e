"""Static scoring: the head runs once, along its own greedy chain, and its rows then serve every
path.

The "Domino chain + DDTree" arm of DARTree's construction ablation (arXiv 2608.13524, table 2) and
DominoTree's `conditional-static` arm (arXiv 2607.08642).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dartree_exp.trees.conditional import ConditionalScorer
from dartree_exp.trees.marginal import MarginalScorer
from dartree_exp.trees.menu import MenuScorer

if TYPE_CHECKING:
    from dartree_exp.drafters.block import Block


def along_chain(
    conditional: ConditionalScorer, root: int, rows: Callable[[Tensor, int], Tensor]
) -> Iterator[Tensor]:
    """rows(state, depth) [1, K] at each depth of the greedy chain from `root`, deeper states by its
    best entry.
    """
    state = conditional.start(root)
    only = torch.zeros(1, dtype=torch.int64, device=state.device)
    for depth in range(1, conditional.num_drafts + 1):
        row = rows(state, depth)
        yield row
        if depth < conditional.num_drafts:
            place = row.max(dim=-1).indices
            state = conditional.advance(state, depth, only, conditional.token(place, depth))


class StaticScorer(MenuScorer):
    """One menu per depth: the corrected row in the state of the greedy chain from `root`
    (DominoTree's static arm).

    The candidates stay those of the base logits; with candidates=all the menus are the whole
    corrected rows.
    """

    def __init__(self, conditional: ConditionalScorer, root: int) -> None:
        none = conditional.table.logits.new_empty(0, conditional.table.count)
        super().__init__(
            conditional.table, torch.cat([none, *along_chain(conditional, root, conditional.rows)])
        )
        self._conditional = conditional

    def finite(self) -> bool:
        return self._conditional.finite()


class CorrectedMarginals(MarginalScorer):
    """DDTree over the chain's corrected rows (DARTree, table 2): they take the place of the
    backbone's base logits.

    conditional: over every column of the block, so that the chain is Domino's. The candidates of a
    depth are the `candidates` best of its corrected row; `normalise` as for marginal scores.
    """

    def __init__(
        self,
        block: Block,
        conditional: ConditionalScorer,
        root: int,
        candidates: int,
        normalise: str,
    ) -> None:
        rows = torch.cat([block.logits[:0], *along_chain(conditional, root, conditional.logits)])
        super().__init__(replace(block, logits=rows), candidates, normalise)
        self._conditional = conditional

    def finite(self) -> bool:
        return self._conditional.finite()
