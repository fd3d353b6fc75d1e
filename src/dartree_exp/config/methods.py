"""Names of methods: a published name needs the published settings; other methods are named after
their parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from dartree_exp.budgets.spec import AUTO, FIXED
from dartree_exp.config.schema import Config
from dartree_exp.config.unread import unread
from dartree_exp.drafters.heads.spec import HEAD_CHOICES, NO_HEAD
from dartree_exp.trees.published import Published, SameAs
from dartree_exp.trees.spec import TREES
from dartree_exp.verify.spec import EXACT, VERIFIERS

AR = "ar"
"""Plain decoding."""


def published() -> dict[str, Published]:
    """The settings of the published methods by name, ordered by head, then by tree."""
    found = [item for tree in TREES.values() for item in tree.published.items()]
    heads = list(HEAD_CHOICES)
    return dict(sorted(found, key=lambda item: heads.index(item[1].head or NO_HEAD)))


def known_methods() -> list[str]:
    """Plain decoding and the published methods."""
    return [AR, *published()]


def chooses_lengths(config: Mapping[str, Any]) -> bool:
    """Whether a budget policy chooses in each round of this recorded configuration; False if the
    record has none.
    """
    return (config.get("budget") or {}).get("name") not in (None, FIXED)


def method_name(config: Config) -> str:
    """A run's method in tables: the configured name, unless that is a published name and the
    settings differ from the published ones.
    """
    if config.method is not None and (config.method == AR or config.method not in known_methods()):
        return _flagged(config.method, config.verify.name)
    if config.tree.coupled:
        plain = method_name(replace(config, tree=replace(config.tree, coupled=False)))
        return plain if "tree.coupled" in unread(asdict(config)) else f"{plain}+coupled"
    published = TREES[config.tree.name].published
    return next(
        (name for name, terms in published.items() if _earns(config, terms)), _by_parts(config)
    )


def _flagged(name: str, verify: str) -> str:
    """A name of the user's own says so if its verifier is lossy."""
    lossy = not VERIFIERS[verify].exact and name != AR
    return f"{name.removesuffix(f'+{verify}')}+{verify}" if lossy else name


def _earns(config: Config, terms: Published) -> bool:
    tree, drafter, ignored = config.tree, config.drafter, unread(asdict(config))
    return (
        terms.family in (None, drafter.family)
        and (terms.family is None or drafter.causal == terms.causal or "drafter.causal" in ignored)
        and terms.head in (None, drafter.head)
        and terms.scoring in (None, tree.scoring)
        and tree.budget != AUTO
        and config.budget.name in terms.budgets
        and config.verify.name == terms.verify
        and all(
            getattr(tree, knob)
            == (getattr(tree, value.knob) if isinstance(value, SameAs) else value)
            for knob, value in terms.fixed.items()
            if f"tree.{knob}" not in ignored
        )
    )


def _by_parts(config: Config) -> str:
    """`drafter+tree(scorer)`, then budget policy and verifier if they are not the defaults."""
    parts = [config.drafter.name, f"{config.tree.name}({config.tree.scoring})"]
    parts += [str(config.budget.name)] if config.budget.name != FIXED else []
    parts += [config.verify.name] if config.verify.name != EXACT else []
    return "+".join(parts)
