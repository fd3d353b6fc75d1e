"""Hydra's own settings: which of them this program honours, and what to set instead of the
others.
"""

from __future__ import annotations

from omegaconf import DictConfig

from dartree_exp.config.knobs import did_you_mean, nearest

HONOURED = (
    *(
        "hydra/launcher",
        "hydra/sweeper",
        "hydra/callbacks",
        "hydra/hydra_logging",
        "hydra/job_logging",
    ),
    *(
        "hydra.mode",
        "hydra.searchpath",
        "hydra.sweep.dir",
        "hydra.launcher",
        "hydra.sweeper",
        "hydra.callbacks",
    ),
    *(
        "hydra.job.name",
        "hydra.job.env_set",
        "hydra.job.env_copy",
        "hydra.hydra_logging",
        "hydra.job_logging",
    ),
    "hydra.verbose",
)
"""Groups, keys, and keys whose inner keys are honoured as well."""

_INSTEAD = {
    "hydra.run.dir": "output=FOLDER and sweep.name=NAME say where runs land",
    "hydra.sweep.subdir": "run folders are named by what they hold",
    "hydra.output_subdir": "a run folder has its config.yaml",
    "hydra.job.chdir": "runs work in the folder they are started in; paths mean what they mean "
    "there",
}
_FIXED = {
    "hydra.job.chdir": False,
    "hydra.output_subdir": None,
    "hydra.sweep.subdir": ".",
    "hydra.run.dir": ".",
}
"""Values that folders and resuming rely on (`conf/config.yaml`)."""


def refusal(key: str, value: object) -> str | None:
    """One line for a setting of Hydra's that has no effect here, or the wrong one; None for one
    that is honoured.
    """
    if key in _FIXED and value == _FIXED[key]:
        return None
    if any(key == name or key.startswith(f"{name}.") for name in HONOURED):
        return None
    close = did_you_mean(nearest(key, HONOURED)) if key not in _INSTEAD else ""
    shown = "null" if value is None else value
    return (
        f"{key}={shown}: not honoured; "
        f"{_INSTEAD.get(key) or 'of hydra only ' + ', '.join(HONOURED)}{close}"
    )


def composed_refusal(config: DictConfig) -> str | None:
    """The same for what a file of a user's own folder set; `config` as Hydra composed it."""
    from omegaconf import OmegaConf

    plain = OmegaConf.to_container(config.hydra, resolve=False)
    for key, fixed in _FIXED.items():
        value: object = plain
        for part in key.split(".")[1:]:
            value = value[part]  # type: ignore[index]
        if value != fixed:
            return refusal(key, value)
    return None
