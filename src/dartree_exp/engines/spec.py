"""Engines: how the rows of a round become logits (torch-free)."""

from __future__ import annotations

from dataclasses import dataclass

from dartree_exp.parts import Parts, Spec


@dataclass(frozen=True, kw_only=True)
class EngineSpec(Spec):
    """An engine."""


ENGINES = Parts(
    "engine.name",
    EngineSpec(
        name="eager",
        target="dartree_exp.engines.target:Target",
        meaning="the library's modules, one request, called directly",
    ),
)
