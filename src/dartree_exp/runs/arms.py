"""The two arms of a run: plain decoding and the method, on the same prompt ids."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dartree_exp.assemble import clock_factory, load_parts, make_rule
from dartree_exp.config.methods import AR
from dartree_exp.config.schema import Config
from dartree_exp.decode import Decoded, Method, Round, autoregress, speculate
from dartree_exp.engines.target import Target
from dartree_exp.errors import UserError
from dartree_exp.inputs.digests import input_digests
from dartree_exp.prompts import Prompt
from dartree_exp.records.baseline import SharedBaseline
from dartree_exp.records.environment import cpu_description, this_code
from dartree_exp.records.schema import UNJUDGED
from dartree_exp.verify.finite import NonFiniteLogitsError
from dartree_exp.verify.lossless import Verdict, judge
from dartree_exp.verify.sampling import Sampler
from dartree_exp.verify.spec import VERIFIERS
from dartree_exp.verify.stopping import StopRule


class PromptTooLongError(UserError):
    """Prompt and answer do not fit the target's positions."""


@dataclass(frozen=True)
class Answers:
    """The answers of both arms to one prompt.

    fallback: why the prompt was decoded plainly instead of by the method. error: {"type",
    "message"} if neither arm could answer.
    """

    plain: Decoded = field(default_factory=Decoded)
    drafted: Decoded = field(default_factory=Decoded)
    verdict: Verdict = field(default_factory=lambda: Verdict(None))
    fallback: str | None = None
    error: dict[str, str] | None = None


@dataclass(frozen=True)
class Arms:
    """The target and the method of one configuration."""

    config: Config
    target: Target
    method: Method
    rule: StopRule
    clock: Callable[[], Any]
    shared: SharedBaseline | None = None
    tolerance: float = 0.0  # of near ties, in logits

    @classmethod
    def load(cls, config: Config) -> Arms:
        """Load the models of a configuration."""
        target, method = load_parts(config)
        rule, clock = make_rule(config.decoding, target), clock_factory(config, target)
        return cls(config, target, method, rule, clock)

    def encode(self, messages: list[dict[str, str]]) -> list[int]:
        """Ids of a rendered conversation."""
        return self.target.tokenizer.encode_chat(messages, self.config.decoding.enable_thinking)

    def check_length(self, ids: list[int]) -> None:
        """Raise PromptTooLongError if prompt and answer do not fit the target's positions."""
        need, have = len(ids) + self.rule.max_new_tokens, self.target.max_positions
        if need > have:
            raise PromptTooLongError(
                f"prompt of {len(ids)} ids and "
                f"decoding.max_new_tokens={self.rule.max_new_tokens} need {need} positions, "
                f"the target has {have}"
            )

    def fallback(self, ids: list[int]) -> str | None:
        """Why this prompt must be decoded plainly; None if it fits the drafter."""
        return self.method.fallback(len(ids), self.rule.max_new_tokens)

    def fitting(self, prompts: Iterable[Prompt]) -> Iterator[tuple[Prompt, list[int]]]:
        """Prompts whose first turn passes the length check, with its ids."""
        for prompt in prompts:
            ids = self.encode([{"role": "user", "content": prompt.turns[0]}])
            with suppress(PromptTooLongError):
                self.check_length(ids)
                yield prompt, ids

    def plain(
        self, ids: list[int], sampler: Sampler, on_token: Callable[[int], None] | None = None
    ) -> Decoded:
        """Plain decoding, or its stored answer if the sweep shares one. on_token: called with each
        decoded token.
        """
        digest = prompt_sha256(ids)
        stored = None if self.shared is None else self.shared.get(sampler.sample_id, digest)
        if stored is None:
            decoded = autoregress(self.target, ids, sampler, self.rule, self.clock(), on_token)
            if self.shared is None:
                return decoded
            stored = {"ids": decoded.ids, "finish": decoded.finish, "time": decoded.time}
            stored = self.shared.put(sampler.sample_id, digest, stored)
        return Decoded(stored["ids"], stored["finish"], [], stored["time"])

    def drafted(
        self, ids: list[int], sampler: Sampler, on_round: Callable[[Round], None] | None = None
    ) -> Decoded:
        """Decoding by the method. on_round: called after each round."""
        return speculate(self.target, self.method, ids, sampler, self.rule, self.clock(), on_round)

    def judge(
        self,
        ids: list[int],
        drafted: Decoded,
        plain: Decoded,
        sampler: Sampler,
        fallback: str | None,
    ) -> Verdict:
        """The verdict on the method's ids; none if its verifier draws other ids than plain
        decoding.
        """
        same_ids = VERIFIERS[self.config.verify.name].same_ids
        if self.config.method != AR and not (same_ids or sampler.greedy or fallback):
            return Verdict(UNJUDGED)
        return judge(self.target, ids, drafted.ids, plain.ids, sampler, self.rule, self.tolerance)

    def answer(self, ids: list[int], sampler: Sampler, ar_first: bool) -> Answers:
        """Decode by both arms and judge the method's ids. ar_first: plain decoding goes first."""
        plain = Decoded()
        fallback = self.fallback(ids)
        try:
            self.check_length(ids)
            if ar_first or fallback:
                plain = self.plain(ids, sampler)
            drafted = plain if fallback else self.drafted(ids, sampler)
            if not (ar_first or fallback):
                plain = self.plain(ids, sampler)
            verdict = self.judge(ids, drafted, plain, sampler, fallback)
        except (NonFiniteLogitsError, PromptTooLongError) as caught:
            # Plain decoding has no answer either, so there is no fallback.
            return Answers(plain, error={"type": type(caught).__name__, "message": str(caught)})
        return Answers(plain, drafted, verdict, fallback)


def prompt_sha256(ids: list[int]) -> str:
    """Hex digest of the rendered prompt: its ids as little-endian int64."""
    return hashlib.sha256(np.asarray(ids, dtype="<i8").tobytes()).hexdigest()


def shared_baseline(arms: Arms, sweep: Path) -> SharedBaseline:
    """The plain answers stored in a sweep's folder for this target, these settings, this machine
    and this version of the code.
    """
    config, target = arms.config, arms.target
    parts = {name: asdict(getattr(config, name)) for name in ("model", "decoding", "engine")}
    del parts["model"]["drafters"]
    inputs = {
        role: digest for role, digest in input_digests(config).items() if role.startswith("target")
    }
    made_with = {
        "inputs": inputs,
        "weights": target.weights_sha256,
        "device": str(target.device),
        "dtype": str(target.dtype),
        "cpu": cpu_description(),
        "code": this_code(),
    }
    return SharedBaseline(sweep, {**parts, "protocol": config.protocol, "made_with": made_with})
