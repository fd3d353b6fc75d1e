"""Drafters: backbone, correction heads, checkpoints, scripted stand-ins. Knows nothing about
verification.

Importing this package does not import torch, so that configuration code may.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dartree_exp.config.schema import SCRIPTED_DRAFTERS, SEEDED
from dartree_exp.errors import ConfigError

if TYPE_CHECKING:
    from dartree_exp.config.schema import DrafterConfig
    from dartree_exp.drafters.drafter import Drafter
    from dartree_exp.engines.target import Target


def load_drafter(config: DrafterConfig, target: Target) -> Drafter:
    """The drafter that a config asks for, bound to `target`.

    Raises ConfigError for settings that cannot work together, CheckpointError for a checkpoint that
    is incomplete, unknown in slot layout, or made for another target.
    """
    if config.name in SCRIPTED_DRAFTERS:
        from dartree_exp.drafters.scripted.session import ScriptedDrafter

        if config.num_drafts is None:
            raise ConfigError(
                f"drafter.num_drafts = null: drafter.name={config.name} is scripted and needs a "
                "number"
            )
        return ScriptedDrafter(config.name, target, config.num_drafts, config.seed)
    if config.num_drafts is not None:
        raise ConfigError(
            f"drafter.num_drafts = {config.num_drafts}: only scripted drafters take it; allowed: "
            "null"
        )
    if config.path is None:
        raise ConfigError(
            f"drafter.path = null: model {target.name} names no {config.name} drafter; give "
            "drafter.path=<folder>"
        )
    if config.path == SEEDED:
        from dartree_exp.drafters.dflash.toy import toy_drafter

        return toy_drafter(target, config.head, config.seed, config.name)
    from dartree_exp.drafters.dflash.checkpoint import load_drafter as load
    from dartree_exp.drafters.dflash.config import read_config
    from dartree_exp.drafters.heads.config import wrong_head
    from dartree_exp.drafters.locate import locate

    folder = locate(config.path)
    wrong = wrong_head(read_config(folder).head, config.head)
    if wrong is not None:
        raise ConfigError(f"drafter.head={config.head}: the checkpoint {folder} {wrong}")
    return load(folder, target, use_head=config.head != "none", name=config.name)
