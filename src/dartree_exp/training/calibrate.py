"""Calibrate a drafter's confidence head: `python -m dartree_exp.training.calibrate --drafter FOLDER
--data TEXT --out FILE`.

Held-out prompts are decoded greedily with whole blocks (DSpark's chain); every round gives the
confidences of its drafts and how many were accepted. Temperatures are fitted on every other prompt
and judged on the rest, so that the improvement that is printed is not the fit's own. They are
written to `--out`; as `calibration.json` in the drafter's folder they are read when it is loaded.
"""

from __future__ import annotations

import sys
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
    fit_temperatures,
    reliability,
    survival,
    survived,
)
from dartree_exp.training.tau import head_kind, held_out_prompts

if TYPE_CHECKING:
    from dartree_exp.decode import Method
    from dartree_exp.engines.target import Target
    from dartree_exp.interfaces import DraftTree, RoundResult, RoundView


@dataclass
class Recorder(FixedBudget):
    """A budget policy that verifies everything and notes what the confidence head, uncalibrated,
    said of each round.
    """

    logits: list[list[float]] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)

    def trim(self, view: RoundView, tree: DraftTree, scorer: Any) -> DraftTree:
        hidden, before = scorer.table.hidden[0], tree.tokens[0, :-1]
        self.logits.append(scorer.confidence_head(hidden, before).float().tolist())
        return tree

    def observe(self, result: RoundResult) -> None:
        self.accepted.append(len(result.accepted.tokens[0]))


def record(
    target: Target, method: Method, samples: list[Sample], cap: int
) -> tuple[Array, np.ndarray]:
    """Confidence logits float64 [R, D] and accepted drafts int64 [R] of all rounds of the prompts,
    decoded greedily.

    method: a chain of whole blocks.
    """
    from dartree_exp.verify.sampling import Sampler

    recorder = Recorder()
    decode_watched(target, method, recorder, samples, cap, lambda sample: Sampler())
    return np.array(recorder.logits).reshape(-1, method.depth), np.array(
        recorder.accepted, dtype=np.int64
    )


def judge(logits: Array, accepted: np.ndarray, temperatures: Array) -> list[float]:
    """ECE of the survival to each depth."""
    predicted, happened = survival(logits, temperatures), survived(accepted, logits.shape[1])
    return [
        round(expected_calibration_error(p, h), 4)
        for p, h in zip(predicted.T, happened.T, strict=True)
    ]


def draw(path: Path, logits: Array, accepted: np.ndarray, temperatures: Array) -> None:
    """Reliability diagram (PNG) of the survival to all depths together, before and after."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.2), layout="constrained")
    depths = logits.shape[1]
    happened = survived(accepted, depths).ravel()
    for axes, title, scale in zip(
        figure.subplots(1, 2, sharey=True),
        ("as trained", "calibrated"),
        (np.ones(depths), temperatures),
        strict=True,
    ):
        predicted = survival(logits, scale).ravel()
        x, y, counts = reliability(predicted, happened)
        axes.plot([0, 1], [0, 1], color="0.7", linewidth=1)
        axes.scatter(x, y, s=12 + 200 * counts / counts.max())
        error = expected_calibration_error(predicted, happened)
        axes.set(
            title=f"{title}: ECE {100 * error:.1f} %",
            xlabel="predicted survival",
            xlim=(0, 1),
            ylim=(0, 1),
        )
    figure.axes[0].set_ylabel("share of rounds that survived")
    figure.savefig(path, dpi=120)


def calibrate(
    fitted_on: tuple[Array, np.ndarray], judged_on: tuple[Array, np.ndarray]
) -> tuple[Array, dict[str, Any]]:
    """Temperatures [D] from one set of rounds, and what they do to another."""
    temperatures = fit_temperatures(*fitted_on)
    as_trained = np.ones_like(temperatures)
    predicted = survival(judged_on[0], as_trained)
    report = {
        "rounds": {"fitted": len(fitted_on[1]), "judged": len(judged_on[1])},
        "bins": BINS,
        "ece_noise": [round(calibration_noise(p), 4) for p in predicted.T],
        "ece_before": judge(*judged_on, as_trained),
        "ece_after": judge(*judged_on, temperatures),
    }
    return temperatures, report


def main(argv: list[str] | None = None) -> int:
    parser = Parser(
        "calibrate", __doc__, "--drafter drafter --data text.jsonl --out calibration.json"
    )
    add_halves_arguments(parser)
    parser.add_argument(
        "--out", type=output_file, required=True, help="write the temperatures here (JSON)"
    )
    parser.add_argument(
        "--diagram",
        type=output_file,
        help="write a reliability diagram (PNG) of the judged prompts here",
    )
    args = parser.parse_args(argv)

    from dartree_exp.assemble import load_parts
    from dartree_exp.config import compose
    from dartree_exp.drafters.heads.calibration import write_temperatures
    from dartree_exp.drafters.heads.spec import HEADS

    folder = args.drafter.resolve()
    kind = head_kind(folder)
    if kind not in HEADS or not HEADS[kind].confident:
        raise InputError(f"--drafter {folder}: head {kind} has no confidence head to calibrate")
    chain = ["method=dspark", f"drafter.path={folder}", f"drafter.head={kind}", "budget=fixed"]
    config = compose([*chain, "engine.dtype=fp32", f"engine.threads={args.threads}", *args.set])
    samples = held_out_prompts(args)
    target, method = load_parts(config)
    if getattr(method.drafter, "confidence", None) is None:
        raise InputError(f"--drafter {folder}: no confidence head to calibrate")
    if method.depth != method.drafter.num_drafts or method.budget < method.depth:
        raise InputError(
            "tree.depth and tree.budget: a calibration needs whole blocks of "
            f"{method.drafter.num_drafts}"
        )
    parts = [record(target, method, samples[start::2], args.cap) for start in (0, 1)]
    check_halves(samples, *(len(accepted) for _, accepted in parts))
    temperatures, report = calibrate(parts[0], parts[1])
    report["how"] = (
        f"Sequential Temperature Scaling on {len(samples)} held-out prompts, T = 0, at most "
        f"{args.cap} new tokens: "
        "temperatures from every other prompt, ECE of the survival to each depth on the rest; "
        "noise: what a perfectly "
        "calibrated head would show on as many rounds"
    )
    write_temperatures(args.out, folder, [round(t, 4) for t in temperatures.tolist()], report)
    print("depth  temperature  ECE before  ECE after  noise")
    columns = (temperatures, report["ece_before"], report["ece_after"], report["ece_noise"])
    for depth, row in enumerate(zip(*columns, strict=True), start=1):
        print(f"{depth:5d}  {row[0]:11.3f}  {row[1]:10.4f}  {row[2]:9.4f}  {row[3]:5.4f}")
    if args.diagram:
        draw(args.diagram, *parts[1], temperatures)
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
