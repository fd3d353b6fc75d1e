"""The scorer of a round without drafts."""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch import Tensor

from dartree_exp.interfaces import Commit


class NoDrafts:
    """A `Scorer` without depths, of which every builder makes the bare root."""

    num_drafts, path_dependent = 0, False

    def __init__(self, root: Tensor) -> None:
        """root: int64 [*R]."""
        self.root = root

    @classmethod
    def after(cls, commit: Commit) -> NoDrafts:
        """Of the round that begins with these roots."""
        return cls(torch.tensor(commit.roots, device=commit.ids.device))

    def start(self) -> None:
        return None

    def _none(self, *arguments: Any) -> NoReturn:
        raise IndexError("a round without drafts has no depths")

    candidates = score = best = top = advance = _none

    def finite(self) -> Tensor:
        return torch.ones_like(self.root, dtype=torch.bool)

    def fault(self, request: int) -> str:
        return "no drafts"

    def one(self, request: int) -> NoDrafts:
        return NoDrafts(self.root[request])
