"""Shares of rounds and nodes, and lengths, for plots, with intervals over prompts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from dartree_exp.metrics.measures import Metric, ratio
from dartree_exp.metrics.stats import Estimate, bootstrap, estimate
from dartree_exp.records import RoundRecord, SampleRecord, TreeRecord

MOST_PLACES = 8  # bars by branch rank


def survival_estimates(samples: Sequence[SampleRecord]) -> list[Estimate]:
    """Pr(L >= d) of the acceptance length for d = 1, 2, ... up to the longest seen, with intervals
    over prompts.
    """

    def at(d: int) -> Metric:
        def columns(s: SampleRecord) -> tuple[float, ...] | None:
            return (
                (sum(n >= d for n in s.acceptance_lengths), s.rounds)
                if s.error is None and s.rounds
                else None
            )

        return Metric(
            f"survival_{d}", f"share of rounds that advanced at least {d}", columns, _quotient
        )

    longest = max((n for s in samples if s.error is None for n in s.acceptance_lengths), default=0)
    return [estimate(samples, at(d)) for d in range(1, longest + 1)]


def branch_estimates(
    rounds: Sequence[RoundRecord], units: Mapping[str, str], most: int = MOST_PLACES
) -> list[Estimate]:
    """For each rank among siblings: nodes accepted / nodes offered, with intervals over prompts.

    A node is offered if its parent was reached. Rounds of older records without these ranks are
    left out. units: `metrics.prompt_units` of the samples.
    """
    tables: dict[str, np.ndarray] = defaultdict(lambda: np.zeros((most, 2)))
    for r in rounds:
        if r.accepted_places is None or r.path_children is None:
            continue
        for place in r.accepted_places:
            if place < most:
                tables[units[r.id]][place, 0] += 1
        for children in r.path_children:
            tables[units[r.id]][: min(children, most), 1] += 1
    if not tables:
        return []
    stacked = np.stack(list(tables.values()))  # [P, places, 2]
    offered = stacked[:, :, 1].sum(0) > 0
    return [bootstrap(stacked[:, place], _quotient) for place in range(most) if offered[place]]


def length_estimates(
    trees: Sequence[TreeRecord], units: Mapping[str, str]
) -> list[tuple[int, Estimate]]:
    """(drafts expected, drafts verified per round), ascending, with intervals over prompts.

    Expected is the sum of the path probabilities of all nodes that were built, by the drafter
    itself: the drafts of this round that would be accepted if it were right. Rounds are grouped by
    that number, rounded; those without a draft are left out. units: `metrics.prompt_units`.
    """
    groups: dict[int, dict[str, np.ndarray]] = defaultdict(lambda: defaultdict(lambda: np.zeros(2)))
    for tree in trees:
        built = len(tree.tokens) - 1
        if built:
            sent = built if tree.verified is None else len(tree.verified) - 1
            expected = round(float(np.exp(tree.scores[1:]).sum()))
            groups[expected][units[tree.id]] += (sent, 1)
    return [
        (expected, bootstrap(np.stack(list(sums.values())), _quotient))
        for expected, sums in sorted(groups.items())
    ]


def _quotient(sums: np.ndarray) -> np.ndarray:
    return ratio(sums[..., 0], sums[..., 1])
