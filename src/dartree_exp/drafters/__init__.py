"""Drafters: backbone, correction heads, checkpoints, scripted stand-ins. Knows nothing about
verification.

Importing this package does not import torch, so that configuration code may.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dartree_exp.drafters.spec import FAMILIES, DrafterSettings

if TYPE_CHECKING:
    from dartree_exp.engines.target import Target
    from dartree_exp.interfaces import Drafter


def load_drafter(settings: DrafterSettings, target: Target) -> Drafter:
    """The drafter that a configuration asks for, bound to `target`.

    Raises ConfigError for settings that cannot work together, CheckpointError for a checkpoint that
    is damaged or made for another target.
    """
    made: Drafter = FAMILIES[settings.family].load()(settings, target)
    return made
