"""Static scoring: the head runs once, along its own greedy chain, and its rows then serve every path.

The "Domino chain + DDTree" arm of DARTree's construction ablation (arXiv 2608.13524, table 2) and DominoTree's
`conditional-static` arm (arXiv 2607.08642).
"""

from __future__ import annotations

import torch

from dartree_exp.trees.conditional import ConditionalScorer
from dartree_exp.trees.menu import MenuScorer


class StaticScorer(MenuScorer):
    """One menu per depth: the corrected row in the state of the greedy chain from `root`.

    The candidates stay those of the base logits; with candidates=all the menus are the whole corrected rows.
    """

    def __init__(self, conditional: ConditionalScorer, root: int) -> None:
        state = conditional.start(root)
        only = torch.zeros(1, dtype=torch.int64, device=state.device)
        menus = [conditional.table.logits.new_empty(0, conditional.table.count)]
        for depth in range(1, conditional.num_drafts + 1):
            menus.append(conditional.rows(state, depth))
            if depth < conditional.num_drafts:
                token, _, _ = conditional.best(state, depth)
                state = conditional.advance(state, depth, only, token)
        super().__init__(conditional.table, torch.cat(menus))
