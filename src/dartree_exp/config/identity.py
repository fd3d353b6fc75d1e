"""The identity of a run: a hash of the settings that its result depends on."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from dartree_exp.config.methods import AR
from dartree_exp.config.parts import foreign
from dartree_exp.config.schema import Config
from dartree_exp.config.unread import unread
from dartree_exp.records.files import hash_of

# These do not change a result. `model.drafters` does not either: `drafter.path` has the one used.
_NOT_RESULTS = ("output", "force", "tracker", "record", "sweep", "method", "parts")
_NOT_OF_AR = ("drafter", "tree", "budget", "verify")


def config_hash(config: Config) -> str:
    """12 hex digits, equal for configurations that must give the same result."""
    return hash_of(_relevant(config))


def _relevant(config: Config) -> dict[str, Any]:
    plain = asdict(config)
    for name in _NOT_RESULTS:
        del plain[name]
    if config.proof == "none":
        del plain["proof_prompts"]
    del plain["model"]["drafters"]
    del plain["benchmark"]["study_max_new_tokens"]  # decoding.max_new_tokens has its value
    for key in unread(asdict(config)):
        group, _, name = key.partition(".")
        del plain[group][name]
    plain |= foreign(config)  # two modules may use one name for different parts
    if config.method == AR:
        return {key: v for key, v in plain.items() if key.partition(".")[0] not in _NOT_OF_AR}
    return plain
