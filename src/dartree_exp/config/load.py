"""From a composed configuration to a checked `Config`.

Every error is one line with the key, its value, what is allowed and the closest valid name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from operator import attrgetter
from typing import Any, TypeVar, get_type_hints

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from dartree_exp.budgets.spec import AUTO, COST_AWARE, FIXED
from dartree_exp.config.knobs import describe, did_you_mean, knobs, nearest_key
from dartree_exp.config.method_schema import DrafterConfig
from dartree_exp.config.methods import method_name
from dartree_exp.config.parts import add_parts
from dartree_exp.config.schema import Config
from dartree_exp.config.validate import check_combinations, check_ranges
from dartree_exp.drafters.heads.spec import HEADS, NO_HEAD
from dartree_exp.drafters.spec import FAMILIES
from dartree_exp.errors import ConfigError
from dartree_exp.trees.spec import OWN

T = TypeVar("T")
_ESCAPE = re.compile(r"\\[nt]|\\\\(?=[nt])")


def load_config(raw: DictConfig, overrides: Sequence[str] = ()) -> Config:
    """A composed configuration, typed and checked, with `tree.scoring`, `budget.name` and
    `method` filled in.

    Raises ConfigError with a one-line message.
    """
    config = typed(raw, Config, overrides)
    if config.tree.scoring is None:
        config.tree.scoring = _usual_scorer(config.drafter)
    if config.budget.name is None:
        config.budget.name = COST_AWARE if config.tree.budget == AUTO else FIXED
    check_combinations(config)
    config.method = method_name(config)
    return config


def _usual_scorer(drafter: DrafterConfig) -> str:
    if FAMILIES[drafter.family].scores:
        return OWN
    if drafter.head == NO_HEAD:
        return "marginal"
    return "mixture" if HEADS[drafter.head].mixture else "conditional"


def _add_parts(raw: DictConfig) -> None:
    """Import the modules in `parts`; the schema then allows their specs."""
    with suppress(OmegaConfBaseException):  # `typed` reports the error
        modules = raw.get("parts")
        if isinstance(modules, ListConfig):
            add_parts([str(module) for module in modules])


def typed(raw: DictConfig, schema: type[T], overrides: Sequence[str] = ()) -> T:
    """Resolve a composed configuration, give its values their types and check their ranges.

    overrides: as typed; escapes are read in those that allow them (`Knob.escapes`).
    Raises ConfigError with a one-line message.
    """
    _add_parts(raw)
    try:
        plain = OmegaConf.to_container(raw, resolve=True)
    except OmegaConfBaseException as error:
        raise ConfigError(f"{error.full_key}: {_first_line(error)}") from error
    assert isinstance(plain, dict)
    _check_keys(plain, schema, "", schema)
    try:
        config = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(schema), plain))
    except MissingMandatoryValue as error:
        raise ConfigError(
            f"{_missing_key(error)}: no value; set one on the command line or in conf/"
        ) from error
    except OmegaConfBaseException as error:
        raise _type_error(error, plain, schema) from error
    assert isinstance(config, schema)
    _read_escapes(config, overrides)
    check_ranges(config)
    return config


def to_yaml(config: Any) -> str:
    """The resolved configuration as YAML, as in a run folder's config.yaml."""
    return OmegaConf.to_yaml(OmegaConf.structured(config))


def _read_escapes(config: Any, overrides: Sequence[str]) -> None:
    """Turn typed `\\n` and `\\t` into newline and tab, and `\\\\n` into a backslash and an n. YAML
    files have YAML's own escapes.
    """
    typed = {text.partition("=")[0].lstrip("+") for text in overrides}
    for key, _, knob in knobs(type(config)):
        if knob.escapes and key in typed:
            value = attrgetter(key)(config)
            read = (
                [_unescape(item) for item in value] if isinstance(value, list) else _unescape(value)
            )
            group, _, name = key.rpartition(".")
            setattr(attrgetter(group)(config), name, read)


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda found: {"n": "\n", "t": "\t"}.get(found[0][1], "\\"), text)


def _check_keys(node: dict[Any, Any], schema: type, prefix: str, root: type) -> None:
    hints = get_type_hints(schema)
    for name, value in node.items():
        key = f"{prefix}{name}"
        if name not in hints:
            raise ConfigError(f"{key}={value}: no such key{did_you_mean(nearest_key(key, root))}")
        if is_dataclass(hints[name]):
            if not isinstance(value, dict):
                names = ", ".join(field.name for field in fields(hints[name]))
                raise ConfigError(f"{key}={value}: must be a group with the keys {names}")
            _check_keys(value, hints[name], f"{key}.", root)


def _type_error(error: OmegaConfBaseException, plain: dict[Any, Any], schema: type) -> ConfigError:
    key = error.full_key or ""
    setting = key.partition("[")[0]
    for name, hint, knob in knobs(schema):
        if setting == name or setting.startswith(f"{name}."):
            value = OmegaConf.select(OmegaConf.create(plain), name)
            return ConfigError(f"{name}={value}: must be {describe(hint, knob)}")
    return ConfigError(f"{key}: {_first_line(error)}")


def _missing_key(error: MissingMandatoryValue) -> str:
    return error.full_key or _first_line(error).rpartition(" ")[2]


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
