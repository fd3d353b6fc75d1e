"""The decode loop of every method: draft -> build -> verify -> commit -> stop.

    x <- prompt;  root <- target's first token
    while not stopped:
        scorer <- drafter(rows committed last, root), unless drafting rests    draft
        tree   <- builder(scorer, budget)                                      build
        rows   <- tree nodes and the drafter's probes, tree mask               mask
        p      <- target(rows)                                                 verify
        path, bonus <- follow the child equal to the target's own draw         verify
        keep the rows of path;  x <- x + path + bonus;  root <- bonus          commit

The root is the last committed token; it is not yet in the target's cache. `start` is its absolute
position.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from dartree_exp.engines.target import Target
from dartree_exp.interfaces import (
    NO_OVERHEAD,
    Block,
    BudgetPolicy,
    Builder,
    Commit,
    Drafter,
    DraftTree,
    Draws,
    Engine,
    Limits,
    Opening,
    Overhead,
    RoundResult,
    RoundView,
    Scorer,
    Verifier,
)
from dartree_exp.metrics.clock import StageClock
from dartree_exp.verify.finite import NonFiniteLogitsError, check_finite
from dartree_exp.verify.sampling import RoundDraws, Sampler
from dartree_exp.verify.stopping import Answer, StopRule


@dataclass(frozen=True)
class Round:
    """One round of one request. Times are seconds by stage; `tokens_advanced` includes the bonus
    token (the unit of tau).
    """

    index: int
    start: int
    tree: DraftTree  # without request axis
    accepted: list[int]  # node indices, root first
    accepted_tokens: list[int]  # drafts on the path, root excluded
    bonus: int
    emitted: int
    time: dict[str, float]

    @property
    def tokens_advanced(self) -> int:
        return len(self.accepted)


@dataclass
class Decoded:
    """One answer: ids after the prompt, why it ended, its rounds, and times in seconds."""

    ids: list[int] = field(default_factory=list)
    finish: str | None = None
    rounds: list[Round] = field(default_factory=list)
    # StageClock.times(): prefill, decode and its stages
    time: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Method:
    """The parts of a method."""

    drafter: Drafter
    scoring: Callable[[Block, Commit, Draws], Scorer]  # makes the configured scorer of a block
    builder: Builder
    policy: BudgetPolicy
    verify: Verifier
    engine: Callable[[Target, Sequence[int], Sequence[int]], Engine]  # (target, capacities, taps)
    budget: int  # `tree.budget`, or its cap
    max_rows: int  # most rows of a verification forward, root and probes included
    depth_limit: int | None = None
    cost: Callable[[int], float] = lambda rows: float("nan")  # rows -> seconds; unmeasured: NaN
    overhead: Overhead = NO_OVERHEAD

    @property
    def depth(self) -> int:
        """Drafts per round: the drafter's, or the configured limit if smaller."""
        return min(self.drafter.num_drafts, self.depth_limit or self.drafter.num_drafts)

    def fallback(self, prompt_length: int, max_new_tokens: int) -> str | None:
        """Why a prompt of this length must be decoded plainly: it does not fit the drafter's
        positions. None if it fits.
        """
        need = prompt_length + max_new_tokens + self.drafter.block_size
        if need <= self.drafter.max_positions:
            return None
        return (
            f"prompt of {prompt_length} ids needs {need} positions, the drafter has "
            f"{self.drafter.max_positions}"
        )


@dataclass(frozen=True)
class Request:
    """One prompt to decode, with its sampler and stop rule."""

    prompt: Sequence[int]
    sampler: Sampler
    rule: StopRule


def speculate(
    target: Target,
    method: Method,
    prompt_ids: Sequence[int],
    sampler: Sampler,
    rule: StopRule,
    clock: StageClock,
    on_round: Callable[[Round], None] | None = None,
) -> Decoded:
    """Decode one prompt by draft trees; with an exact verifier the ids are plain decoding's.

    Raises:
        NonFiniteLogitsError: NaN or infinite target or draft logits.
    """
    request = Request(prompt_ids, sampler, rule)
    return speculate_all(target, method, [request], clock, lambda _, r: on_round and on_round(r))[0]


