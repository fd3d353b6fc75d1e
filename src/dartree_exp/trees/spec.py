"""Trees and scorers: their names, the knobs they read and the published methods on them.

Torch-free.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from dartree_exp.parts import Parts, Spec
from dartree_exp.trees.published import ALWAYS_FREE, Published, SameAs


class TreeSettings(Protocol):
    """The keys of the group `tree` that builders read."""

    name: str
    scoring: str | None
    width: int | None
    beta: float
    candidates: int | str
    children: int | None
    child_order: str
    narrow_by_budget: bool
    candidates_follow_budget: bool
    paths: str
    expansion: str
    draft_temperature: float | None
    latent: str
    coupled: bool


@dataclass(frozen=True, kw_only=True)
class TreeSpec(Spec):
    """A builder. level: the most nodes of one depth, a number or the name of a knob; None: the
    budget. proposals: how its nodes may be proposed, see `DraftTree.proposal`.

    `target.from_settings(tree)` makes it.
    """

    level: int | str | None = None
    proposals: tuple[str, ...] = ("best",)
    published: Mapping[str, Published] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ScorerSpec(Spec):
    """A scorer. corrects: it needs a correction head. last_token: one whose states depend only on
    the token read last. whole: children may be any id, whatever `candidates` is. mixture: it needs
    a head that is a latent mixture, which no other scorer can use. opaque: its
    states depend on more than tokens, so coupled drafting perturbs its scores, not the block.

    `target.of_round(block, roots, head, how)` makes it; how: a `menu.Scoring`.
    """

    reads: tuple[str, ...] = ("candidates", "normalise", "candidates_follow_budget")
    corrects: bool = True
    last_token: bool = False
    whole: bool = False
    mixture: bool = False
    opaque: bool = False


OWN = "own"
"""The scoring of drafters that bring their scorer."""
NORMALISATIONS = ("candidates", "vocab", "vocab_on_prefix")
CHILD_ORDERS = ("base", "corrected")
LATENTS = LATENT_SUMMED, LATENT_GREEDY, LATENT_SAMPLED = "summed", "greedy", "sampled"
"""Categories of a latent mixture: all of them, summed out along each path; or one for the whole
block, the likeliest a priori or one drawn from the prior.
"""
EXPANSIONS = BEST, SPINE_FIRST, PUSH_ALL = "best", "spine_first", "push_all"
EVERY_TREE = ("scoring", "coupled", *ALWAYS_FREE)
"""Knobs that are read for every tree."""

_CHILDREN = ("children", "child_order", "narrow_by_budget")
_DARTREE = {"normalise": "candidates", "narrow_by_budget": True}  # the paper varies W, B, K, beta
_DOMINOTREE = {"normalise": "vocab_on_prefix", "children": 8}  # the paper varies B and K (there M)
_TOP_K = {"children": SameAs("width")}  # EAGLE's scripts vary it
_DDTREE = {"normalise": "vocab", "candidates_follow_budget": True}  # `candidates` is not read

TREES = Parts(
    "tree.name",
    TreeSpec(
        name="chain",
        target="dartree_exp.trees.chain:ChainBuilder",
        meaning="one path: the best child of each depth",
        reads=("draft_sampling",),
        level=1,
        published={
            # The argmax of a marginal is the same over any K, and log Z changes no argmax.
            "dflash": Published(
                "none", "marginal", free=("candidates", "normalise", "candidates_follow_budget")
            ),
            "adaflash": Published(
                "none",
                "marginal",
                free=("candidates", "normalise", "candidates_follow_budget"),
                budgets=("length_head",),
            ),
            # The paper drafts argmaxes, the release draws some drafts.
            "domino": Published(
                "gru", "conditional", {"candidates": "all"}, free=("normalise", "draft_sampling")
            ),
            "dspark": Published(
                "markov",
                "conditional",
                {"candidates": "all"},
                free=("normalise",),
                budgets=("fixed", "confidence"),
            ),
            "draft_model": Published("none", OWN, family="lm"),
            "dblast": Published(
                "latent",
                "mixture",
                {"latent": LATENT_GREEDY},
                free=("candidates", "candidates_follow_budget"),
            ),
        },
    ),
    TreeSpec(
        name="heap",
        target="dartree_exp.trees.heap:HeapBuilder",
        meaning="best-first: the most likely child next, until the budget is spent",
        reads=("beta", "expansion", *_CHILDREN),
        published={
            "ddtree": Published("none", "marginal", _DDTREE, free=("candidates",)),
            "dominotree": Published(
                "gru",
                "conditional",
                {**_DOMINOTREE, "child_order": "corrected"},
                free=("candidates",),
            ),
            # Table 2 of DARTree's paper; beta is that of the pruned tree they are compared with.
            "heap_sequential": Published(
                "gru", "conditional", _DARTREE, free=("beta", "candidates")
            ),
            "treeflash": Published("swiglu", "lattice", {}, free=("candidates",)),
            "ptd": Published("none", "own", family="ptd"),
            # Width 7 in the release, which counts the root in its budget of 256.
            "jetspec": Published(
                "none",
                "marginal",
                {"normalise": "vocab", "expansion": PUSH_ALL},
                free=("candidates", "children"),
                causal=True,
            ),
            "ngram": Published("none", OWN, family="ngram"),
            "chain_ddtree": Published("gru", "static", _DDTREE, free=("beta", "candidates")),
        },
    ),
    TreeSpec(
        name="sampled",
        target="dartree_exp.trees.sampled:SampledBuilder",
        meaning="drafts sampled from q, siblings without replacement, level by level",
        reads=("children", "width", "draft_temperature"),
        proposals=("sampled", "distinct"),
        published={
            "speculative_sampling": Published(
                None,
                None,
                {"children": 1},
                free=(
                    *("width", "draft_temperature", "candidates", "normalise"),
                    "candidates_follow_budget",
                ),
                family=None,
                verify="rejection",
            )
        },
    ),
    TreeSpec(
        name="fixed",
        target="dartree_exp.trees.levelwise:FixedBuilder",
        meaning="level by level, with the budget spread evenly over the depths",
        reads=_CHILDREN,
        published={
            "dartree_fixed": Published("gru", "conditional", _DARTREE, free=("candidates",))
        },
    ),
    TreeSpec(
        name="pruned",
        target="dartree_exp.trees.levelwise:PrunedBuilder",
        meaning="level by level at a fixed width, then the best nodes within the budget",
        reads=("width", "beta", *_CHILDREN),
        level="width",
        published={
            name: Published(head, "conditional", _DARTREE, free=("width", "beta", "candidates"))
            for name, head in (("dartree_pruned", "gru"), ("dartree_dspark", "markov"))
        }
        | {
            "dblast_tree": Published(
                "latent", "mixture", {"narrow_by_budget": True}, ("width", "beta", "candidates")
            ),
        },
    ),
    TreeSpec(
        name="pool",
        target="dartree_exp.trees.pool:PoolBuilder",
        meaning="at each depth the k best children of the k best nodes, then the best of all",
        reads=("children", "width"),
        published={
            # The paper varies k, one number for children and width.
            "pctree": Published(
                "markov",
                "conditional",
                {"children": SameAs("width"), "candidates": "all", "normalise": "vocab"},
                free=("width",),
            ),
            "eagle2": Published("none", OWN, _TOP_K, free=("width",), family="eagle2"),
            "eagle3": Published("none", OWN, _TOP_K, free=("width",), family="eagle"),
        },
    ),
    TreeSpec(
        name="frontier",
        target="dartree_exp.trees.pool:FrontierBuilder",
        meaning="best-first depth by depth: at each depth the best `width` nodes are expanded",
        reads=("children", "width"),
        published={
            # A smaller width is an approximation.
            "dominotree_frontier": Published(
                "gru", "conditional", {**_DOMINOTREE, "width": None}, free=("candidates",)
            )
        },
    ),
    TreeSpec(
        name="static",
        target="dartree_exp.trees.rank_tree:RankTreeBuilder",
        meaning="always the same shape: the ranks of the children along each path (`paths`)",
        reads=("paths",),
        published={
            # The paper makes a shape for each drafter, from the accuracies of its heads. A marginal
            # has the same order over any K.
            "medusa": Published(
                "none",
                "marginal",
                free=("paths", "candidates", "normalise", "candidates_follow_budget"),
                family="medusa",
            )
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
    ScorerSpec(
        name="lattice",
        target="dartree_exp.trees.lattice:LatticeScorer",
        meaning="corrected after the K best base tokens of each depth, over the vocabulary; other "
        "nodes have no children",
        reads=("candidates", "candidates_follow_budget"),
        last_token=True,
        whole=True,
    ),
    ScorerSpec(
        name="mixture",
        target="dartree_exp.trees.mixture:MixtureScorer",
        meaning="a latent category summed out along each node's path, or one for the whole block "
        "(`latent`), over the vocabulary",
        reads=("candidates", "candidates_follow_budget", "latent"),
        mixture=True,
        opaque=True,
    ),
    ScorerSpec(
        name=OWN,
        target="dartree_exp.interfaces:Scorer",
        meaning="the drafter's own scorer, over the whole vocabulary",
        reads=(),
        corrects=False,
        whole=True,
        opaque=True,
    ),
)
