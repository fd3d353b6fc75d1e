"""Checks that the files of a configuration exist and fit the settings. Does not import torch."""

from __future__ import annotations

import os

from dartree_exp.budgets.spec import BUDGETS
from dartree_exp.config.schema import Config
from dartree_exp.drafters.heads.config import wrong_head
from dartree_exp.drafters.locate import PACKAGE_SCHEME, locate
from dartree_exp.drafters.spec import FAMILIES, SEEDED
from dartree_exp.errors import ConfigError, UserError
from dartree_exp.models.hub import is_hub_name
from dartree_exp.prompts.template import check_template
from dartree_exp.records.reading import user_path
from dartree_exp.trees.rank_paths import read_paths
from dartree_exp.trees.spec import TREES


def check_files(config: Config) -> None:
    """Raise ConfigError for an invalid template, a path that does not exist, or a checkpoint that
    does not fit the settings.

    Hub names and weights are checked by the loaders; only `config.json` is read here.
    """
    check_template("benchmark.template", config.benchmark.template)
    check_template("benchmark.optional", config.benchmark.optional)
    paths = {"model.path": config.model.path, "benchmark.path": config.benchmark.path}
    for key, path in paths.items():
        if path is None or os.path.exists(user_path(path)):
            continue
        if key == "benchmark.path" or not is_hub_name(path):
            hub = "" if key == "benchmark.path" else " and is not a hub name (owner/name)"
            raise ConfigError(f"{key}={path}: does not exist{hub}")
    if config.method != "ar" and "paths" in TREES[config.tree.name].reads:
        read_paths(config.tree.paths)
    if config.drafter.path not in (None, SEEDED) and config.method != "ar":
        _check_checkpoint(config.drafter.path, config)


def _check_checkpoint(path: str, config: Config) -> None:
    at_hand = path.startswith(PACKAGE_SCHEME) or os.path.exists(user_path(path))
    if not at_hand and is_hub_name(path):
        return
    family = FAMILIES[config.drafter.family]
    try:
        folder = locate(path)
        if family.config is None:
            return
        found = family.read_config(folder)
    except UserError as error:
        raise ConfigError(str(error)) from error
    head = found.head
    wrong = wrong_head(head, config.drafter.head)
    if wrong is not None:
        raise ConfigError(f"drafter.head={config.drafter.head}: the checkpoint {path} {wrong}")
    if config.tree.draft_sampling == "release" and not getattr(head, "pure_draft_prefix_len", 0):
        raise ConfigError(
            f"tree.draft_sampling=release: the checkpoint {path} corrects every depth "
            "(pure_draft_prefix_len = 0), so nothing is sampled; use tree.draft_sampling=argmax"
        )
    if BUDGETS[str(config.budget.name)].confident and (
        head is None or head.confidence_rank is None
    ):
        raise ConfigError(
            f"budget={config.budget.name}: the checkpoint {path} has no confidence head; "
            "use budget=fixed"
        )
    if BUDGETS[str(config.budget.name)].length and found.length_width is None:
        raise ConfigError(
            f"budget={config.budget.name}: the checkpoint {path} has no length head "
            "(use_thresh_head_two_model); use budget=fixed"
        )
