"""Hydra's composition of `conf/`, with its errors turned into one line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_module
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dartree_exp.config import hydra_settings
from dartree_exp.config.knobs import did_you_mean, knobs, nearest, nearest_key
from dartree_exp.config.load import load_config
from dartree_exp.config.schema import Config
from dartree_exp.errors import ConfigError

CONFIG_MODULE = "dartree_exp.conf"
CONFIG_NAME = "config"
VERSION_BASE = "1.3"
COMPOSITION_ERRORS = (HydraException, OmegaConfBaseException, ValueError)
"""What Hydra raises for settings it cannot compose."""
_EXTRAS = {
    "hydra/launcher/joblib": "joblib",
    "hydra/launcher/submitit_local": "cluster",
    "hydra/launcher/submitit_slurm": "cluster",
    "hydra/sweeper/optuna": "optuna",
}
"""Hydra plugins that `conf/hydra/` uses, and the extra of this package that installs each."""


@dataclass(frozen=True)
class Program:
    """A program's top file in `conf/`, and its schema."""

    name: str
    schema: type

    def groups(self) -> set[str]:
        """The groups that its defaults list names."""
        file = files(CONFIG_MODULE) / f"{self.name}.yaml"
        defaults = OmegaConf.create(file.read_text(encoding="utf-8")).defaults
        return {str(key) for entry in defaults if entry != "_self_" for key in entry}


MAIN = Program(CONFIG_NAME, Config)


def make_config(overrides: Sequence[str] = ()) -> Config:
    """The checked configuration of `python -m dartree_exp <overrides>`.

    Raises ConfigError with a one-line message.
    """
    overrides = normalise(overrides)
    return load_config(composed(overrides), overrides)


def composed(
    overrides: Sequence[str], program: Program = MAIN, config_dirs: Sequence[Path] = ()
) -> DictConfig:
    """Normalised overrides, composed by Hydra. Raises ConfigError with a one-line message."""
    # Checked before Hydra looks for a file of that name: the name may be too long for one.
    mistake = first_mistake(overrides, config_dirs, program)
    if mistake is not None:
        raise ConfigError(mistake)
    places = ",".join(f"file://{folder.resolve()}" for folder in config_dirs)
    search = [f"hydra.searchpath=[{places}]"] if places else []
    try:
        with initialize_config_module(CONFIG_MODULE, version_base=VERSION_BASE):
            return compose(program.name, [*overrides, *search])
    except COMPOSITION_ERRORS as error:
        raise ConfigError(explain(error, overrides, config_dirs, program)) from error


def groups(config_dirs: Sequence[Path] = (), program: Program = MAIN) -> dict[str, list[str]]:
    """The options of each of a program's groups, in the package and in further folders
    (`--config-dir`). Shared files (`_shared`) are left out.
    """
    found: dict[str, set[str]] = {}
    others = {
        folder.name for folder in files(CONFIG_MODULE).iterdir() if folder.is_dir()
    } - program.groups()
    for root in (files(CONFIG_MODULE), *(folder for folder in config_dirs if folder.is_dir())):
        for folder in root.iterdir():
            if folder.is_dir() and folder.name not in others:
                names = (file.name for file in folder.iterdir())
                options = {
                    name[: -len(".yaml")]
                    for name in names
                    if name.endswith(".yaml") and name[0] != "_"
                }
                found.setdefault(folder.name, set()).update(options)
    return {name: sorted(options) for name, options in sorted(found.items())}


def hydra_groups() -> dict[str, list[str]]:
    """The options of `hydra/launcher` and `hydra/sweeper`: Hydra's `basic` and this package's."""
    root = files(CONFIG_MODULE) / "hydra"
    found = {}
    for folder in root.iterdir():
        names = [
            file.name[: -len(".yaml")] for file in folder.iterdir() if file.name.endswith(".yaml")
        ]
        found[f"hydra/{folder.name}"] = ["basic", *sorted(names)]
    return dict(sorted(found.items()))


def first_comment(group: str, option: str, config_dirs: Sequence[Path] = ()) -> str:
    """The first comment line in an option's file: its description."""
    places = [folder / group / f"{option}.yaml" for folder in (*config_dirs, files(CONFIG_MODULE))]
    file = next(place for place in places if place.is_file())
    comments = [
        line.lstrip("# ")
        for line in file.read_text(encoding="utf-8").splitlines()
        if line.startswith("#") and not line.startswith("# @")
    ]
    return comments[0] if comments else ""


