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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dartree_exp.budgets.fixed import FixedBudget
from dartree_exp.training.command import Parser, output_file, run
from dartree_exp.training.corpus import Sample
from dartree_exp.training.errors import InputError
from dartree_exp.training.halves import add_halves_arguments, check_halves, decode_watched
from dartree_exp.training.reliability import (
    BINS,
    Array,
    calibration_noise,
    expected_calibration_error,
    fit_platt,
)
from dartree_exp.training.tau import head_kind, held_out_prompts
from dartree_exp.trees.spec import OWN, SCORERS

if TYPE_CHECKING:
    from dartree_exp.config.schema import Config
    from dartree_exp.decode import Method
    from dartree_exp.engines.target import Target
    from dartree_exp.interfaces import DraftTree, RoundResult

CALIBRATED = tuple(name for name in SCORERS if name not in ("static", OWN))
"""`static` is only used in an ablation."""
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


def record(target: Target, method: Method, config: Config, samples: list[Sample]) -> Edges:
    """The trees of all rounds of the prompts."""
    from dartree_exp.assemble import make_sampler

    edges, how = Edges(), config.decoding
    cap = how.max_new_tokens
    decode_watched(target, method, edges, samples, cap, lambda s: make_sampler(how, s.id))
    return edges


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


def usual_scorers(folder: Path) -> list[str]:
    """Those that the drafter's head can serve."""
    from dartree_exp.drafters.heads.spec import HEADS

    head = HEADS[head_kind(folder)]
    return [
        name
        for name, scorer in ((name, SCORERS[name]) for name in CALIBRATED)
        if (head.last_token or not scorer.last_token)
        and (not scorer.corrects or head.mixture == scorer.mixture)
    ]


def configurations(args: Any, scorers: Sequence[str]) -> Iterator[tuple[str, float, Config]]:
    """(scorer, temperature, configuration) of every pair to fit."""
    from dartree_exp.config import compose
    from dartree_exp.drafters.heads.spec import HEADS

    folder = args.drafter.resolve()
    for scorer in scorers:
        kind = head_kind(folder)
        parts = (
            ["method=ddtree"]
            if scorer == "marginal"
            else [
                f"drafter={HEADS[kind].drafter}",
                f"tree.scoring={scorer}",
                "tree=pruned",
                "tree.budget=64",
            ]
        )
        for temperature in args.temperatures:
            given = [
                f"drafter.path={folder}",
                f"engine.threads={args.threads}",
                f"decoding.temperature={temperature}",
                f"decoding.max_new_tokens={args.cap}",
            ]
            yield scorer, temperature, compose([*parts, *given, *args.set])


def main(argv: list[str] | None = None) -> int:
    parser = Parser("edges", __doc__, "--drafter drafter --data text.jsonl --out edges.json")
    add_halves_arguments(parser)
    parser.add_argument(
        "--scorers",
        nargs="+",
        choices=CALIBRATED,
        help="scorers to calibrate; none: all that it has",
    )
    parser.add_argument(
        "--temperatures",
        nargs="+",
        type=float,
        default=list(TEMPERATURES),
        help="temperatures of the target",
    )
    parser.add_argument(
        "--out",
        type=output_file,
        required=True,
        help="write the pairs here (JSON); pairs that it has of the same weights stay",
    )
    args = parser.parse_args(argv)

    import torch

    from dartree_exp.assemble import make_method
    from dartree_exp.drafters import load_drafter
    from dartree_exp.drafters.heads.edges import stored_edges, write_edges
    from dartree_exp.models.registry import load_target

    folder = args.drafter.resolve()
    headless = head_kind(folder) == "none"
    if headless and "conditional" in (args.scorers or ()):
        raise InputError(f"--scorers conditional: {folder} has no correction head")
    scorers = args.scorers or (["marginal"] if headless else usual_scorers(args.drafter.resolve()))
    samples = held_out_prompts(args)
    torch.set_num_threads(args.threads)
    stored = stored_edges(args.out, folder)
    target: Target | None = None
    print("scorer       T   prompts      a       b   ECE before  after  noise  predicted  accepted")
    for scorer, temperature, config in configurations(args, scorers):
        target = target or load_target(config.model, config.engine)
        method = make_method(config.tree, config.budget, load_drafter(config.drafter, target))
        fitted, rest = (record(target, method, config, samples[start::2]) for start in (0, 1))
        check_halves(samples, len(fitted.rounds), len(rest.rounds))
        pair = [round(x, 4) for x in fit_platt(*fitted.seen())]
        said = judged(rest, pair)
        key = f"{temperature:g}"
        stored["pairs"].setdefault(scorer, {})[key] = pair
        stored["judged"].setdefault(scorer, {})[key] = said
        print(
            f"{scorer:11s} {temperature:3g} {len(samples):9d} {pair[0]:6.3f} {pair[1]:7.3f} "
            f"{said['ece_before']:12.4f} {said['ece_after']:6.4f} {said['ece_noise']:6.4f} "
            f"{said['tokens_predicted']:10.3f} {said['tokens_accepted']:9.3f}",
            flush=True,
        )
        stored["how"] = (
            f"sigmoid(a logit(q) + b) of edges whose parent was accepted, trees of "
            f"{method.budget} nodes, {len(samples)} held-out prompts of at most {args.cap} new "
            f"tokens: fitted on every other prompt; ECE ({BINS} bins) of the chance of each node "
            "of a tree to lie on the accepted path on the rest"
        )
        write_edges(args.out, folder, stored["pairs"], {k: stored[k] for k in ("judged", "how")})
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
