"""Held-out prompts of a calibration: every other one to fit, the rest to judge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dartree_exp.training.command import Parser, positive
from dartree_exp.training.corpus import Sample
from dartree_exp.training.errors import InputError
from dartree_exp.training.tau import add_prompt_arguments

if TYPE_CHECKING:
    from dartree_exp.decode import Method
    from dartree_exp.engines.target import Target
    from dartree_exp.interfaces import BudgetPolicy
    from dartree_exp.verify.sampling import Sampler


def add_halves_arguments(parser: Parser) -> None:
    """What a calibration asks of its prompts."""
    parser.add_argument(
        "--samples",
        type=positive,
        default=8,
        help="held-out prompts per domain, half of them to fit",
    )
    add_prompt_arguments(parser)


def decode_watched(
    target: Target,
    method: Method,
    policy: BudgetPolicy,
    samples: Sequence[Sample],
    cap: int,
    sampler: Callable[[Sample], Sampler],
) -> None:
    """Decode the prompts with a policy that notes what it sees of every round."""
    from dartree_exp.decode import speculate
    from dartree_exp.metrics.clock import StageClock
    from dartree_exp.verify.stopping import StopRule

    watched, rule = replace(method, policy=policy), StopRule(cap, frozenset(target.eos_ids))
    for sample in samples:
        speculate(target, watched, sample.prompt_ids, sampler(sample), rule, StageClock())


def check_halves(samples: Sequence[Sample], *rounds: int) -> None:
    """Raise InputError if a half gave no rounds. rounds: of each half."""
    if not all(rounds):
        raise InputError(
            f"{len(samples)} prompts gave no rounds to fit or none to judge; use more --samples"
        )
