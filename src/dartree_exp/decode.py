"""The decode loop, one for every method: draft -> build -> verify -> commit -> stop.

    x <- prompt;  root <- target's first token
    while not stopped:
        block <- drafter(features of the tokens committed last, root)          draft
        tree  <- builder(scorer(block), root, budget)                          build
        p     <- target(tree nodes | tree mask)                                mask, verify
        path, bonus <- follow the child equal to the target's own draw         verify
        keep the rows of path;  x <- x + path + bonus;  root <- bonus          commit

The root is the last committed token; it is not yet in the target's cache. `start` is its absolute
position.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from dartree_exp.budgets.policy import BudgetPolicy, RoundState
from dartree_exp.drafters.block import Block
from dartree_exp.drafters.drafter import Drafter
from dartree_exp.engines.target import Target
from dartree_exp.metrics.clock import StageClock
from dartree_exp.trees.builder import Builder
from dartree_exp.trees.masks import position_ids, tree_mask
from dartree_exp.trees.scorer import Draw, Scorer
from dartree_exp.trees.tree import DraftTree
from dartree_exp.verify.sampling import DraftDraws, Sampler
from dartree_exp.verify.scores import check_scores
from dartree_exp.verify.stopping import Answer, StopRule
from dartree_exp.verify.walk import check_finite, verify_tree


@dataclass(frozen=True)
class Round:
    """What one round did. Times are seconds by stage; `tokens_advanced` includes the bonus token
    (tau's unit).
    """

    index: int
    start: int
    tree: DraftTree
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
    time: dict[str, float] = field(
        default_factory=dict
    )  # StageClock.times(): prefill, decode and its stages


@dataclass(frozen=True)
class Method:
    """The small parts a method is made of."""

    drafter: Drafter
    scorer: Callable[[Block, int, Draw], Scorer]  # (block, root, draws of this round)
    builder: Builder
    budget: BudgetPolicy
    max_budget: int
    depth_limit: int | None = None

    @property
    def depth(self) -> int:
        """Drafts per round: the drafter's, or the configured limit if smaller."""
        return min(self.drafter.num_drafts, self.depth_limit or self.drafter.num_drafts)

    def fallback(self, prompt_length: int, max_new_tokens: int) -> str | None:
        """Why plain decoding must take a prompt of so many ids: the drafter's positions end too
        early. None: it fits.
        """
        need = prompt_length + max_new_tokens + self.drafter.block_size
        if need <= self.drafter.max_positions:
            return None
        return (
            f"prompt of {prompt_length} ids needs {need} positions, the drafter has "
            f"{self.drafter.max_positions}"
        )


@torch.inference_mode()
def speculate(
    target: Target,
    method: Method,
    prompt_ids: list[int],
    sampler: Sampler,
    rule: StopRule,
    clock: StageClock,
    on_round: Callable[[Round], None] | None = None,
) -> Decoded:
    """Decode one prompt by draft trees; the ids are plain decoding's (see `verify/walk.py`).

    Raises:
        NonFiniteLogitsError: NaN or infinite target or draft logits.
    """
    taps = method.drafter.target_layer_ids
    cache = target.new_cache(len(prompt_ids) + rule.max_new_tokens + method.max_budget + 1)
    session = method.drafter.session(prompt_ids, sampler)
    answer = Answer(rule)

    rounds: list[Round] = []

    with clock.prefill():
        out = target.prefill(prompt_ids, cache, taps)
        check_finite(out.logits, "target", 0, sampler.sample_id)
        root, start, features = (
            sampler.choose(out.logits[-1], len(prompt_ids)),
            len(prompt_ids),
            out.features,
        )
    answer.push([root])

    clock.start()
    while answer.finish is None:
        index = len(rounds)
        with clock.stage("draft"):
            block = session.propose(features, root, start)
            check_finite(block.logits, "draft", index, sampler.sample_id)
        with clock.stage("build"):
            state = RoundState(index, start, block)
            scorer = method.scorer(block, root, DraftDraws(sampler, start))
            tree = method.builder.build(scorer, root, method.depth, method.budget.plan(state))
            tree = method.budget.trim(state, tree)
        with clock.stage("mask"):
            mask, positions = tree_mask(tree, start, target.dtype), position_ids(tree, start)
        with clock.stage("verify"):
            out = target.verify(tree.tokens, positions, mask, cache, taps)
            path, bonus = verify_tree(tree, out.logits, sampler, start, index)
            check_scores(
                scorer, method.drafter, index, sampler.sample_id
            )  # here, where the device has been waited for
        with clock.stage("commit"):
            rows = torch.tensor(path, device=tree.tokens.device)
            cache.keep(start, start + rows)
            features = None if out.features is None else out.features[rows]
            drafts = tree.tokens[rows[1:]].tolist()
            emitted = answer.push([*drafts, bonus])
        round_ = Round(index, start, tree, path, drafts, bonus, emitted, clock.end_round())
        start, root = start + len(path), bonus
        rounds.append(round_)
        method.budget.observe(round_)
        if on_round is not None:
            on_round(round_)
    return Decoded(answer.ids, answer.finish, rounds, clock.stop())


@torch.inference_mode()
def autoregress(
    target: Target,
    prompt_ids: list[int],
    sampler: Sampler,
    rule: StopRule,
    clock: StageClock,
    on_token: Callable[[int], None] | None = None,
) -> Decoded:
    """Lean plain decoding, the baseline of every speedup: one token a step, no taps, no other
    outputs.
    """
    cache = target.new_cache(len(prompt_ids) + rule.max_new_tokens)
    answer = Answer(rule)

    def emit(token: int) -> None:
        if answer.push([token]) and on_token is not None:
            on_token(token)

    with clock.prefill():
        logits = target.prefill(prompt_ids, cache, ()).logits[-1]
        check_finite(logits, "target", 0, sampler.sample_id)
        token, position = sampler.choose(logits, len(prompt_ids)), len(prompt_ids)
    emit(token)

    clock.start()
    while answer.finish is None:
        logits = target.step(token, cache)
        check_finite(logits, "target", len(answer.ids), sampler.sample_id)
        position += 1
        token = sampler.choose(logits, position)
        emit(token)
    return Decoded(answer.ids, answer.finish, [], clock.stop())
