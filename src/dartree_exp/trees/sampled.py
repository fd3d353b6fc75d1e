"""Trees of sampled drafts, for rejection sampling: siblings are drawn from q without replacement.

With one child it is the chain of speculative sampling (Leviathan et al., arXiv 2211.17192; Chen et
al., arXiv 2302.01318). How many children a node has never depends on their tokens, and which nodes
are expanded depends only on tokens of their depth and above: otherwise rejection sampling would not
keep the target's law.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self, cast

import torch
from jaxtyping import Int64
from torch import Tensor

from dartree_exp.interfaces import DraftLaws, DraftTree, Sample, SamplingScorer
from dartree_exp.kernels.candidate_select import stable_topk
from dartree_exp.trees.ledger import Ledger
from dartree_exp.trees.scorer import levels
from dartree_exp.trees.spec import TreeSettings

if TYPE_CHECKING:
    from dartree_exp.interfaces import Draws, Limits, Scorer


@dataclass
class SampledBuilder:
    """Level by level; the budget is spread evenly over the depths, as in DARTree fixed.

    children: most children per parent; None: as many as the budget allows. width: most nodes
    expanded per depth, the likeliest; None: as many as the budget allows. temperature: of the
    drafts; None: the target's.
    """

    children: int | None = None
    width: int | None = None
    temperature: float | None = None

    @classmethod
    def from_settings(cls, tree: TreeSettings) -> Self:
        return cls(tree.children, tree.width, tree.draft_temperature)

    def build(self, scorer: Scorer, limits: Limits, draws: Draws | None = None) -> DraftTree:
        assert draws is not None
        depths, left = levels(scorer, limits), limits.nodes
        ledger, laws, state = Ledger(scorer.root), _Laws(), scorer.start()
        tokens = scorer.root.unsqueeze(-1)  # of the last level, and how many of them are siblings
        scores, siblings = torch.zeros(tokens.shape, device=tokens.device), 1
        for depth in range(1, depths + 1):
            share = -(-left // (depths - depth + 1))
            if not share:
                break
            count = share if self.children is None else min(self.children, share)
            most = share // count if self.width is None else min(self.width, share // count)
            expanded, index = stable_topk(scores, min(most, scores.shape[-1]))
            if depth > 1:
                read = tokens.gather(-1, index)
                state = scorer.advance(state, depth - 1, index // siblings, read)
            drawn = cast(SamplingScorer, scorer).sample(
                state, depth, draws, count, self.temperature
            )
            siblings = drawn.tokens.shape[-1]
            parents = index.unsqueeze(-1).expand(drawn.tokens.shape).flatten(-2)
            tokens = drawn.tokens.flatten(-2)
            scores = (expanded.unsqueeze(-1) + drawn.log_probs).flatten(-2)
            laws.add(index, tokens.shape[-1], drawn)
            ledger.add_level(parents, tokens, scores, drawn.ranks.flatten(-2))
            left -= tokens.shape[-1]
        alone = all(children == 1 for children in laws.children)
        return ledger.tree("sampled" if alone else "distinct", laws.tree(scorer.root))


@dataclass
class _Laws:
    """Collects the laws of a tree, depth by depth."""

    log_q: list[Tensor] = field(default_factory=list)
    ids: list[Tensor] = field(default_factory=list)
    rows: list[Tensor] = field(default_factory=list)
    children: list[int] = field(default_factory=list)
    _level: int = 1  # nodes of the depth of the parents

    def add(self, parents: Int64[Tensor, "*R N"], nodes: int, drawn: Sample) -> None:
        """parents: indices of the expanded nodes in their level. nodes: drawn below them."""
        row = torch.full((*parents.shape[:-1], self._level), -1, device=parents.device)
        order = torch.arange(parents.shape[-1], device=parents.device).expand_as(parents)
        self.rows.append(row.scatter_(-1, parents, order))
        self.log_q.append(drawn.law)
        self.ids.append(drawn.ids)
        self.children.append(drawn.tokens.shape[-1])
        self._level = nodes

    def tree(self, root: Int64[Tensor, "*R"]) -> DraftLaws:
        leaves = torch.full((*root.shape, self._level), -1, device=root.device)
        return DraftLaws(
            tuple(self.log_q), tuple(self.ids), torch.cat([*self.rows, leaves], dim=-1)
        )
