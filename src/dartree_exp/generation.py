"""One answer to one prompt, streamed round by round: the loop without benchmark, baseline or records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean

from dartree_exp.assemble import clock_factory, load_parts, make_rule, make_sampler
from dartree_exp.config import Config
from dartree_exp.decode import Decoded, Round, autoregress, speculate


@dataclass(frozen=True)
class Piece:
    """Text that became known, and whether it came from an accepted draft (else: the target's own token)."""

    text: str
    drafted: bool


@dataclass(frozen=True)
class Generation:
    """A finished answer. `tau` is tokens advanced per round, bonus included; None without a round."""

    text: str
    ids: list[int]
    finish: str
    tau: float | None
    rounds: int
    seconds: float  # decode time, prefill apart
    fallback: str | None = None

    @property
    def tokens_per_second(self) -> float | None:
        return (len(self.ids) - 1) / self.seconds if self.seconds > 0 and len(self.ids) > 1 else None


class _Streamer:
    """Turns ids into pieces; bytes of an unfinished character wait for the next token."""

    def __init__(self, decode: Callable[[Sequence[int]], str], show: Callable[[Piece], None]) -> None:
        self._decode, self._show = decode, show
        self._ids: list[int] = []
        self._shown = 0

    def push(self, tokens: Sequence[int], drafted: int) -> None:
        """Show tokens; the first `drafted` of them are accepted drafts."""
        for index, token in enumerate(tokens):
            self._ids.append(token)
            text = self._decode(self._ids)
            if text.endswith("\ufffd"):
                continue
            if text[self._shown :]:
                self._show(Piece(text[self._shown :], index < drafted))
            self._shown = len(text)


class Generator:
    """A loaded target and method that answer prompts, one at a time."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.target, self.method = load_parts(config)
        self._rule = make_rule(config.decoding, self.target)
        self._clock = clock_factory(config, self.target)

    def __call__(self, prompt: str, show: Callable[[Piece], None] = lambda piece: None) -> Generation:
        """Answer a user message.

        Args:
            show: called with each piece of text as soon as it is known.
        """
        messages = [{"role": "user", "content": prompt}]
        ids = self.target.tokenizer.encode_chat(messages, self.config.decoding.enable_thinking)
        sampler = make_sampler(self.config.decoding, "generate")
        streamer = _Streamer(self.target.tokenizer.decode, show)
        fallback = self.method.fallback(len(ids), self._rule.max_new_tokens)
        decoded: Decoded
        if fallback is None:
            first = True

            def on_round(r: Round) -> None:
                nonlocal first
                root = [int(r.tree.tokens[0])] if first else []
                first = False
                drafts = r.accepted_tokens[: r.emitted]
                streamer.push(root, 0)
                streamer.push([*drafts, r.bonus][: r.emitted], len(drafts))

            decoded = speculate(self.target, self.method, ids, sampler, self._rule, self._clock(), on_round)
            if first:  # the prefill's token ended the answer
                streamer.push(decoded.ids, 0)
        else:
            decoded = autoregress(self.target, ids, sampler, self._rule, self._clock(), lambda t: streamer.push([t], 0))
        return Generation(
            text=self.target.tokenizer.decode(decoded.ids),
            ids=decoded.ids,
            finish=str(decoded.finish),
            tau=mean(r.tokens_advanced for r in decoded.rounds) if decoded.rounds else None,
            rounds=len(decoded.rounds),
            seconds=decoded.time["decode"],
            fallback=fallback,
        )
