"""Hydra's own settings: those that work here, and what to set instead of the others."""

from __future__ import annotations

from omegaconf import DictConfig

from dartree_exp.config.knobs import did_you_mean, nearest

HONOURED = (
    "hydra/launcher",
    "hydra/sweeper",
    "hydra/callbacks",
    "hydra/hydra_logging",
    "hydra/job_logging",
    "hydra.mode",
    "hydra.searchpath",
    "hydra.sweep.dir",
    "hydra.launcher",
    "hydra.sweeper",
    "hydra.callbacks",
    "hydra.job.name",
    "hydra.job.env_set",
    "hydra.job.env_copy",
    "hydra.hydra_logging",
    "hydra.job_logging",
    "hydra.verbose",
)
"""Groups and keys that work, including everything below a key."""

_INSTEAD = {
    "hydra.run.dir": "set output=FOLDER and sweep.name=NAME to choose a run's folder",
    "hydra.sweep.subdir": "run folders are named after their settings",
    "hydra.output_subdir": "every run folder contains its config.yaml",
    "hydra.job.chdir": "paths are relative to the folder that the command is started in",
}
_FIXED = {
    "hydra.job.chdir": False,
    "hydra.output_subdir": None,
    "hydra.sweep.subdir": ".",
    "hydra.run.dir": ".",
}
"""Values in `conf/config.yaml` that run folders and resuming need."""


def refusal(key: str, value: object) -> str | None:
    """One line for a setting of Hydra's that does not work here; None for one that does."""
    if key in _FIXED and value == _FIXED[key]:
        return None
    if any(key == name or key.startswith(f"{name}.") for name in HONOURED):
        return None
    close = did_you_mean(nearest(key, HONOURED)) if key not in _INSTEAD else ""
    shown = "null" if value is None else value
    return (
        f"{key}={shown}: not supported; "
        f"{_INSTEAD.get(key) or 'allowed: ' + ', '.join(HONOURED)}{close}"
    )


def composed_refusal(config: DictConfig) -> str | None:
    """`refusal` for values set in a user's own config folder. config: as Hydra composed it."""
    from omegaconf import OmegaConf

    plain = OmegaConf.to_container(config.hydra, resolve=False)
    for key, fixed in _FIXED.items():
        value: object = plain
        for part in key.split(".")[1:]:
            value = value[part]  # type: ignore[index]
        if value != fixed:
            return refusal(key, value)
    return None