def normalise(
    overrides: Sequence[str], config_dirs: Sequence[Path] = (), program: Program = MAIN
) -> list[str]:
    """Overrides with `+method=ddtree` as `method=ddtree` (for every group) and `glob(...)`
    expanded to the options it matches.
    """
    known = groups(config_dirs, program)
    plain = [
        text[1:] if text.startswith("+") and text[1:].partition("=")[0] in known else text
        for text in overrides
    ]
    return [_expanded(text, known) if "=glob(" in text else text for text in plain]


def _expanded(text: str, options: dict[str, list[str]]) -> str:
    """`tree=glob(f*)` as `tree=fixed,frontier`; unchanged if it is no glob or matches nothing.

    Hydra's own glob would also match `_shared`.
    """
    try:
        override = OverridesParser.create().parse_override(text)
    except HydraException:
        return text
    pattern, key = override.value(), override.key_or_group
    names: list[str] = pattern.filter(options.get(key, [])) if isinstance(pattern, Glob) else []
    return f"{key}={','.join(names)}" if names else text


def first_mistake(
    overrides: Sequence[str], config_dirs: Sequence[Path] = (), program: Program = MAIN
) -> str | None:
    """One line for the first override that cannot be parsed or names an unknown option or key;
    None if there is none.
    """
    options = groups(config_dirs, program)
    parser = OverridesParser.create()
    for text in overrides:
        try:
            override = parser.parse_override(text)
        except HydraException:
            return (
                f"{text}: cannot be parsed; write key=value, and quote values with special "
                "characters: 'key=\"a, b\"'"
            )
        for message in _refusals(override, text, options, program.schema):
            return message
    return None


def explain(
    error: Exception,
    overrides: Sequence[str],
    config_dirs: Sequence[Path] = (),
    program: Program = MAIN,
) -> str:
    """One line for Hydra's error: the mistake in the overrides, else the first line of Hydra's
    message.
    """
    mistake = first_mistake(overrides, config_dirs, program)
    if mistake is not None:
        return mistake
    if "Ambiguous value" in str(error):
        text = next((text for text in overrides if text in str(error)), "")
        return (
            f"{text}: several values are a sweep; add -m, or quote one value with commas: "
            "'key=\"a, b\"'"
        )
    for plugin, extra in _EXTRAS.items():
        if f"'{plugin}'" in str(error):
            return f"{plugin}: needs an extra: pip install 'dartree_exp[{extra}]'"
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        return _no_option(
            group, name, sorted(option for option in error.options if option[0] != "_")
        )
    if isinstance(error, OmegaConfBaseException) and error.full_key:
        return f"{error.full_key}: {one_line(error)}"
    return one_line(error)


def _no_option(group: str, name: object, allowed: Sequence[str], close: str | None = None) -> str:
    close = close or nearest(str(name), allowed)
    return (
        f"{group}={name}: no such option; allowed: "
        f"{', '.join(allowed) or 'nothing yet'}{did_you_mean(close)}"
    )


def one_line(error: BaseException) -> str:
    """The first line of an exception's message, and of its cause's."""
    cause = f" ({_first_line(error.__cause__)})" if error.__cause__ is not None else ""
    return _first_line(error) + cause


def _refusals(
    override: Override, text: str, options: dict[str, list[str]], schema: type
) -> Iterator[str]:
    key = override.key_or_group
    if override.is_hydra_override():
        message = hydra_settings.refusal(key, override.value())
        if message is not None:
            yield message
        return
    if override.is_delete():
        return
    if isinstance(override.value(), Glob):
        yield f"{text}: " + (
            f"matches none of {', '.join(options[key])}"
            if key in options
            else "glob(...) works for groups only"
        )
    elif key in options:
        for value in _values(override):
            if value not in options[key]:
                # `budget=16` means the number, not the policy.
                names = (name for name, _, _ in knobs(schema) if name != key)
                like = next((name for name in names if name.endswith(f".{key}")), None)
                number = f"{like}={value}" if like and value is not None else None
                close = nearest(str(value), options[key]) or number
                yield _no_option(key, "null" if value is None else value, options[key], close)
    elif not any(key == name or key.startswith(f"{name}.") for name, _, _ in knobs(schema)):
        yield f"{text}: no such key{did_you_mean(nearest_key(key, schema))}"


def _values(override: Override) -> list[Any]:
    if override.is_choice_sweep():
        return list(override.sweep_iterator())
    return [override.value()]


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
