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
    from dartree_exp.interfaces import BudgetPolicy, DraftTree, RoundResult

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


def chosen_scorers(args: Any) -> list[str]:
    """Those of `--scorers`, or all that the drafter has. Raises InputError for one that needs a
    head that it lacks.
    """
    folder = args.drafter.resolve()
    if head_kind(folder) != "none":
        return args.scorers or usual_scorers(folder)
    if "conditional" in (args.scorers or ()):
        raise InputError(f"--scorers conditional: {folder} has no correction head")
    return args.scorers or ["marginal"]


@dataclass(frozen=True)
class Case:
    """A scorer and a temperature of the target, with what decodes for them."""

    scorer: str
    temperature: float
    target: Target
    method: Method
    config: Config

    def decode(self, policy: BudgetPolicy, samples: Sequence[Sample]) -> None:
        """Decode the prompts with a policy that notes what it sees of every round."""
        from dartree_exp.assemble import make_sampler

        how, method = self.config.decoding, self.method
        decode_watched(
            *(self.target, method, policy, samples, how.max_new_tokens),
            lambda sample: make_sampler(how, sample.id),
        )


def cases(args: Any, *settings: str) -> Iterator[Case]:
    """Every pair to fit: trees of the drafter at the temperatures of the arguments, without what
    was fitted to it before. settings: further ones.
    """
    from dartree_exp.assemble import make_method
    from dartree_exp.config import compose
    from dartree_exp.drafters import load_drafter
    from dartree_exp.drafters.dflash.session import DFlashDrafter
    from dartree_exp.drafters.heads.spec import HEADS
    from dartree_exp.models.registry import load_target

    folder, target = args.drafter.resolve(), None
    for scorer in chosen_scorers(args):
        parts = (
            ["method=ddtree"]
            if scorer == "marginal"
            else [
                f"drafter={HEADS[head_kind(folder)].drafter}",
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
            config = compose([*parts, *given, *settings, *args.set])
            target = target or load_target(config.model, config.engine)
            drafter = load_drafter(config.drafter, target)
            if isinstance(drafter, DFlashDrafter):
                drafter.edge_pairs = drafter.coupled_pairs = {}
            method = make_method(config.tree, config.budget, drafter)
            yield Case(scorer, temperature, target, method, config)


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

    from dartree_exp.drafters.heads.edges import stored_edges, write_edges

    folder, samples = args.drafter.resolve(), held_out_prompts(args)
    torch.set_num_threads(args.threads)
    stored = stored_edges(args.out, folder)
    print("scorer       T   prompts      a       b   ECE before  after  noise  predicted  accepted")
    for case in cases(args):
        fitted, rest = Edges(), Edges()
        case.decode(fitted, samples[::2])
        case.decode(rest, samples[1::2])
        check_halves(samples, len(fitted.rounds), len(rest.rounds))
        pair = [round(x, 4) for x in fit_platt(*fitted.seen())]
        said, key = judged(rest, pair), f"{case.temperature:g}"
        stored["pairs"].setdefault(case.scorer, {})[key] = pair
        stored["judged"].setdefault(case.scorer, {})[key] = said
        print(
            f"{case.scorer:11s} {case.temperature:3g} {len(samples):9d} {pair[0]:6.3f} "
            f"{pair[1]:7.3f} {said['ece_before']:12.4f} {said['ece_after']:6.4f} "
            f"{said['ece_noise']:6.4f} {said['tokens_predicted']:10.3f} "
            f"{said['tokens_accepted']:9.3f}",
            flush=True,
        )
        stored["how"] = (
            f"sigmoid(a logit(q) + b) of edges whose parent was accepted, trees of "
            f"{case.method.budget} nodes, {len(samples)} held-out prompts of at most {args.cap} "
            f"new tokens: fitted on every other prompt; ECE ({BINS} bins) of the chance of each "
            "node of a tree to lie on the accepted path on the rest"
        )
        write_edges(args.out, folder, stored)
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
