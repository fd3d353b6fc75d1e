"""Validation by the decoding path: acceptance of a drafter on held-out prompts, `python -m
dartree_exp.training.tau`.

Training-time accuracy visits every anchor; decoding visits only the ones where a round starts, and
uses the cache, the tree and the verification for real. This is the number that counts. The first
`--samples` held-out samples of each domain are decoded by each method at each temperature; output
must be the target's own, which is checked.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from dartree_exp.errors import RunError
from dartree_exp.training.command import Parser, output_file, positive, run
from dartree_exp.training.corpus import Sample, load_samples, split_holdout
from dartree_exp.training.errors import InputError

if TYPE_CHECKING:
    from dartree_exp.engines.target import Target

METHODS = ("dflash", "domino", "ddtree", "dartree_fixed", "dartree_pruned")
FAMILY, FULL = "dflash", "gru"
TEMPERATURES = (0.0, 1.0)


def first_of_each(samples: list[Sample], count: int) -> list[Sample]:
    """The first `count` samples of each domain, in order."""
    left = dict.fromkeys((s.domain for s in samples), count)
    chosen = []
    for sample in samples:
        if left[sample.domain] > 0:
            left[sample.domain] -= 1
            chosen.append(sample)
    return chosen


def add_prompt_arguments(parser: Parser) -> None:
    """What a command that decodes held-out prompts asks, but for the number of them (`--samples`,
    per domain).
    """
    parser.shared("drafter", "data", "holdout", "seed", "threads", "set")
    parser.add_argument("--cap", type=positive, default=128, help="new tokens per prompt")


def held_out_prompts(args: argparse.Namespace) -> list[Sample]:
    """The prompts these arguments choose."""
    _, held = split_holdout(load_samples(args.data), args.holdout, args.seed)
    return first_of_each(held, args.samples)


def survival(advanced: list[int], depth: int) -> list[float]:
    """Share of rounds whose accepted path reaches depth 1..depth; `advanced` counts the bonus token
    too.
    """
    return [
        round(sum(a > d for a in advanced) / max(1, len(advanced)), 4) for d in range(1, depth + 1)
    ]


def presets(drafter: Path) -> Sequence[str]:
    """Presets of conf/method that decode with an exported drafter: those published for its family
    and its head; for a GRU head, of which there are many, and for one without any, `METHODS`.
    """
    from dartree_exp.budgets.spec import BUDGETS
    from dartree_exp.drafters.dflash.config import read_config
    from dartree_exp.training.exported import family_of
    from dartree_exp.trees.spec import TREES

    family, kind, causal, length = family_of(drafter), head_kind(drafter), False, False
    if family == FAMILY:
        config = read_config(drafter)
        causal, length = config.causal, config.length_width is not None
    fitting = {
        name: entry.head
        for tree in TREES.values()
        for name, entry in tree.published.items()
        if entry.family == family
        and entry.head in ("none", kind)
        and entry.causal == causal
        and (length or not all(BUDGETS[budget].length for budget in entry.budgets))
    }
    return METHODS if kind == FULL or kind not in fitting.values() else list(fitting)


def head_kind(drafter: Path) -> str:
    """The kind of a checkpoint's correction head, or none."""
    from dartree_exp.drafters.dflash.config import read_config
    from dartree_exp.training.exported import family_of

    if family_of(drafter) != FAMILY:
        return "none"
    head = read_config(drafter).head
    return "none" if head is None else head.kind


