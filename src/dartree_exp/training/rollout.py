"""Answers drafted by the decode loop, with what the target computed of them on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from dartree_exp.budgets.fixed import FixedBudget
from dartree_exp.decode import Method, speculate
from dartree_exp.engines.spec import ENGINES
from dartree_exp.engines.target import Target
from dartree_exp.interfaces import RoundResult
from dartree_exp.metrics.clock import StageClock
from dartree_exp.training.batches import Captured
from dartree_exp.training.corpus import Sample
from dartree_exp.verify.sampling import Sampler
from dartree_exp.verify.stopping import StopRule


@dataclass
class Collector(FixedBudget):
    """A budget policy that verifies whole trees of one request and keeps, of the accepted paths,
    the tapped features [n, taps * H] and the final hidden states [n, H].
    """

    rounds: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def observe(self, result: RoundResult) -> None:
        path, out = result.accepted.path[0], result.forward
        assert out.features is not None
        self.rounds.append((out.features[0, path], out.hidden[0, path]))


def read_prompt(target: Target, taps: Sequence[int], ids: Sequence[int]) -> tuple[Tensor, Tensor]:
    """What a `Collector` keeps, of a prompt."""
    _, commit = ENGINES[target.engine].load()(target, [len(ids)], taps).prefill([ids])
    assert commit.features is not None
    return commit.features[0], commit.hidden[0]


def draft_answer(
    target: Target, method: Method, sample: Sample, sampler: Sampler, cap: int
) -> tuple[Captured, list[int]]:
    """The target's answer to a sample's prompt, as `capture` and `finals` would read it, with the
    positions at which rounds began; and the tokens that each round advanced.
    """
    collector, rule = Collector(), StopRule(cap, frozenset(target.eos_ids))
    watched = replace(method, policy=collector)
    answer = speculate(target, watched, sample.prompt_ids, sampler, rule, StageClock())
    first = read_prompt(target, method.drafter.target_layer_ids, sample.prompt_ids)
    rows = [torch.cat(parts) for parts in zip(first, *collector.rounds, strict=True)]
    ids = torch.tensor([*sample.prompt_ids, *answer.ids])
    # Rows behind a stop or the cap are no part of the answer; its last id may have no row.
    features, finals = (part[: len(ids)] for part in rows)
    roots = [r.start for r in answer.rounds if r.start < len(ids) - 1]
    captured = Captured(
        sample.id,
        sample.domain,
        ids,
        len(sample.prompt_ids),
        features.to(torch.bfloat16),
        finals.to(torch.bfloat16),
        torch.tensor(roots, dtype=torch.int64),
    )
    return captured, [r.tokens_advanced for r in answer.rounds]
