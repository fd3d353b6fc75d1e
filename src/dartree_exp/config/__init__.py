"""Configuration: the schema of every setting, its checks and its hash. Imports neither torch nor
transformers.
"""

from __future__ import annotations

from collections.abc import Sequence

from dartree_exp.config.identity import config_hash
from dartree_exp.config.schema import (
    BenchmarkConfig,
    BudgetConfig,
    Config,
    DecodingConfig,
    DrafterConfig,
    EngineConfig,
    ModelConfig,
    SweepConfig,
    TrackerConfig,
    TreeConfig,
    VerifyConfig,
)

__all__ = [
    "BenchmarkConfig",
    "BudgetConfig",
    "Config",
    "DecodingConfig",
    "DrafterConfig",
    "EngineConfig",
    "ModelConfig",
    "SweepConfig",
    "TrackerConfig",
    "TreeConfig",
    "VerifyConfig",
    "compose",
    "config_hash",
]


def compose(overrides: Sequence[str] = ()) -> Config:
    """The checked configuration of `python -m dartree_exp <overrides>`.

    Raises ConfigError with a one-line message.
    """
    from dartree_exp.config.composition import make_config  # here, because Hydra imports slowly

    return make_config(overrides)
