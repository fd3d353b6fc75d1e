"""Engines: how the rows of a round become logits. Does not import torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from dartree_exp.parts import Parts, Spec


@dataclass(frozen=True, kw_only=True)
class EngineSpec(Spec):
    """An engine. `target(model, capacities, taps)` makes one, with one request per capacity; see
    `interfaces.Engine`.

    forward: `module:Class`, the target's forward (`engines.forward.TargetForward`), made with the
    library's model. Plain decoding uses it as well.
    """

    forward: str = "dartree_exp.engines.library:LibraryForward"

    def load_forward(self) -> Any:
        """The object that `forward` names. Raises ConfigError if it cannot be imported."""
        return replace(self, target=self.forward).load()


ENGINES = Parts(
    "engine.name",
    EngineSpec(
        name="eager",
        target="dartree_exp.engines.eager:EagerEngine",
        meaning="calls the library's modules directly, one request at a time",
    ),
    EngineSpec(
        name="packed",
        target="dartree_exp.engines.eager:EagerEngine",
        forward="dartree_exp.engines.packed:PackedForward",
        meaning="our own forward of Llama and Qwen3 models, with weights packed for the CPU",
    ),
)
