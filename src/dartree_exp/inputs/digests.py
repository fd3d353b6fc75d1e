"""Digests of the files that a result depends on; `config.yaml` has only their paths. Does not
import torch.

The configuration's hash, which names the run folder, does not cover the content of files. So these
digests are checked when the folder is opened: other files are another run.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

from dartree_exp.budgets.spec import BUDGETS
from dartree_exp.config.schema import Config
from dartree_exp.drafters.dflash.backbone_ref import CALIBRATION, EDGES, reference_in
from dartree_exp.drafters.dflash.config import read_json
from dartree_exp.drafters.locate import PACKAGE_SCHEME, locate
from dartree_exp.errors import UserError
from dartree_exp.models.digests import cache_folder, digest_of_files
from dartree_exp.models.hub import at_hand
from dartree_exp.prompts.rows import locate as locate_rows
from dartree_exp.trees.rank_paths import paths_file
from dartree_exp.trees.spec import TREES

# Files that determine the ids of a text and the end of an answer.
_SETTINGS = (
    *(
        "config.json",
        "generation_config.json",
        "tokenizer*.json",
        "special_tokens_map.json",
        "added_tokens.json",
    ),
    *("vocab.json", "merges.txt", "chat_template.j*"),
)


def input_digests(config: Config) -> dict[str, str]:
    """sha256 by role: target, target settings, drafter, drafter settings, calibration, tree paths,
    prompts.

    Only for files on this machine. Random weights and files not downloaded yet have no digest;
    missing or damaged files are reported by their loaders.
    """
    readers: dict[str, Callable[[Config], list[Path] | None]] = {
        "target": _target,
        "target settings": _target_settings,
        "drafter": _drafter,
        "drafter settings": lambda config: [
            folder / "config.json" for folder in _drafter_folders(config)
        ],
        "calibration": _calibration,
        "tree paths": _tree_paths,
        "prompts": _prompts,
    }
    found = {}
    for role, list_files in readers.items():
        with suppress(OSError, ValueError, UserError):
            listed = list_files(config)
            if listed is not None and (
                listed or role == "calibration"
            ):  # a missing one is part of it too
                found[role] = digest_of_files(listed)
    return found


def _target(config: Config) -> list[Path] | None:
    folder = _target_folder(config)
    return None if folder is None else sorted(folder.glob("*.safetensors"))


def _target_settings(config: Config) -> list[Path] | None:
    """None for an embedded target: its settings are written from the same source as its weights."""
    folder = None if config.model.path is None else _target_folder(config)
    return (
        None if folder is None else sorted(file for name in _SETTINGS for file in folder.glob(name))
    )


def _drafter(config: Config) -> list[Path]:
    return [
        file for folder in _drafter_folders(config) for file in sorted(folder.glob("*.safetensors"))
    ]


def _calibration(config: Config) -> list[Path] | None:
    folders, policy = _drafter_folders(config), BUDGETS[str(config.budget.name)]
    names = [CALIBRATION] * policy.confident + [EDGES] * policy.calibrated
    if not folders or not names:
        return None
    return [file for name in names if (file := folders[-1] / name).exists()]


def _tree_paths(config: Config) -> list[Path] | None:
    reads = config.method != "ar" and "paths" in TREES[config.tree.name].reads
    return [paths_file(config.tree.paths)] if reads else None


def _prompts(config: Config) -> list[Path] | None:
    if config.benchmark.path is not None:
        return [locate_rows(config.benchmark)]
    if config.benchmark.dataset is not None:
        return None
    return [Path(str(files("dartree_exp.prompts") / f"{config.benchmark.name}.jsonl"))]


def _target_folder(config: Config) -> Path | None:
    if config.model.name == "toy":
        return None
    return (
        cache_folder() / config.model.name
        if config.model.path is None
        else at_hand(config.model.path)
    )


def _drafter_folders(config: Config) -> list[Path]:
    """The drafter's folder, preceded by that of its shared backbone; [] if not on this machine."""
    path = config.drafter.path
    if config.method == "ar" or path is None:
        return []
    folder = locate(path) if path.startswith(PACKAGE_SCHEME) else at_hand(path)
    if folder is None:
        return []
    reference = reference_in(read_json(folder))
    return [folder] if reference is None else [reference.beside(folder), folder]
