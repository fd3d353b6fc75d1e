"""What a published method fixes of a tree. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ALWAYS_FREE = ("budget", "depth")


@dataclass(frozen=True)
class SameAs:
    """A published setting that equals another knob of the tree."""

    knob: str


PLAIN = {
    "beta": 0,
    "children": None,
    "child_order": "base",
    "narrow_by_budget": False,
    "candidates_follow_budget": False,
    "draft_sampling": "argmax",
    "expansion": "best",
    "draft_temperature": None,
    "latent": "summed",
    "coupled": False,
}
"""The values of knobs in a published method that does not set them."""


@dataclass(frozen=True)
class Published:
    """The settings of a published method, besides its tree.

    settings: knobs of the tree that the publication fixes, besides the `PLAIN` ones. free: knobs
    that may vary under the name, because the publication varies them or because they change no
    draft; `depth` and the number `budget` are always free. Every knob that the tree and the scorer
    read is in one of the three. budgets: the budget policies that the method may have. causal:
    whether the backbone is causal in its block. head, scoring, family: None for any, and then
    causal is not looked at.
    """

    head: str | None
    scoring: str | None
    settings: Mapping[str, Any] = field(default_factory=dict)
    free: tuple[str, ...] = ()
    budgets: tuple[str, ...] = ("fixed",)
    family: str | None = "dflash"
    causal: bool = False
    verify: str = "exact"

    @property
    def fixed(self) -> dict[str, Any]:
        return {**{k: v for k, v in PLAIN.items() if k not in self.free}, **self.settings}

    @property
    def free_knobs(self) -> tuple[str, ...]:
        return (*ALWAYS_FREE, *self.free)
