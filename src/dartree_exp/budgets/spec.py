"""Budget policies: how many of `tree.budget` nodes a round may verify (torch-free)."""

from __future__ import annotations

from dataclasses import dataclass

from dartree_exp.parts import Parts, Spec


@dataclass(frozen=True, kw_only=True)
class BudgetSpec(Spec):
    """A policy. `target.from_settings(settings)` makes it.

    confident: it needs a drafter with a confidence head.
    """

    confident: bool = False


BUDGETS = Parts(
    "budget.name",
    BudgetSpec(
        name="fixed",
        target="dartree_exp.budgets.fixed:FixedBudget",
        meaning="every round may verify tree.budget nodes",
    ),
    BudgetSpec(
        name="confidence",
        target="dartree_exp.budgets.confidence:ConfidenceBudget",
        meaning="a path is cut before the first draft with confidence below the threshold (DSpark)",
        reads=("threshold",),
        confident=True,
    ),
)
