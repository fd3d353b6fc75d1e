"""The configured drafter: a checkpoint, or random weights from a seed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dartree_exp.drafters.dflash.checkpoint import load_drafter
from dartree_exp.drafters.dflash.config import read_config
from dartree_exp.drafters.dflash.session import DFlashDrafter
from dartree_exp.drafters.heads.config import wrong_head
from dartree_exp.drafters.heads.spec import NO_HEAD
from dartree_exp.drafters.locate import locate
from dartree_exp.drafters.spec import SEEDED, DrafterSettings
from dartree_exp.errors import ConfigError

if TYPE_CHECKING:
    from dartree_exp.engines.target import Target


def load(settings: DrafterSettings, target: Target) -> DFlashDrafter:
    """Raises ConfigError for conflicting settings, CheckpointError for a checkpoint that is
    incomplete, has an unknown slot layout, or was trained for another target.
    """
    if settings.num_drafts is not None:
        raise ConfigError(
            f"drafter.num_drafts = {settings.num_drafts}: the checkpoint says it; allowed: null"
        )
    if settings.path is None:
        raise ConfigError(
            f"drafter.path = null: model {target.name} has no {settings.name} drafter; set "
            "drafter.path=<folder>"
        )
    if settings.path == SEEDED:
        from dartree_exp.drafters.dflash.toy import toy_drafter

        return toy_drafter(
            target,
            settings.head,
            settings.seed,
            settings.name,
            settings.causal,
            settings.block_size,
        )
    folder = locate(settings.path)
    config = read_config(folder)
    if config.causal != settings.causal:
        raise ConfigError(
            f"drafter.causal={str(settings.causal).lower()}: the backbone of {folder} is "
            f"{'causal' if config.causal else 'bidirectional'} in its block; use drafter.causal="
            f"{str(config.causal).lower()}"
        )
    wrong = wrong_head(config.head, settings.head)
    if wrong is not None:
        raise ConfigError(f"drafter.head={settings.head}: the checkpoint {folder} {wrong}")
    return load_drafter(
        folder,
        target,
        use_head=settings.head != NO_HEAD,
        name=settings.name,
        block_size=settings.block_size,
    )
