"""The text of each request of a loop, for drafters that read committed ids."""

from __future__ import annotations

from collections.abc import Sequence

from dartree_exp.interfaces import Commit


class Texts:
    """Prompt and committed ids of each request, the root last."""

    def __init__(self, prompts: Sequence[Sequence[int]]) -> None:
        self.ids = [list(prompt) for prompt in prompts]

    def read(self, commit: Commit) -> None:
        for r, (text, length) in enumerate(zip(self.ids, commit.lengths, strict=True)):
            if length:  # the request goes on
                rows = commit.ids[r, :length].tolist()
                text[commit.start[r] - length :] = [*rows, commit.roots[r]]