@torch.inference_mode()
def speculate_all(
    target: Target,
    method: Method,
    requests: Sequence[Request],
    clock: StageClock,
    on_round: Callable[[int, Round], object] = lambda request, round_: None,
) -> list[Decoded]:
    """Decode R requests in one loop; nothing is committed for a request that has ended. The clock
    times the loop, so all answers have the same times.

    Raises:
        NonFiniteLogitsError: NaN or infinite target or draft logits.
    """
    samplers = [request.sampler for request in requests]
    answers = [Answer(request.rule) for request in requests]
    rounds: list[list[Round]] = [[] for _ in requests]
    taps = method.drafter.target_layer_ids
    # A request that waits for others may have committed a path beyond its cap.
    waiting = method.depth if len(requests) > 1 else 0
    room = [len(r.prompt) + r.rule.max_new_tokens + method.max_rows + waiting for r in requests]
    engine = method.engine(target, room, taps)
    opening = Opening([r.prompt for r in requests], samplers, method.scoring, clock.lend)
    session = method.drafter.open(opening)
    limits, index = Limits(method.depth, method.budget), 0
    temperatures = tuple(sampler.temperature for sampler in samplers)
    drawn: dict[tuple[int, int], np.ndarray] = {}

    with clock.prefill():
        logits, commit = engine.prefill(opening.prompts)
        draws = RoundDraws(samplers, tuple(start - 1 for start in commit.start))
        for r in range(len(requests)):
            check_finite(logits[r], "target", draws.where(r))
        roots = tuple(draws.target(r, logits[r], depth=1) for r in range(len(requests)))
        commit = replace(commit, roots=roots)
    for answer, root in zip(answers, roots, strict=True):
        answer.push([root])

    clock.start()
    while any(active := [answer.finish is None for answer in answers]):
        draws = RoundDraws(samplers, commit.start, index, drawn)
        view = RoundView(index, commit.start, limits, method.cost, method.overhead, temperatures)
        with clock.stage("draft"):
            drafts = method.policy.drafts(view)
            scorer = session.draft(commit, draws) if drafts else session.skip(commit)
        with clock.stage("build"):
            tree = method.builder.build(scorer, method.policy.plan(view, scorer), draws)
            tree = method.policy.trim(view, tree, scorer)
        with clock.stage("mask"):
            rows = engine.rows(tree, session.probes(tree))
        with clock.stage("verify"):
            out = engine.forward(rows)
            check_proposal(tree, method.verify)
            accepted = method.verify(tree, out.verify_logits, draws, scorer.finite())
            check_drafts(scorer, accepted.healthy, method.drafter.name, draws)
        with clock.stage("commit"):
            session.after(accepted, out)
            commit = engine.commit(out, accepted, active)
            emitted = [
                answer.push([*drafts, bonus])
                for answer, drafts, bonus in zip(
                    answers, accepted.tokens, accepted.bonus, strict=True
                )
            ]
        commit = commit.of([answer.finish is None for answer in answers])
        time = clock.end_round()
        method.policy.observe(RoundResult(tree, accepted, out, time))
        for r in (r for r, was_active in enumerate(active) if was_active):
            round_ = Round(
                index,
                view.start[r],
                tree.one(r),
                accepted.paths[r],
                accepted.tokens[r],
                accepted.bonus[r],
                emitted[r],
                time,
            )
            rounds[r].append(round_)
            on_round(r, round_)
        index += 1
    times = clock.stop()
    return [
        Decoded(answer.ids, answer.finish, own, times)
        for answer, own in zip(answers, rounds, strict=True)
    ]


def check_proposal(tree: DraftTree, verify: Verifier) -> None:
    """Raise ValueError for a tree of a proposal that the verifier is not correct for."""
    if tree.proposal not in verify.proposals:
        raise ValueError(
            f"verifier {type(verify).__name__}: the tree's proposal is {tree.proposal!r};"
            f" allowed: {', '.join(verify.proposals)}"
        )


def check_drafts(scorer: Scorer, healthy: Sequence[bool], drafter: str, draws: Draws) -> None:
    """Raise `NonFiniteLogitsError` for draft logits that are not finite."""
    for r, fine in enumerate(healthy):
        if not fine:
            raise NonFiniteLogitsError(f"{scorer.fault(r)} (drafter {drafter!r}, {draws.where(r)})")


@torch.inference_mode()
def autoregress(
    target: Target,
    prompt_ids: Sequence[int],
    sampler: Sampler,
    rule: StopRule,
    clock: StageClock,
    on_token: Callable[[int], None] | None = None,
) -> Decoded:
    """Lean plain decoding, the baseline of every speedup: one token per step, no taps, no other
    outputs.
    """
    cache = target.new_cache(len(prompt_ids) + rule.max_new_tokens)
    answer = Answer(rule)

    def emit(token: int) -> None:
        if answer.push([token]) and on_token is not None:
            on_token(token)

    def where() -> str:
        return f"round {len(answer.ids)}, sample {sampler.sample_id!r}"

    with clock.prefill():
        logits = target.prefill(prompt_ids, cache, ()).logits[-1]
        check_finite(logits, "target", where())
        token, position = sampler.choose(logits, len(prompt_ids)), len(prompt_ids)
    emit(token)

    clock.start()
    while answer.finish is None:
        logits = target.step(token, cache)
        check_finite(logits, "target", where())
        position += 1
        token = sampler.choose(logits, position)
        emit(token)
    return Decoded(answer.ids, answer.finish, [], clock.stop())
