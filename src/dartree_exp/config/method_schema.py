"""The settings of a method: drafter, tree, budget, verifier (see `schema.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dartree_exp.budgets.spec import AUTO, BUDGETS
from dartree_exp.config.knob import knob
from dartree_exp.drafters.heads.spec import HEAD_CHOICES
from dartree_exp.drafters.spec import FAMILIES
from dartree_exp.trees.spec import CHILD_ORDERS, EXPANSIONS, LATENTS, NORMALISATIONS, SCORERS, TREES
from dartree_exp.verify.spec import VERIFIERS

MOST_NODES = 16_384  # of a tree: the mask over their rows alone takes 1 GiB in fp32
MOST_SEED = 2**63 - 1
MOST_DRAFTS = 1024  # of a drafter without a checkpoint


@dataclass(kw_only=True)
class DrafterConfig:
    """The drafter q: a checkpoint, or a drafter without weights."""

    name: str = knob("drafter in records and tables")
    family: str = knob("how drafts are made", allowed=FAMILIES)
    path: str | None = knob(
        "checkpoint: a local folder, a hub name, pkg:// (shipped with the package) or toy:// (made "
        "from a seed)"
    )
    head: str = knob(
        "correction head of the checkpoint to use; none: the backbone alone", allowed=HEAD_CHOICES
    )
    causal: bool = knob(
        "the checkpoint's slots see only earlier slots of their block (JetSpec); must be what the "
        "checkpoint says"
    )
    block_size: int | None = knob(
        "slots of a block, the root slot included; null: as the checkpoint was trained",
        low=2,
        high=MOST_DRAFTS,
    )
    num_drafts: int | None = knob(
        "drafts per round of a drafter whose checkpoint does not say it; null: the checkpoint's",
        low=1,
        high=MOST_DRAFTS,
    )
    children: int = knob("PTD: most guesses kept after each guess", low=1, high=MOST_DRAFTS)
    probes: int = knob("PTD: most rows of guesses in a forward", low=2, high=MOST_NODES)
    longest: int = knob("longest n-gram that is looked up", low=1, high=64)
    shortest: int = knob("shortest n-gram that is looked up", low=1, high=64)
    seed: int = knob(
        "seed of a drafter without weights, and of a toy:// drafter's weights",
        low=0,
        high=MOST_SEED,
    )


@dataclass(kw_only=True)
class TreeConfig:
    """How drafts become a tree. A builder ignores the settings it does not read, so one sweep can
    cover several builders.
    """

    name: str = knob("builder", allowed=TREES)
    scoring: str | None = knob(
        "scorer; null: own if the drafter has one, else mixture or conditional by the head, "
        "marginal without one",
        allowed=SCORERS,
    )
    budget: int | str = knob(
        "B: non-root nodes sent to verification per round; auto: the policy of `budget` chooses",
        allowed=(AUTO,),
        low=0,
        high=MOST_NODES,
    )
    width: int | None = knob(
        "W: nodes kept or expanded per depth; null: the budget", low=1, high=MOST_NODES
    )
    beta: float = knob(
        "depth bonus per level, added when choosing the nodes to keep or to expand next", high=0.0
    )
    candidates: int | str = knob(
        "K: token ids considered per depth; all: the whole vocabulary", allowed=("all",), low=1
    )
    children: int | None = knob("most children per parent; null: as many as candidates", low=1)
    child_order: str = knob("score that orders children: base or corrected", allowed=CHILD_ORDERS)
    expansion: str = knob(
        "what enters a heap's tree: the best open node; the greedy chain and then the best "
        "(spine_first); all children of the best node (push_all)",
        allowed=EXPANSIONS,
    )
    normalise: str = knob(
        "set that scores are normalised over; vocab_on_prefix: the vocabulary at uncorrected "
        "depths, else the candidates",
        allowed=NORMALISATIONS,
    )
    narrow_by_budget: bool = knob("a budget below K also limits children and width (DARTree)")
    candidates_follow_budget: bool = knob("K = min(budget, V), and candidates is not read (DDTree)")
    draft_sampling: str = knob(
        "drafts at temperature > 0: argmax, or release (as Domino's release: uncorrected depths "
        "are sampled at the target's temperature)",
        allowed=("argmax", "release"),
    )
    paths: str = knob(
        "rank paths of a static tree: the name of a shape that is shipped, or a JSON file"
    )
    draft_temperature: float | None = knob(
        "temperature of sampled drafts (tree=sampled); null: the target's", low=0.0
    )
    latent: str = knob(
        "category of a latent mixture: summed out along each path; or one a block, the likeliest a "
        "priori (greedy) or drawn from the prior at the target's temperature (sampled)",
        allowed=LATENTS,
    )
    coupled: bool = knob(
        "score drafts with the noise of the target's own draw (verify=exact; no effect at "
        "temperature 0)"
    )
    depth: int | None = knob("deepest level; null: the drafter's drafts per block", low=1)


@dataclass(kw_only=True)
class BudgetConfig:
    """How many of `tree.budget` nodes a round may verify."""

    name: str | None = knob(
        "budget policy; null: fixed if tree.budget is a number, cost_aware if it is auto",
        allowed=BUDGETS,
    )
    most: int = knob("cap of tree.budget=auto", low=1, high=MOST_NODES)
    threshold: float = knob(
        "cut a path before its first draft with lower confidence; 0: off", low=0.0, high=1.0
    )
    costs: list[Any] = knob(
        "[[rows, milliseconds], ...] of a verification, rows ascending; []: measured at the start"
    )
    overhead: float | None = knob(
        "milliseconds of a round besides the verification; null: measured at the start", low=0.0
    )
    rate: float = knob(
        "length_head: levels verified for each token that the head expects", above=0.0, high=1024.0
    )
    alpha: float = knob(
        "LibraSpec: drafts verified for each one expected to be accepted", low=0.0, high=1024.0
    )


@dataclass(kw_only=True)
class VerifyConfig:
    """How the target accepts drafts."""

    name: str = knob("verification rule", allowed=VERIFIERS)
    threshold: float = knob(
        "typical: a draft of larger probability is always accepted", low=0.0, high=1.0
    )
    alpha: float = knob("typical: share of exp(-entropy) that a draft must exceed", low=0.0)
