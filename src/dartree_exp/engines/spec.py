"""Engines: how the rows of a round become logits (torch-free)."""

from __future__ import annotations

from dataclasses import dataclass

from dartree_exp.parts import Parts, Spec


@dataclass(frozen=True, kw_only=True)
class EngineSpec(Spec):
    """An engine. `target(model, capacities, taps)` serves that many requests; see
    `interfaces.Engine`.
    """


ENGINES = Parts(
    "engine.name",
    EngineSpec(
        name="eager",
        target="dartree_exp.engines.eager:EagerEngine",
        meaning="the library's modules called directly, one request after the other",
    ),
)
