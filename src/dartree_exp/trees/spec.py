"""Trees and scorers: their names, the knobs they read and the published methods on them.

Torch-free.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from dartree_exp.parts import Parts, Spec


class TreeSettings(Protocol):
    """The group `tree` of a configuration, as far as builders read it."""

    name: str
    budget: int
    width: int | None
    beta: float
    candidates: int | str
    children: int | None
    child_order: str
    narrow_by_budget: bool
    candidates_follow_budget: bool


@dataclass(frozen=True)
class SameAs:
    """Of a published setting: the value of another knob of the tree."""

    knob: str


@dataclass(frozen=True)
class Published:
    """The settings that earn a method its published name, besides its tree and exact-match
    verification.

    settings: knobs of the tree that the publication fixes. free: those that may vary without losing
    the name, because the publication varies them or because they change no draft; `budget` and
    `depth` always may. Every knob that the tree and the scorer read stands in one of the two.
    budgets: the budget policies that the method may have.
    """

    head: str
    scoring: str
    settings: Mapping[str, Any]
    free: tuple[str, ...] = ()
    budgets: tuple[str, ...] = ("fixed",)
    family: str = "dflash"

    @property
    def free_knobs(self) -> tuple[str, ...]:
        return (*ALWAYS_FREE, *self.free)


@dataclass(frozen=True, kw_only=True)
class TreeSpec(Spec):
    """A builder. level: most nodes of one depth, a number or the knob that says so; None: no
    limit but the budget.

    `target.from_settings(tree)` makes it.
    """

    level: int | str | None = None
    published: Mapping[str, Published] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ScorerSpec(Spec):
    """A scorer. corrects: it needs a correction head."""

    reads: tuple[str, ...] = ("candidates", "normalise", "candidates_follow_budget")
    corrects: bool = True


ALWAYS_FREE = ("budget", "depth")
EVERY_TREE = ("scoring", *ALWAYS_FREE)
"""Knobs that are read whatever the tree."""

_CHILDREN = ("children", "child_order", "narrow_by_budget")
_ALL_CHILDREN = {"children": None, "child_order": "base", "narrow_by_budget": False}
_RELEASED = {
    **_ALL_CHILDREN,
    "narrow_by_budget": True,
    "normalise": "candidates",
    "candidates_follow_budget": False,
}
"""DARTree's release. Its paper varies W, B, K and beta."""
_DDTREE = {**_ALL_CHILDREN, "normalise": "vocab", "candidates_follow_budget": True}
"""K = min(B, V); `candidates` is then not read."""
_WHOLE_VOCABULARY = {
    "candidates": "all",
    "candidates_follow_budget": False,
    "draft_sampling": "argmax",
}
_EIGHT_CHILDREN = {
    "children": 8,
    "normalise": "vocab_on_prefix",
    "candidates_follow_budget": False,
}
"""DominoTree. Its paper varies B and K (there M)."""

TREES = Parts(
    "tree.name",
    TreeSpec(
        name="chain",
        target="dartree_exp.trees.chain:ChainBuilder",
        meaning="one path: the best child of each depth",
        reads=("draft_sampling",),
        level=1,
        published={
            # The argmax of a marginal is the same over any K, whatever log Z runs over.
            "dflash": Published(
                "none",
                "marginal",
                {"draft_sampling": "argmax"},
                free=("candidates", "normalise", "candidates_follow_budget"),
            ),
            # log Z changes no argmax. The paper drafts argmaxes, the release samples.
            "domino": Published(
                "gru",
                "conditional",
                {"candidates": "all", "candidates_follow_budget": False},
                free=("normalise", "draft_sampling"),
            ),
            "dspark": Published(
                "markov",
                "conditional",
                _WHOLE_VOCABULARY,
                free=("normalise",),
                budgets=("fixed", "confidence"),
            ),
        },
    ),
    TreeSpec(
        name="heap",
        target="dartree_exp.trees.heap:HeapBuilder",
        meaning="best-first: the most likely open child next, until the budget is spent",
        reads=("beta", *_CHILDREN),
        published={
            "ddtree": Published("none", "marginal", {**_DDTREE, "beta": 0}, free=("candidates",)),
            "dominotree": Published(
                "gru",
                "conditional",
                {
                    **_EIGHT_CHILDREN,
                    "child_order": "corrected",
                    "narrow_by_budget": False,
                    "beta": 0,
                },
                free=("candidates",),
            ),
            # Table 2 of DARTree's paper; beta follows the tree that they are compared with.
            "heap_sequential": Published(
                "gru", "conditional", _RELEASED, free=("beta", "candidates")
            ),
            "chain_ddtree": Published("gru", "static", _DDTREE, free=("beta", "candidates")),
        },
    ),
    TreeSpec(
        name="fixed",
        target="dartree_exp.trees.levelwise:FixedBuilder",
        meaning="level by level, the budget spread evenly over the depths",
        reads=_CHILDREN,
        published={
            "dartree_fixed": Published("gru", "conditional", _RELEASED, free=("candidates",)),
        },
    ),
    TreeSpec(
        name="pruned",
        target="dartree_exp.trees.levelwise:PrunedBuilder",
        meaning="level by level at a fixed width, then the best budget nodes of all",
        reads=("width", "beta", *_CHILDREN),
        level="width",
        published={
            name: Published(head, "conditional", _RELEASED, free=("width", "beta", "candidates"))
            for name, head in (("dartree_pruned", "gru"), ("dartree_dspark", "markov"))
        },
    ),
    TreeSpec(
        name="pool",
        target="dartree_exp.trees.pool:PoolBuilder",
        meaning="depth by depth the k best children of the k best nodes; then the best of all",
        reads=("children", "width"),
        published={
            # The paper varies k, one number for children and width.
            "pctree": Published(
                "markov",
                "conditional",
                {
                    "children": SameAs("width"),
                    "candidates": "all",
                    "normalise": "vocab",
                    "candidates_follow_budget": False,
                },
                free=("width",),
            ),
        },
    ),
    TreeSpec(
        name="frontier",
        target="dartree_exp.trees.pool:FrontierBuilder",
        meaning="best-first depth by depth: as many nodes are expanded as the budget has",
        reads=("children", "width"),
        published={
            # A smaller width is an approximation.
            "dominotree_frontier": Published(
                "gru", "conditional", {**_EIGHT_CHILDREN, "width": None}, free=("candidates",)
            ),
        },
    ),
)

SCORERS = Parts(
    "tree.scoring",
    ScorerSpec(
        name="marginal",
        target="dartree_exp.trees.marginal:MarginalScorer",
        meaning="the backbone's base logits; depths are independent",
        corrects=False,
    ),
    ScorerSpec(
        name="static",
        target="dartree_exp.trees.static:StaticScorer",
        meaning="corrected along the head's own greedy chain: one menu per depth",
    ),
    ScorerSpec(
        name="conditional",
        target="dartree_exp.trees.conditional:ConditionalScorer",
        meaning="corrected along each node's own path",
    ),
)
