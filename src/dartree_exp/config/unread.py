"""Settings that the chosen parts do not read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dartree_exp.budgets.spec import AUTO, BUDGETS
from dartree_exp.drafters.spec import EVERY_DRAFTER, FAMILIES
from dartree_exp.trees.spec import EVERY_TREE, OWN, SCORERS, TREES
from dartree_exp.verify.spec import VERIFIERS


def unread(config: Mapping[str, Any]) -> set[str]:
    """Dotted keys of a resolved configuration that cannot change its result.

    A part of an unknown name (records of another version) is assumed to read every key.
    """
    tree, budget = config.get("tree") or {}, config.get("budget") or {}
    found = set()
    builder, scorer = TREES.get(str(tree.get("name"))), SCORERS.get(str(tree.get("scoring")))
    if builder is not None:
        scorers = SCORERS.values() if scorer is None else [scorer]
        known = {"name", *EVERY_TREE, *builder.reads, *(k for s in scorers for k in s.reads)}
        if tree.get("candidates_follow_budget"):
            known.discard("candidates")
        if tree.get("scoring") == OWN:  # the best children first
            known.discard("child_order")
        if not (config.get("decoding") or {}).get("temperature"):  # nothing is sampled
            known -= {"draft_sampling", "coupled"}
        found |= {f"tree.{name}" for name in tree if name not in known}
    policy = BUDGETS.get(str(budget.get("name")))
    if policy is not None:
        known = {"name", *policy.reads, *(["most"] if tree.get("budget") == AUTO else [])}
        found |= {f"budget.{name}" for name in budget if name not in known}
    verify = config.get("verify") or {}
    verifier = VERIFIERS.get(str(verify.get("name")))
    if verifier is not None:
        found |= {f"verify.{k}" for k in verify if k not in ("name", *verifier.reads)}
    drafter = config.get("drafter") or {}
    family = FAMILIES.get(str(drafter.get("family")))
    if family is not None:
        known = {*EVERY_DRAFTER, *family.reads}
        found |= {f"drafter.{name}" for name in drafter if name not in known}
    return found
