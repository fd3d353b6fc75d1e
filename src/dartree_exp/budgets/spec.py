"""Budget policies: how many of `tree.budget` nodes a round may verify (torch-free)."""

from __future__ import annotations

from dataclasses import dataclass

from dartree_exp.parts import Parts, Spec

AUTO = "auto"
"""The `tree.budget` that leaves the number to the policy, up to `budget.most`."""
FIXED, COST_AWARE = "fixed", "cost_aware"
"""The policies of `budget.name=null`: for a number, and for auto."""


@dataclass(frozen=True, kw_only=True)
class BudgetSpec(Spec):
    """A policy. `target.from_settings(settings)` makes it; with `calibrated`,
    `from_settings(settings, edges)`, where edges is an `EdgeCalibration`.

    confident, length: it needs a drafter with a confidence head, with a length head. chooses: it
    can be used with tree.budget=auto. trees: the trees that it can cut; (): all. calibrated: it
    reads the drafter's calibration of edges.
    """

    confident: bool = False
    length: bool = False
    chooses: bool = False
    trees: tuple[str, ...] = ()
    calibrated: bool = False


BUDGETS = Parts(
    "budget.name",
    BudgetSpec(
        name=FIXED,
        target="dartree_exp.budgets.fixed:FixedBudget",
        meaning="every round may verify tree.budget nodes",
    ),
    BudgetSpec(
        name="confidence",
        target="dartree_exp.budgets.confidence:ConfidenceBudget",
        meaning="a path is cut before the first draft with confidence below the threshold (DSpark)",
        reads=("threshold",),
        confident=True,
        chooses=True,
    ),
    BudgetSpec(
        name="length_head",
        target="dartree_exp.budgets.length_head:LengthHeadBudget",
        meaning="as many levels as the drafter's length head expects to be worth it (AdaFlash)",
        reads=("rate",),
        length=True,
    ),
    BudgetSpec(
        name=COST_AWARE,
        target="dartree_exp.budgets.cost_aware:CostAwareBudget",
        meaning="the number with the most tokens expected per second, by calibrated chances and "
        "measured costs; rests while drafting does not pay",
        reads=("costs", "overhead"),
        chooses=True,
        calibrated=True,
    ),
    BudgetSpec(
        name="caddtree",
        target="dartree_exp.budgets.caddtree:CaddtreeBudget",
        meaning="nodes are added, best first, while they raise the expected speed (CaDDTree)",
        reads=("costs", "overhead"),
        chooses=True,
    ),
    BudgetSpec(
        name="libraspec",
        target="dartree_exp.budgets.libraspec:LibraSpecBudget",
        meaning="length of a chain by its confidences and by what rows cost (LibraSpec)",
        reads=("costs", "overhead", "alpha"),
        chooses=True,
        trees=("chain",),
    ),
)
