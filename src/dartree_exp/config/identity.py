"""What a run is: a hash over what its result depends on."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from dartree_exp.config.methods import AR
from dartree_exp.config.parts import foreign
from dartree_exp.config.schema import Config
from dartree_exp.config.unread import unread
from dartree_exp.records.files import hash_of

# Where a result goes, who is told and what it is called do not change it. `drafter.path` says which
# of the target's drafters was used.
_NOT_RESULTS = ("output", "force", "tracker", "record", "sweep", "method", "parts")
_NOT_OF_AR = ("drafter", "tree", "budget", "verify")


def config_hash(config: Config) -> str:
    """12 hex digits over everything a result depends on; equal for settings that cannot lead to
    different results.
    """
    return hash_of(_relevant(config))


def _relevant(config: Config) -> dict[str, Any]:
    plain = asdict(config)
    for name in _NOT_RESULTS:
        del plain[name]
    if config.proof == "none":
        del plain["proof_prompts"]
    del plain["model"]["drafters"]
    del plain["benchmark"]["study_max_new_tokens"]  # what became of it is decoding.max_new_tokens
    for key in unread(asdict(config)):
        group, _, name = key.partition(".")
        del plain[group][name]
    plain |= foreign(config)  # two modules may declare parts of one name
    if config.method == AR:
        return {key: v for key, v in plain.items() if key.partition(".")[0] not in _NOT_OF_AR}
    return plain
