"""Draft-tree speculative decoding: one loop, one clock, one lossless check for every method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dartree_exp.generation import Generation, Piece

__version__ = "0.1.0"


def generate(
    prompt: str, overrides: Sequence[str] = (), show: Callable[[Piece], None] = lambda piece: None
) -> Generation:
    """Answer one prompt with a draft tree: `dartree_exp.generate("Why is the sky blue?", ["tree.budget=32"]).text`.

    Args:
        prompt: the user's message.
        overrides: settings as on the command line, e.g. `["method=ddtree", "decoding.temperature=1"]`.
        show: called with each `Piece` of text as soon as it is known.
    Raises:
        ConfigError: a setting that is unknown, out of range or cannot work.
    """
    from dartree_exp.config import compose
    from dartree_exp.generation import Generator

    return Generator(compose(overrides))(prompt, show)
