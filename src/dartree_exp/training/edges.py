"""Calibrate a drafter's edges: `python -m dartree_exp.training.edges --drafter FOLDER --data TEXT
--out FILE`.

Held-out prompts are decoded with the drafter's trees. Every edge whose parent was accepted gives
the probability that the drafter gave it, and whether it was accepted too. Two numbers (a, b), with
p = sigmoid(a logit(q) + b), are fitted for each scorer and temperature on every other prompt and
judged on the rest, by the error of the chance that a node lies on the accepted path. They are
written to `--out`; as `edges.json` in the drafter's folder they are read when it is loaded, and
`budget=cost_aware` uses them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from dartree_exp.budgets.fixed import FixedBudget
from dartree_exp.training.command import Parser, run
from dartree_exp.training.corpus import Sample
from dartree_exp.training.halves import check_halves
from dartree_exp.training.pairs import Case, Found, add_pair_arguments, fit_pairs
from dartree_exp.training.reliability import (
    BINS,
    Array,
    calibration_noise,
    expected_calibration_error,
    fit_platt,
)

if TYPE_CHECKING:
    from dartree_exp.interfaces import DraftTree, RoundResult

TEMPERATURES = (0.0, 1.0)


@dataclass
class Edges(FixedBudget):
    """A budget policy that verifies whole trees and notes each of them with its accepted path."""

    rounds: list[tuple[DraftTree, set[int]]] = field(default_factory=list)

    def observe(self, result: RoundResult) -> None:
        self.rounds.append((result.tree, set(result.accepted.paths[0])))

    def seen(self) -> tuple[Array, Array]:
        """log q of the edges whose parent was accepted, and whether they were too, 0 or 1."""
        from dartree_exp.budgets.chances import edge_log_probs

        log_q: list[float] = []
        accepted: list[bool] = []
        for tree, path in self.rounds:
            steps, parents = edge_log_probs(tree)[0].tolist(), tree.parents[0].tolist()
            below = [node for node in range(1, len(parents)) if parents[node] in path]
            log_q += [steps[node - 1] for node in below]
            accepted += [node in path for node in below]
        return np.array(log_q), np.array(accepted, dtype=np.float64)

    def chances(self, pair: Sequence[float]) -> tuple[Array, Array]:
        """Of every node: the chance to lie on the accepted path by a pair, and whether it did."""
        import torch

        from dartree_exp.budgets.chances import path_chances

        a, b = (torch.tensor([[x]], dtype=torch.float64) for x in pair)
        found = [path_chances(tree, a, b)[0].numpy() for tree, _ in self.rounds]
        happened = [
            [node in path for node in range(1, tree.num_nodes + 1)] for tree, path in self.rounds
        ]
        return np.concatenate(found), np.concatenate(happened).astype(np.float64)


def judged(edges: Edges, pair: Sequence[float]) -> dict[str, float]:
    """What a pair, and none, say of other rounds than it was fitted on."""
    (before, happened), (after, _) = edges.chances((1.0, 0.0)), edges.chances(pair)
    return {
        "ece_before": round(expected_calibration_error(before, happened), 4),
        "ece_after": round(expected_calibration_error(after, happened), 4),
        "ece_noise": round(calibration_noise(after), 4),
        "tokens_predicted": round(float(after.sum() / len(edges.rounds)), 3),
        "tokens_accepted": round(float(happened.sum() / len(edges.rounds)), 3),
    }


def fit(case: Case, samples: list[Sample]) -> Found:
    """The pair of every other prompt, judged on the rest."""
    fitted, rest = Edges(), Edges()
    case.decode(fitted, samples[::2])
    case.decode(rest, samples[1::2])
    check_halves(samples, len(fitted.rounds), len(rest.rounds))
    pair = [round(x, 4) for x in fit_platt(*fitted.seen())]
    said = judged(rest, pair)
    shown = (
        f"{len(samples):10d} {pair[0]:6.3f} {pair[1]:7.3f} {said['ece_before']:12.4f} "
        f"{said['ece_after']:6.4f} {said['ece_noise']:6.4f} {said['tokens_predicted']:10.3f} "
        f"{said['tokens_accepted']:9.3f}"
    )
    how = (
        f"sigmoid(a logit(q) + b) of edges whose parent was accepted, trees of "
        f"{case.method.budget} nodes, {len(samples)} held-out prompts of at most "
        f"{case.config.decoding.max_new_tokens} new tokens: fitted on every other prompt; ECE "
        f"({BINS} bins) of the chance of each node of a tree to lie on the accepted path on the "
        "rest"
    )
    return Found(pair, said, shown, how)


def main(argv: list[str] | None = None) -> int:
    parser = Parser("edges", __doc__, "--drafter drafter --data text.jsonl --out edges.json")
    add_pair_arguments(parser, TEMPERATURES)
    header = "   prompts      a       b   ECE before  after  noise  predicted  accepted"
    fit_pairs(parser.parse_args(argv), ("pairs", "judged", "how"), header, fit)
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
