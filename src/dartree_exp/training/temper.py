"""Fit coupled drafting to a drafter: `python -m dartree_exp.training.temper --drafter FOLDER --data
TEXT --out FILE`.

Held-out prompts are decoded with coupled trees. At each position that the rounds reached, the
target's own token is one of the candidates or a miss. (temper, spread) are the likeliest pair of

    P(y) = softmax_y (log q(y) / (temper T) + g(y)) / spread

for each scorer and temperature, fitted on every other prompt and judged on the rest. They are
written to `--out`; as `edges.json` in the drafter's folder they are read when it is loaded, and
`tree.coupled=true` uses them (`dartree_exp.trees.coupled`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from dartree_exp.budgets.fixed import FixedBudget
from dartree_exp.training.command import Parser, run
from dartree_exp.training.corpus import Sample
from dartree_exp.training.halves import check_halves
from dartree_exp.training.pairs import Case, Found, add_pair_arguments, fit_pairs
from dartree_exp.training.reliability import Array
from dartree_exp.trees.coupled import FILTERED, CoupledBuilder

if TYPE_CHECKING:
    from dartree_exp.decode import Method
    from dartree_exp.interfaces import Builder, DraftTree, Draws, Limits, RoundResult, Scorer

TEMPERATURES = (0.7, 1.0, 1.5)
NEVER = -1e4  # log q of what is no candidate: its probability is 0 for every pair


@dataclass(frozen=True)
class Reached:
    """n positions: log q / T of K candidates up to a constant, their noise, the target's choice."""

    log_q: Array  # [n, K]
    noise: Array  # [n, K]
    chosen: NDArray[np.int64]  # [n]
    missed: int  # further positions: the target's token was no candidate

    def log_probs(self, of_q: float, of_noise: float) -> Array:
        """log softmax of of_q log q / T + of_noise g, [n, K]."""
        logits = of_q * self.log_q + of_noise * self.noise
        logits -= logits.max(axis=1, keepdims=True)
        normalised: Array = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        return normalised

    def loss(self, of_q: float, of_noise: float) -> float:
        """Mean negative log-likelihood of the target's choices."""
        found = self.log_probs(of_q, of_noise)[np.arange(len(self.chosen)), self.chosen]
        return float(-found.mean())

    def right(self, of_q: float, of_noise: float) -> float:
        """Share of all positions where the best candidate is the target's choice."""
        best = (of_q * self.log_q + of_noise * self.noise).argmax(axis=1)
        return float((best == self.chosen).sum() / (len(self.chosen) + self.missed))


@dataclass
class Watch(FixedBudget):
    """A budget policy and the builder's eyes: notes each position that a round reached."""

    rows: list[tuple[Array, Array, int]] = field(default_factory=list)
    missed: int = 0
    scorer: Scorer | None = None
    draws: Draws | None = None

    def observe(self, result: RoundResult) -> None:
        assert self.scorer is not None and self.draws is not None
        accepted, state = result.accepted, self.scorer.start()
        reached = [*accepted.tokens[0], accepted.bonus[0]]
        for depth, token in enumerate(reached[: self.scorer.num_drafts], start=1):
            ids = self.scorer.candidates(depth).flatten()
            place = (ids == token).nonzero().flatten()
            if not len(place):
                self.missed += 1
                return
            scores = self.scorer.score(state, depth).flatten().double()
            noise = self.draws.target_noise(depth, int(ids.max()) + 1)[0][ids]
            log_q = torch.where(scores > -FILTERED / 2, scores - noise, NEVER)
            self.rows.append((log_q.numpy(), noise.numpy(), int(place)))
            if depth < self.scorer.num_drafts:
                parent = torch.zeros(1, 1, dtype=torch.int64)
                state = self.scorer.advance(state, depth, parent, torch.tensor([[token]]))

    def reached(self) -> Reached:
        """All that was noted; positions with fewer candidates are padded."""
        size = max((len(row[0]) for row in self.rows), default=0)
        log_q, noise = np.full((len(self.rows), size), NEVER), np.zeros((len(self.rows), size))
        for i, (some_q, some_noise, _) in enumerate(self.rows):
            log_q[i, : len(some_q)], noise[i, : len(some_q)] = some_q, some_noise
        return Reached(log_q, noise, np.array([row[2] for row in self.rows]), self.missed)


