"""Engines: how the rows of a round become logits. Does not import torch."""

from __future__ import annotations

from dataclasses import dataclass

from dartree_exp.parts import Parts, Spec


@dataclass(frozen=True, kw_only=True)
class EngineSpec(Spec):
    """An engine. `target(model, capacities, taps)` makes one, with one request per capacity; see
    `interfaces.Engine`.
    """


ENGINES = Parts(
    "engine.name",
    EngineSpec(
        name="eager",
        target="dartree_exp.engines.eager:EagerEngine",
        meaning="calls the library's modules directly, one request at a time",
    ),
)
