"""`python -m dartree_exp.generate "your prompt" [overrides]`: stream one answer, accepted drafts highlighted.

Only run as a script; `dartree_exp.generate(...)` is the function.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dartree_exp.generation import Piece


def main() -> int:
    """Exit status: 0, or 2 for a mistake in the prompt or a setting."""
    from dartree_exp.errors import UserError

    arguments = sys.argv[1:]
    if {"-h", "--help"} & set(arguments):
        from dartree_exp.help import generate_help_text

        print(generate_help_text())
        return 0
    if not arguments:
        print(
            'usage: python -m dartree_exp.generate "your prompt" [key=value ...]   (--help says more)', file=sys.stderr
        )
        return 2
    prompt, overrides = arguments[0], arguments[1:]
    if not prompt.strip():
        print("generate: the prompt is empty", file=sys.stderr)
        return 2
    from rich.console import Console
    from rich.text import Text

    from dartree_exp.terminal import printable

    console = Console(highlight=False, soft_wrap=True)
    try:
        from dartree_exp import generate

        def show(piece: Piece) -> None:
            console.print(Text(printable(piece.text), "green" if piece.drafted else ""), end="")

        result = generate(prompt, overrides, show)
    except UserError as error:
        print(f"generate: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    console.print()
    speed = "" if result.tokens_per_second is None else f", {result.tokens_per_second:.1f} tok/s after the first token"
    shape = f"tau {result.tau:.2f} over {result.rounds} rounds" if result.tau is not None else "no rounds"
    console.print(
        f"[dim]{len(result.ids)} tokens, {shape}{speed}, finish: {result.finish}; green: accepted drafts[/dim]"
    )
    if result.fallback:
        console.print(f"[dim]plain decoding was used: {result.fallback}[/dim]")
    return 0


if __name__ == "__main__":
    from dartree_exp.closed_pipe import survive_closed_pipe

    with survive_closed_pipe():
        status = main()
    sys.exit(status)
