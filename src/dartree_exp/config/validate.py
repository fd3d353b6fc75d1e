"""Checks of single ranges and of combinations. Loads no model and imports no tensor library."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import pairwise
from operator import attrgetter

from dartree_exp.budgets.spec import AUTO, BUDGETS, FIXED
from dartree_exp.config.knob import Knob
from dartree_exp.config.knobs import describe, did_you_mean, knobs, nearest
from dartree_exp.config.schema import Config
from dartree_exp.drafters.heads.spec import HEADS, NO_HEAD, drafters_with
from dartree_exp.drafters.spec import FAMILIES, SEEDED
from dartree_exp.errors import ConfigError
from dartree_exp.trees.spec import OWN, SCORERS, TREES
from dartree_exp.verify.spec import EXACT, VERIFIERS

_FOLDER_NAME = re.compile(r"[A-Za-z0-9][\w.+-]{0,199}")  # file systems end a name at 255 bytes


def check_ranges(config: object) -> None:
    """Raise ConfigError for the first value outside what the schema allows."""
    for key, hint, knob in knobs(type(config)):
        value = attrgetter(key)(config)
        for item in value if isinstance(value, list) else (value,):
            if not _fits(item, knob):
                hint_at = did_you_mean(nearest(item, knob.allowed)) if isinstance(item, str) else ""
                raise ConfigError(f"{key}={value}: must be {describe(hint, knob)}{hint_at}")


def _fits(value: object, knob: Knob) -> bool:
    if isinstance(value, str):
        return not knob.allowed or value in knob.allowed
    if isinstance(value, bool) or not isinstance(value, int | float):
        return True
    return (
        math.isfinite(value)
        and (knob.low is None or value >= knob.low)
        and (knob.above is None or value > knob.above)
        and (knob.high is None or value <= knob.high)
    )


def check_combinations(config: Config) -> None:
    """Raise ConfigError for the first combination that cannot work."""
    for message in _conflicts(config):
        raise ConfigError(message)


def _conflicts(config: Config) -> Iterator[str]:
    model, drafter, tree, sweep = config.model, config.drafter, config.tree, config.sweep
    if sweep.name is not None:
        check_folder_name("sweep.name", sweep.name)
    if not config.output:
        yield "output=: must name a folder"
    if "" in config.decoding.stop_strings:
        yield "decoding.stop_strings: an empty string would end every answer at once"
    if model.name == "toy" and model.family is None:
        yield "model.family=null: model=toy needs one of llama, qwen3"
    if model.name != "toy" and model.family is not None:
        yield (
            f"model.family={model.family}: only for model=toy; other targets read it from their "
            "config.json"
        )
    if model.name == "toy" and model.path is not None:
        yield (
            f"model.path={model.path}: model=toy is made from a seed; choose another model to "
            "load a folder"
        )
    if config.method == "ar":
        return
    family, policy = FAMILIES[drafter.family], BUDGETS[str(config.budget.name)]
    if family.kinds and drafter.name not in family.kinds:
        yield (
            f"drafter.name={drafter.name}: drafter.family={family.name} has "
            f"{', '.join(family.kinds)}"
        )
    if not family.heads and drafter.head != NO_HEAD:
        yield f"drafter.head={drafter.head}: drafter.family={family.name} has no correction head"
    assert tree.scoring is not None  # load_config fills it in
    if family.scores != (tree.scoring == OWN):
        allowed = OWN if family.scores else ", ".join(name for name in SCORERS if name != OWN)
        yield (
            f"tree.scoring={tree.scoring}: not with drafter.family={family.name}; allowed: "
            f"{allowed}"
        )
    if SCORERS[tree.scoring].corrects and drafter.head == NO_HEAD:
        yield (
            f"tree.scoring={tree.scoring}: drafter={drafter.name} has no correction head; "
            f"use tree.scoring=marginal, or a drafter with a head: drafter={drafters_with()}"
        )
    scorer = SCORERS[tree.scoring]
    if scorer.last_token and drafter.head in HEADS:
        able = ", ".join(spec.drafter for spec in HEADS.values() if spec.last_token)
        if not HEADS[drafter.head].last_token:
            yield (
                f"tree.scoring={scorer.name}: drafter.head={drafter.head} reads the whole path; "
                f"use a head that reads the token before: drafter={able}"
            )
        if tree.candidates == "all" and not tree.candidates_follow_budget:
            yield f"tree.candidates=all: tree.scoring={scorer.name} needs a number"
    if scorer.corrects and drafter.head in HEADS and scorer.mixture != HEADS[drafter.head].mixture:
        if scorer.mixture:
            able = ", ".join(spec.drafter for spec in HEADS.values() if spec.mixture)
            other = f"is no latent mixture; use a drafter with one: drafter={able}"
        else:
            able = ", ".join(s.name for s in SCORERS.values() if s.mixture)
            other = f"is a latent mixture; use tree.scoring={able}"
        yield f"tree.scoring={scorer.name}: drafter.head={drafter.head} {other}"
    if tree.draft_sampling == "release" and (tree.name, tree.scoring, drafter.head) != (
        "chain",
        "conditional",
        "gru",
    ):
        yield (
            "tree.draft_sampling=release: only Domino's chain samples drafts (tree=chain, "
            "tree.scoring=conditional,"
            f" drafter.head=gru); this is tree={tree.name}, tree.scoring={tree.scoring}, "
            f"drafter.head={drafter.head};"
            " use tree.draft_sampling=argmax"
        )
    if (
        tree.scoring == "static"
        and tree.candidates_follow_budget
        and tree.normalise == "vocab_on_prefix"
    ):
        yield (
            "tree.normalise=vocab_on_prefix: with tree.scoring=static and "
            "tree.candidates_follow_budget=true"
            " all depths are normalised alike; allowed: candidates, vocab"
        )
    if policy.confident and not (drafter.head in HEADS and HEADS[drafter.head].confident):
        yield (
            f"budget={config.budget.name}: drafter={drafter.name} with "
            f"drafter.head={drafter.head} has no confidence head; use budget=fixed, or "
            f"drafter={drafters_with(confident=True)}"
        )
    if policy.length and not family.lengths:
        yield (
            f"budget={policy.name}: drafter.family={family.name} has no length head; use "
            "budget=fixed"
        )
    if family.name == "ngram" and drafter.shortest > drafter.longest:
        yield (
            f"drafter.shortest={drafter.shortest}: must be at most drafter.longest="
            f"{drafter.longest}"
        )
    yield from _budget_conflicts(config)
    yield from _sampling_conflicts(config)
    yield from _coupled_conflicts(config)
    if not family.loads and drafter.path is not None:
        yield f"drafter.path={drafter.path}: drafter.family={family.name} loads nothing"
    counted = "num_drafts" in family.reads
    if counted and drafter.num_drafts is None:
        yield f"drafter.num_drafts=null: drafter.family={family.name} needs a number"
    for key, value in (("causal", drafter.causal), ("block_size", drafter.block_size)):
        if value and key not in family.reads:
            yield f"drafter.{key}={value}: drafter.family={family.name} has no block backbone"
    if family.loads and drafter.path is None:
        yield (
            f"drafter={drafter.name}: no weights for model={model.name} are known; set "
            "drafter.path=<folder>"
        )
    if drafter.path == SEEDED and model.name != "toy":
        yield f"drafter.path={SEEDED}: only for model=toy; set drafter.path=<folder>"
    if not counted and drafter.num_drafts is not None:
        yield (
            f"drafter.num_drafts={drafter.num_drafts}: drafter.family={family.name} does not read "
            "it; set tree.depth to limit a tree"
        )


def _budget_conflicts(config: Config) -> Iterator[str]:
    tree, budget = config.tree, config.budget
    policy = BUDGETS[str(budget.name)]
    if tree.budget == AUTO and not policy.chooses:
        able = ", ".join(spec.name for spec in BUDGETS.values() if spec.chooses)
        yield (
            f"tree.budget={AUTO}: budget={policy.name} does not choose a number of nodes; set "
            f"tree.budget to a number, or use one of budget={able}"
        )
    if policy.trees and tree.name not in policy.trees:
        yield (
            f"budget={policy.name}: tree={tree.name} is not a tree that it can cut; allowed: "
            f"tree={', '.join(policy.trees)}"
        )
    if not all(map(_is_cost, budget.costs)) or any(
        low[0] >= high[0] for low, high in pairwise(budget.costs)
    ):
        yield (
            f"budget.costs={budget.costs}: must be pairs [rows, milliseconds] with ascending "
            "integers >= 1 as rows and milliseconds > 0"
        )


def _sampling_conflicts(config: Config) -> Iterator[str]:
    """Between the verifier and how drafts are proposed."""
    tree, verifier = config.tree, VERIFIERS[config.verify.name]
    if not set(TREES[tree.name].proposals) <= set(verifier.proposals):
        able = [t.name for t in TREES.values() if set(t.proposals) <= set(verifier.proposals)]
        yield (
            f"verify={verifier.name}: tree={tree.name} proposes the likeliest drafts, and this "
            f"rule keeps the target's law only for other proposals; use tree={', '.join(able)}, or "
            f"verify={EXACT}"
        )
    if not FAMILIES[config.drafter.family].samples and "best" not in TREES[tree.name].proposals:
        yield (
            f"tree={tree.name}: the drafts of drafter.family={config.drafter.family} are not drawn "
            "from a distribution; use a tree of its best drafts, such as tree=heap"
        )
    if verifier.same_ids:
        return
    if verifier.exact and config.budget.name != FIXED:
        yield (
            f"budget={config.budget.name}: with verify={verifier.name} no node may be left out "
            "because of how likely it is; set tree.budget to a number, with budget=fixed"
        )
    if config.decoding.temperature and config.proof != "none":
        yield (
            f"proof={config.proof}: with verify={verifier.name} at decoding.temperature="
            f"{config.decoding.temperature} the ids differ from plain decoding's by design; use "
            "proof=none, or decoding.temperature=0"
        )
    if config.decoding.temperature and tree.draft_temperature == 0 and tree.children != 1:
        yield (
            f"tree.draft_temperature=0: one token has all the probability, so tree.children="
            f"{tree.children} siblings cannot be drawn; use tree.children=1, or a temperature > 0"
        )


def _coupled_conflicts(config: Config) -> Iterator[str]:
    """Coupled drafts depend on the target's own draw: only a verifier that compares with it keeps
    the law, and only scores that are computed from that noise are chances.
    """
    tree, policy = config.tree, BUDGETS[str(config.budget.name)]
    if not tree.coupled:
        return
    if config.verify.name != EXACT:
        yield (
            f"tree.coupled=true: verify={config.verify.name} does not compare drafts with the "
            f"target's own draw, so they must not depend on its noise; use verify={EXACT}"
        )
    if "best" not in TREES[tree.name].proposals or tree.draft_sampling == "release":
        yield (
            f"tree.coupled=true: tree={tree.name} with tree.draft_sampling={tree.draft_sampling} "
            "draws drafts with noise of their own; use a tree of the best drafts, such as tree=heap"
        )
    if policy.confident or policy.length:
        yield (
            f"tree.coupled=true: budget={policy.name} reads a head that was trained for drafts "
            "without coupling; use budget=fixed, or budget=cost_aware"
        )


def _is_cost(pair: object) -> bool:
    if not isinstance(pair, list) or [type(x) in (int, float) for x in pair] != [True, True]:
        return False
    rows, milliseconds = pair
    return type(rows) is int and rows >= 1 and 0 < milliseconds < math.inf


def check_folder_name(key: str, value: str, name: str | None = None) -> None:
    """Raise ConfigError if a value, or its last part `name`, is not a plain folder name."""
    if not _FOLDER_NAME.fullmatch(value if name is None else name):
        what = "must be" if name is None else "must end in"
        raise ConfigError(
            f"{key}={value}: {what} a plain folder name (at most 200 of letters, digits, . _ + -)"
        )
