"""Drafters: backbone, correction heads, checkpoints, scripted drafters. Independent of
verification.

Importing this package does not import torch; configuration code imports it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dartree_exp.drafters.spec import FAMILIES, DrafterSettings

if TYPE_CHECKING:
    from dartree_exp.engines.target import Target
    from dartree_exp.interfaces import Drafter


def load_drafter(settings: DrafterSettings, target: Target) -> Drafter:
    """The configured drafter, bound to `target`.

    Raises ConfigError for conflicting settings, CheckpointError for a checkpoint that is damaged or
    was trained for another target.
    """
    made: Drafter = FAMILIES[settings.family].load()(settings, target)
    return made
