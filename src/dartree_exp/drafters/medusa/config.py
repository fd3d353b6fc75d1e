"""The checked `config.json` of Medusa heads. Does not import torch.

The released file has `medusa_num_heads`, `medusa_num_layers` and `base_model_name_or_path`; sizes
are those of the target. Our own addition: `medusa_shared_lm_head`, for heads that use the target's
vocabulary head.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dartree_exp.drafters.values import CheckpointError, check_size, flag, read_checked, shown


@dataclass(frozen=True)
class MedusaConfig:
    """medusa_num_heads: at least so many heads are stored. medusa_num_layers: residual blocks of a
    head. medusa_shared_lm_head: the blocks are followed by the target's lm_head, not by their own.
    """

    medusa_num_heads: int
    medusa_num_layers: int = 1
    medusa_shared_lm_head: bool = False
    base_model_name_or_path: str | None = None

    head = None  # no correction head

    def __post_init__(self) -> None:
        check_size("medusa_num_heads", self.medusa_num_heads)
        check_size("medusa_num_layers", self.medusa_num_layers)
        flag("medusa_shared_lm_head", self.medusa_shared_lm_head)
        name = self.base_model_name_or_path
        if name is not None and not isinstance(name, str):
            raise CheckpointError(f"base_model_name_or_path = {shown(name)}: must be a string")

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> MedusaConfig:
        """Parse a `config.json`. Raises CheckpointError for missing or wrong values."""
        if raw.get("medusa_num_heads") is None:
            raise CheckpointError("medusa_num_heads: missing from config.json")
        keys = ("medusa_num_layers", "medusa_shared_lm_head", "base_model_name_or_path")
        given = {key: raw[key] for key in keys if raw.get(key) is not None}
        return cls(raw["medusa_num_heads"], **given)

    def to_json(self) -> dict[str, Any]:
        """The `config.json`; the shared head is only named where there is one."""
        found: dict[str, Any] = {
            "medusa_num_heads": self.medusa_num_heads,
            "medusa_num_layers": self.medusa_num_layers,
            "base_model_name_or_path": self.base_model_name_or_path,
        }
        return found | ({"medusa_shared_lm_head": True} if self.medusa_shared_lm_head else {})


def read_config(folder: Path) -> MedusaConfig:
    """The `config.json` of a folder. Raises CheckpointError with the folder and the reason."""
    return read_checked(folder, MedusaConfig.from_json)
