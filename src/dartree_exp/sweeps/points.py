"""The points of a sweep before any of them starts: their settings and errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, Override
from hydra.utils import get_class
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from dartree_exp.config.composition import COMPOSITION_ERRORS, explain
from dartree_exp.config.load import load_config
from dartree_exp.config.schema import Config
from dartree_exp.config.validate import check_folder_name
from dartree_exp.errors import ConfigError
from dartree_exp.inputs.checks import check_files

_OF_THE_SWEEP = ("output", "sweep")
"""Settings that cannot be swept: `finish` reads the outcomes of one folder only."""


@dataclass(frozen=True)
class Point:
    """One point: its index in the sweep, its overrides, and its settings or (`refusal`) why they
    are invalid.

    composed: False if Hydra cannot compose the settings; its sweeper would stop at such a point.
    """

    number: int
    overrides: list[str]
    config: Config | None
    refusal: str = ""
    composed: bool = True


@dataclass(frozen=True)
class Planned:
    """The `count` points that a sweeper will start: `points`, or for a search the points that were
    checked instead.
    """

    points: list[Point]
    count: int
    search: bool


def sweep_folder_of(config: DictConfig) -> Path:
    """The folder of the sweep that Hydra composed; ConfigError for an invalid name."""
    if not config.output:
        raise ConfigError("output=: must name a folder")
    name = config.sweep.name
    if name is not None:
        check_folder_name("sweep.name", str(name))
    folder = Path(str(config.hydra.sweep.dir))
    if name is None or folder.name != str(name):
        check_folder_name("hydra.sweep.dir", str(folder), folder.name)
    return folder


def load_point(raw: DictConfig, overrides: list[str], sweep_dir: Path) -> Config:
    """The checked settings of one point, with the sweep's name. Raises ConfigError."""
    raw.sweep.name = sweep_dir.name
    config = load_config(raw, overrides)
    check_files(config)
    return config


def task_overrides(hydra: Any) -> list[str]:
    """The settings of the command line as typed, with `${...}` unresolved."""
    typed: Any = OmegaConf.to_container(hydra.overrides.task, resolve=False)
    return list(typed)


def all_points(config: DictConfig, sweep_dir: Path) -> Planned:
    """The points that Hydra's sweeper will start, each checked.

    A search proposes its points one after the other. There each swept value is checked once, an
    interval at its ends, with the first value of all other keys.
    """
    loader = GlobalHydra.instance().config_loader()
    swept = _swept(config, loader)
    for override in swept:
        if (
            override.is_sweep_override()
            and override.key_or_group.partition(".")[0] in _OF_THE_SWEEP
        ):
            raise ConfigError(
                f"{override.input_line}: a sweep has one {override.key_or_group}; give one value"
            )
    sweeper: Any = get_class(config.hydra.sweeper._target_)
    search = not hasattr(sweeper, "split_arguments")
    combinations = (
        list(_one_at_a_time(swept)) if search else sweeper.split_arguments(swept, None)[0]
    )
    before = HydraConfig.instance().cfg
    try:
        points = [
            _point(number, list(c), config, loader, sweep_dir)
            for number, c in enumerate(combinations)
        ]
    finally:
        HydraConfig.instance().cfg = before
    return Planned(points, int(config.hydra.sweeper.n_trials) if search else len(points), search)


def apart(overrides: Sequence[str], shared: set[str]) -> str:
    """The overrides of a point without the `shared` ones."""
    return " ".join(text for text in overrides if text not in shared)


def shared_by(all_overrides: Sequence[Sequence[str]]) -> set[str]:
    """The overrides that every point has; none if there is only one point."""
    return set.intersection(*map(set, all_overrides)) if len(all_overrides) > 1 else set()


def _swept(config: DictConfig, loader: ConfigLoader) -> list[Override]:
    """An experiment's own sweep and the command line's settings, which override it."""
    params = [f"{key}={value}" for key, value in (config.hydra.sweeper.get("params") or {}).items()]
    parser = OverridesParser.create(config_loader=loader)
    return list(
        {
            o.get_key_element(): o
            for o in parser.parse_overrides([*params, *task_overrides(config.hydra)])
        }.values()
    )


def _one_at_a_time(swept: Sequence[Override]) -> Iterator[list[str]]:
    values = [
        [f"{override.get_key_element()}={value}" for value in _values(override)]
        for override in swept
    ]
    first = [texts[0] for texts in values]
    yield first
    for place, texts in enumerate(values):
        yield from ([*first[:place], text, *first[place + 1 :]] for text in texts[1:])


def _values(override: Override) -> list[Any]:
    value = override.value()
    if isinstance(value, IntervalSweep):
        return [value.start, value.end]
    if override.is_sweep_override():
        return list(override.sweep_string_iterator())
    return [override.get_value_element_as_str()]


def _point(
    number: int, overrides: list[str], master: DictConfig, loader: ConfigLoader, sweep_dir: Path
) -> Point:
    try:
        raw = loader.load_sweep_config(master, overrides)
        HydraConfig.instance().set_config(raw)  # settings may refer to ${hydra:...}
        with read_write(raw), open_dict(raw):
            del raw["hydra"]
        return Point(number, overrides, load_point(raw, overrides, sweep_dir))
    except ConfigError as error:
        return Point(number, overrides, None, str(error))
    except COMPOSITION_ERRORS as error:
        return Point(number, overrides, None, explain(error, overrides), composed=False)