class Validator:
    """One target, its plain text for each sample at a temperature, and methods on it."""

    def __init__(
        self,
        drafter: Path,
        samples: list[Sample],
        cap: int,
        threads: int,
        settings: Sequence[str] = (),
        temperature: float = 0.0,
        target: Target | None = None,
    ) -> None:
        """target: loaded before, with the same settings."""
        from dartree_exp.assemble import make_sampler
        from dartree_exp.config import compose
        from dartree_exp.decode import autoregress
        from dartree_exp.metrics.clock import StageClock
        from dartree_exp.models.registry import load_target
        from dartree_exp.verify.stopping import StopRule

        torch.set_num_threads(threads)
        self.samples = samples
        self.overrides = [
            f"drafter.path={drafter}",
            "engine.dtype=fp32",
            f"decoding.max_new_tokens={cap}",
            f"decoding.temperature={temperature}",
            *settings,
        ]
        self.head = head_kind(drafter)
        config = compose(self.overrides)
        self.target = target or load_target(config.model, config.engine)
        self.rule = StopRule(cap, frozenset(self.target.eos_ids))
        self.samplers = [make_sampler(config.decoding, s.id) for s in samples]
        self.plain = [
            autoregress(self.target, s.prompt_ids, sampler, self.rule, StageClock()).ids
            for s, sampler in zip(samples, self.samplers, strict=True)
        ]

    def measure(self, method: str) -> dict:
        """tau (mean over prompts of the prompt's mean: `tau_macro`) per domain and over all,
        rounds, survival per depth.

        A domain whose answers all end with their first token has no tau. Raises InputError where
        that holds for all.
        """
        from dartree_exp.assemble import make_method
        from dartree_exp.config import compose
        from dartree_exp.decode import speculate
        from dartree_exp.drafters import load_drafter
        from dartree_exp.metrics.clock import StageClock

        config = compose([f"+method={method}", *self.overrides])
        if (
            config.drafter.head != "none"
        ):  # presets name a published drafter; this one may have another head
            config = compose([f"+method={method}", *self.overrides, f"drafter.head={self.head}"])
        drafter = load_drafter(config.drafter, self.target)
        parts = make_method(config.tree, config.budget, drafter)
        means: dict[str, list[float]] = {}
        advanced: list[int] = []
        differing = 0
        for sample, sampler, plain in zip(self.samples, self.samplers, self.plain, strict=True):
            answer = speculate(
                self.target, parts, sample.prompt_ids, sampler, self.rule, StageClock()
            )
            differing += answer.ids != plain
            counts = [r.tokens_advanced for r in answer.rounds]
            if counts:
                means.setdefault(sample.domain, []).append(sum(counts) / len(counts))
            advanced += counts
        pooled = [m for part in means.values() for m in part]
        if not pooled:
            raise InputError(
                "no prompt gave a round to count: every answer ends with its first token"
            )
        tau = {"all": sum(pooled) / len(pooled)} | {
            d: sum(m) / len(m) for d, m in sorted(means.items())
        }
        return {
            "method": config.method,
            "temperature": config.decoding.temperature,
            "tau": {k: round(v, 4) for k, v in tau.items()},
            "rounds": len(advanced),
            "survival": survival(advanced, parts.depth),
            "differing": differing,
        }


def main(argv: list[str] | None = None) -> int:
    parser = Parser(
        "tau", __doc__, "--drafter drafter --data text.jsonl --samples 4 --out validation.json"
    )
    parser.add_argument(
        "--methods",
        nargs="+",
        help="presets of conf/method to decode with; none: its family's and head's",
    )
    parser.add_argument(
        "--temperatures", nargs="+", type=float, default=list(TEMPERATURES), help="of the target"
    )
    parser.add_argument("--samples", type=positive, default=4, help="held-out prompts per domain")
    add_prompt_arguments(parser)
    parser.add_argument("--out", type=output_file, help="write JSON here, for the card")
    args = parser.parse_args(argv)
    samples, folder = held_out_prompts(args), args.drafter.resolve()
    rows, target = [], None
    for temperature in args.temperatures:
        validator = Validator(
            folder, samples, args.cap, args.threads, args.set, temperature, target
        )
        target = validator.target
        for method in args.methods or presets(folder):
            row = validator.measure(method)
            rows.append(row)
            print(
                f"{method}, T = {temperature:g}: {row['tau']} rounds {row['rounds']} differing "
                f"{row['differing']}",
                flush=True,
            )
    how = (
        f"tau (tokens advanced per round, bonus included; mean over prompts) on {len(samples)} "
        "held-out prompts, "
        f"at most {args.cap} new tokens, float32, by the decode loop with each method's preset; "
        "every output was compared "
        "with plain decoding."
    )
    if args.out:
        from dartree_exp.records.files import write_json
        from dartree_exp.training.exported import weights_of

        domains, prompts = sorted({s.domain for s in samples}), [s.id for s in samples]
        measured = {
            "how": how,
            "prompts": prompts,
            "weights": weights_of(args.drafter),
            "domains": domains,
            "rows": rows,
        }
        write_json(args.out, measured)
    if wrong := [f"{row['method']} ({row['differing']})" for row in rows if row["differing"]]:
        raise RunError(f"outputs that differ from plain decoding: {', '.join(wrong)}")
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
