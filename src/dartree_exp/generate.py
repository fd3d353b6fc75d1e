"""One answer to one prompt, streamed round by round, without benchmark, baseline or records.

From Python: `from dartree_exp.generate import generate`, then `generate("Why is the sky blue?",
["tree.budget=32"]).text`. From a shell: `python -m dartree_exp.generate "your prompt" [overrides]`
streams the answer with accepted drafts highlighted.

Models and torch are imported when a Generator is made, so `--help` and errors take no time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dartree_exp.config import Config
    from dartree_exp.decode import Round


@dataclass(frozen=True)
class Piece:
    """New text, and whether it is an accepted draft (else the target's own token)."""

    text: str
    drafted: bool


@dataclass(frozen=True)
class Generation:
    """A finished answer. `tau`: tokens advanced per round, bonus included; None without rounds."""

    text: str
    ids: list[int]
    finish: str
    tau: float | None
    rounds: int
    seconds: float  # decode time without prefill
    fallback: str | None = None
    exact: bool = True  # the verifier preserves the target's distribution

    @property
    def tokens_per_second(self) -> float | None:
        return (
            (len(self.ids) - 1) / self.seconds if self.seconds > 0 and len(self.ids) > 1 else None
        )


class _Streamer:
    """Turns ids into pieces; bytes of an incomplete character wait for the next token."""

    def __init__(
        self, decode: Callable[[Sequence[int]], str], show: Callable[[Piece], None]
    ) -> None:
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
        from dartree_exp.budgets.spec import BUDGETS
        from dartree_exp.runs.arms import Arms

        self._arms = Arms.load(config)
        self._measured = "costs" not in BUDGETS[str(config.budget.name)].reads

    def _measure(self, ids: list[int]) -> None:
        """What a round costs, for a budget that follows it; once, on the first prompt that fits."""
        from dataclasses import replace

        from dartree_exp.assemble import make_sampler
        from dartree_exp.runs.costs import round_costs, with_costs

        arms, sampler = self._arms, make_sampler(self._arms.config.decoding, "warm-up")
        parts = arms.target, arms.method, ids, sampler, arms.clock
        round_costs(*parts, repeats=1)  # the first pass is not used
        method = with_costs(arms.method, round_costs(*parts, repeats=3), arms.config.budget)
        self._arms, self._measured = replace(arms, method=method), True

    def __call__(
        self, prompt: str, show: Callable[[Piece], None] = lambda piece: None
    ) -> Generation:
        """Answer a user message.

        Args:
            show: called with each piece of text as soon as it is known.
        Raises:
            PromptTooLongError: prompt and answer do not fit the target's positions.
        """
        from dartree_exp.assemble import make_sampler

        arms, decode = self._arms, self._arms.target.tokenizer.decode
        ids = arms.encode([{"role": "user", "content": prompt}])
        arms.check_length(ids)
        sampler = make_sampler(arms.config.decoding, "generate")
        streamer = _Streamer(decode, show)
        fallback = arms.fallback(ids)
        if fallback is None:
            if not self._measured:
                self._measure(ids)
                arms = self._arms
            first = True

            def on_round(r: Round) -> None:
                nonlocal first
                root = [int(r.tree.tokens[0])] if first else []
                first = False
                drafts = r.accepted_tokens[: r.emitted]
                streamer.push(root, 0)
                streamer.push([*drafts, r.bonus][: r.emitted], len(drafts))

            decoded = arms.drafted(ids, sampler, on_round)
            if first:  # the prefill's token ended the answer
                streamer.push(decoded.ids, 0)
        else:
            decoded = arms.plain(ids, sampler, lambda token: streamer.push([token], 0))
        return Generation(
            text=decode(decoded.ids),
            ids=decoded.ids,
            finish=str(decoded.finish),
            tau=mean(r.tokens_advanced for r in decoded.rounds) if decoded.rounds else None,
            rounds=len(decoded.rounds),
            seconds=decoded.time["decode"],
            fallback=fallback,
            exact=arms.method.verify.exact or fallback is not None,
        )


def generate(
    prompt: str, overrides: Sequence[str] = (), show: Callable[[Piece], None] = lambda piece: None
) -> Generation:
    """Answer one prompt with a draft tree.

    Args:
        prompt: the user's message.
        overrides: settings as on the command line, e.g. `["method=ddtree",
            "decoding.temperature=1"]`.
        show: called with each `Piece` of text as soon as it is known.
    Raises:
        ConfigError: a setting that is unknown, out of range or cannot work.
        PromptTooLongError: prompt and answer do not fit the target's positions.
    """
    from dartree_exp.config import compose

    return Generator(compose(overrides))(prompt, show)


def main() -> int:
    """Exit status: 0, or 2 for a mistake in the prompt or a setting."""
    from dartree_exp.errors import UserError

    arguments = sys.argv[1:]
    if {"-h", "--help"} & set(arguments):
        from dartree_exp.console.help import generate_help_text

        print(generate_help_text())
        return 0
    if not arguments:
        print(
            'usage: python -m dartree_exp.generate "your prompt" [key=value ...]   (see --help)',
            file=sys.stderr,
        )
        return 2
    prompt, overrides = arguments[0], arguments[1:]
    if not prompt.strip():
        print("generate: the prompt is empty", file=sys.stderr)
        return 2
    from rich.console import Console
    from rich.text import Text

    from dartree_exp.console.printable import printable

    console = Console(highlight=False, soft_wrap=True)
    try:

        def show(piece: Piece) -> None:
            console.print(Text(printable(piece.text), "green" if piece.drafted else ""), end="")

        result = generate(prompt, overrides, show)
    except UserError as error:
        print(f"generate: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    console.print()
    speed = (
        ""
        if result.tokens_per_second is None
        else f", {result.tokens_per_second:.1f} tok/s after the first token"
    )
    shape = (
        f"tau {result.tau:.2f} over {result.rounds} rounds"
        if result.tau is not None
        else "no rounds"
    )
    console.print(
        f"[dim]{len(result.ids)} tokens, {shape}{speed}, finish: {result.finish}; green: accepted "
        "drafts[/dim]"
    )
    if not result.exact:
        console.print("[dim]LOSSY: the verifier does not preserve the target's distribution[/dim]")
    if result.fallback:
        console.print(f"[dim]plain decoding was used: {result.fallback}[/dim]")
    return 0


if __name__ == "__main__":
    from dartree_exp.console.closed_pipe import survive_closed_pipe

    with survive_closed_pipe():
        status = main()
    sys.exit(status)