@dataclass(frozen=True)
class Watched:
    """A builder whose scorers and draws are noted before it builds."""

    builder: Builder
    watch: Watch

    def build(self, scorer: Scorer, limits: Limits, draws: Draws | None = None) -> DraftTree:
        self.watch.scorer, self.watch.draws = scorer, draws
        return self.builder.build(scorer, limits, draws)


def under_watch(method: Method, watch: Watch) -> Method:
    """The method with a builder that shows the coupled scores to `watch`."""
    made = method.builder
    if isinstance(made, CoupledBuilder):
        return replace(method, builder=made.around(Watched(made.builder, watch)))
    return replace(method, builder=Watched(made, watch))


def positions(case: Case, samples: Sequence[Sample]) -> Reached:
    """What the rounds of the prompts reached."""
    watch = Watch()
    replace(case, method=under_watch(case.method, watch)).decode(watch, samples)
    return watch.reached()


def fit_coupling(reached: Reached, steps: int = 50) -> tuple[float, float]:
    """(temper, spread) of the likeliest softmax, by Newton's method on its two weights, in which
    the likelihood is concave; a prior worth one position holds them at (1, 1).
    """
    features = np.stack([reached.log_q, reached.noise], axis=-1)  # [n, K, 2]
    chosen = features[np.arange(len(features)), reached.chosen]
    identity = np.ones(2)
    theta = identity.copy()

    def loss(theta: Array) -> float:
        gap = theta - identity
        return reached.loss(*theta) * len(features) + 0.5 * float(gap @ gap)

    for _ in range(steps):
        p = np.exp(reached.log_probs(*theta))[..., None]
        mean = (p * features).sum(axis=1)
        spread = (p * features).reshape(-1, 2).T @ features.reshape(-1, 2) - mean.T @ mean
        gradient = (mean - chosen).sum(axis=0) + (theta - identity)
        step = np.linalg.solve(spread + np.eye(2), gradient)
        scale = 1.0
        while scale > 1e-6 and loss(theta - scale * step) > loss(theta):
            scale /= 2
        theta = theta - scale * step
        if np.abs(scale * step).max() < 1e-9:
            break
    of_q, of_noise = np.maximum(theta, 1e-3).tolist()
    return of_noise / of_q, 1.0 / of_noise


def judged(reached: Reached, pair: tuple[float, float]) -> dict[str, float]:
    """What a pair says of other positions than it was fitted on."""
    fitted = 1.0 / (pair[0] * pair[1]), 1.0 / pair[1]
    return {
        "loss_before": round(reached.loss(1.0, 1.0), 4),
        "loss_after": round(reached.loss(*fitted), 4),
        "right_uncoupled": round(reached.right(1.0, 0.0), 4),
        "right_before": round(reached.right(1.0, 1.0), 4),
        "right_after": round(reached.right(*fitted), 4),
        "missed": round(reached.missed / (len(reached.chosen) + reached.missed), 4),
    }


def fit(case: Case, samples: list[Sample]) -> Found:
    """The pair of every other prompt, judged on the rest."""
    fitted, rest = positions(case, samples[::2]), positions(case, samples[1::2])
    check_halves(samples, len(fitted.chosen), len(rest.chosen))
    temper, spread = fit_coupling(fitted)
    pair = round(temper, 4), round(spread, 4)
    said = judged(rest, pair)
    shown = (
        f"{len(fitted.chosen):11d} {pair[0]:7.3f} {pair[1]:7.3f} {said['loss_before']:13.4f} "
        f"{said['loss_after']:6.4f} {said['right_uncoupled']:17.4f} {said['right_after']:6.4f}"
    )
    how = (
        f"softmax (log q / (temper T) + g) / spread of the target's token at every position that "
        f"a round reached, coupled trees of {case.method.budget} nodes, {len(samples)} held-out "
        f"prompts of at most {case.config.decoding.max_new_tokens} new tokens: fitted on every "
        "other prompt, judged on the rest"
    )
    return Found(list(pair), said, shown, how)


def main(argv: list[str] | None = None) -> int:
    parser = Parser("temper", __doc__, "--drafter drafter --data text.jsonl --out edges.json")
    add_pair_arguments(parser, TEMPERATURES)
    keys = "coupled", "coupled_judged", "coupled_how"
    header = "  positions  temper  spread   loss before  after   right uncoupled  after"
    fit_pairs(parser.parse_args(argv), keys, header, fit, "tree.coupled=true")
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
