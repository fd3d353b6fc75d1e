"""Every kind of part, and the parts declared by a user's own modules. Does not import torch."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from operator import attrgetter
from typing import Any

from dartree_exp.budgets.spec import BUDGETS, BudgetSpec
from dartree_exp.config.schema import Config
from dartree_exp.drafters.heads.spec import HEADS, HeadSpec
from dartree_exp.drafters.spec import FAMILIES, DrafterSpec
from dartree_exp.engines.spec import ENGINES, EngineSpec
from dartree_exp.errors import ConfigError
from dartree_exp.parts import Parts, Spec
from dartree_exp.trees.spec import SCORERS, TREES, ScorerSpec, TreeSpec
from dartree_exp.verify.spec import VERIFIERS, VerifierSpec

KINDS: dict[type[Spec], Parts[Any]] = {
    DrafterSpec: FAMILIES,
    HeadSpec: HEADS,
    TreeSpec: TREES,
    ScorerSpec: SCORERS,
    BudgetSpec: BUDGETS,
    VerifierSpec: VERIFIERS,
    EngineSpec: ENGINES,
}
_OWN = "dartree_exp."


def add_parts(modules: Iterable[str]) -> None:
    """Import modules and add the specs of their `PARTS`. Adding a module again changes nothing.

    Raises ConfigError for a module that cannot be imported or declares no parts, and for a name
    that is taken.
    """
    for module in modules:
        try:
            found = getattr(import_module(module), "PARTS", ())
        except Exception as error:  # the user's own code
            said = f"{type(error).__name__}: {error}"
            raise ConfigError(f"parts=[{module}]: cannot be imported: {said}") from error
        if not found or not all(type(spec) in KINDS for spec in found):
            raise ConfigError(
                f"parts=[{module}]: must declare PARTS, a list of "
                f"{', '.join(kind.__name__ for kind in KINDS)}"
            )
        for spec in found:
            _check_names(module, spec)
            KINDS[type(spec)][spec.name] = spec


def _check_names(module: str, spec: Spec) -> None:
    """Raise ConfigError if the name of this part, or of a method published with it, is taken."""
    others = KINDS[type(spec)]
    if others.get(spec.name, spec) != spec:
        raise ConfigError(f"parts=[{module}]: {others.kind}={spec.name} is declared already")
    for method in spec.published if isinstance(spec, TreeSpec) else ():
        if any(method in tree.published for tree in TREES.values() if tree.name != spec.name):
            raise ConfigError(f"parts=[{module}]: method={method} is declared already")


def foreign(config: Config) -> dict[str, str]:
    """The chosen parts from outside this package: {key: path of the implementation}."""
    specs = {parts.kind: parts.get(attrgetter(parts.kind)(config)) for parts in KINDS.values()}
    return {
        key: spec.target
        for key, spec in specs.items()
        if spec is not None and not spec.target.startswith(_OWN)
    }
