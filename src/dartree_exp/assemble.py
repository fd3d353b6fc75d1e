"""Builds the parts of the loop from a configuration: target, drafter, method, sampler, stop rule,
clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from dartree_exp.budgets.chances import RAW, EdgeCalibration
from dartree_exp.budgets.cost import CostCurve
from dartree_exp.budgets.spec import AUTO, BUDGETS, FIXED
from dartree_exp.config.method_schema import BudgetConfig, TreeConfig
from dartree_exp.config.schema import Config, DecodingConfig
from dartree_exp.decode import Method
from dartree_exp.drafters import load_drafter
from dartree_exp.drafters.scripted.nothing import NoDrafter
from dartree_exp.engines.spec import ENGINES
from dartree_exp.engines.target import Target
from dartree_exp.errors import ConfigError
from dartree_exp.interfaces import Block, BudgetPolicy, Commit, Draws, Overhead, Scorer
from dartree_exp.metrics.clock import StageClock
from dartree_exp.models.registry import load_target
from dartree_exp.trees.builder import largest_tree, make_builder
from dartree_exp.trees.coupled import CoupledBuilder, Coupling, coupled_block
from dartree_exp.trees.scorer import make_scorer
from dartree_exp.trees.spec import LATENT_SAMPLED, SCORERS
from dartree_exp.verify.sampling import GREEDY_EPS, Sampler
from dartree_exp.verify.spec import VERIFIERS
from dartree_exp.verify.stopping import StopRule

NO_KNOBS: Mapping[str, float] = {}


def load_parts(config: Config) -> tuple[Target, Method]:
    """Load the target and the drafter, which is checked against it, and build the method.

    `method=ar` is plain decoding through the speculative loop: no drafter, a bare root.
    """
    target = load_target(config.model, config.engine)
    if config.method == "ar":
        bare = replace(config.tree, name="chain", scoring="marginal", budget=0)
        whole = replace(config.budget, name=FIXED)
        return target, make_method(bare, whole, NoDrafter(target), engine=target.engine)
    drafter = load_drafter(config.drafter, target)
    reads = VERIFIERS[config.verify.name].reads
    accept = {knob: getattr(config.verify, knob) for knob in reads}
    parts = config.verify.name, target.engine, accept
    return target, make_method(config.tree, config.budget, drafter, *parts)


def make_method(
    tree: TreeConfig,
    budget: BudgetConfig,
    drafter: Any,
    verify: str = "exact",
    engine: str = "eager",
    accept: Mapping[str, float] = NO_KNOBS,
) -> Method:
    """The method of `tree`, `budget`, a verifier and an engine, on this drafter.

    accept: the knobs that the verifier reads; those left out have its own defaults.

    Raises ConfigError for a scorer or a budget policy that needs a head the drafter does not have.
    """
    scoring = tree.scoring
    assert scoring is not None  # load_config fills it in
    if SCORERS[scoring].corrects and drafter.head is None:
        raise ConfigError(
            f"tree.scoring={scoring}: drafter {drafter.name!r} has no correction head; allowed "
            "here: marginal"
        )
    coupling = Coupling(coupled_pairs(drafter, scoring)) if tree.coupled else None
    opaque = SCORERS[scoring].opaque
    budget_cap = budget.most if tree.budget == AUTO else int(tree.budget)
    menu = max(budget_cap, 1) if tree.candidates_follow_budget else None  # the scorer cuts at V
    samples = tree.draft_sampling == "release" or tree.latent == LATENT_SAMPLED

    def scorer(block: Block, commit: Commit, draws: Draws) -> Scorer:
        head = drafter.head
        if coupling is not None and not opaque:
            block, head = coupled_block(block, head, draws, coupling)
        return make_scorer(
            scoring,
            block,
            head,
            commit.roots,
            candidates=tree.candidates,
            normalise=tree.normalise,
            menu=menu,
            draws=draws if samples else None,
            confidence=drafter.confidence,
            length=getattr(drafter, "length", None),
            latent=tree.latent,
        )

    builder = make_builder(tree)
    # The cache has room for the largest tree: a chain of 15 never needs the 64 rows of its budget.
    depths = min(drafter.num_drafts, tree.depth or drafter.num_drafts)
    most = largest_tree(tree, depths, budget_cap)
    return Method(
        drafter=drafter,
        scoring=scorer,
        builder=CoupledBuilder(builder, coupling) if coupling is not None and opaque else builder,
        policy=make_policy(budget, drafter, scoring, tree.coupled),
        verify=VERIFIERS[verify].load()(**accept),
        engine=ENGINES[engine].load(),
        budget=budget_cap,
        max_rows=1 + most + getattr(drafter, "max_probes", 0),
        depth_limit=tree.depth,
        **pinned_costs(budget),
    )


def pinned_costs(budget: BudgetConfig) -> dict[str, Any]:
    """The fields of a method whose costs the configuration gives; the warm-up measures others."""
    pinned: dict[str, Any] = {}
    if budget.costs:
        pinned["cost"] = CostCurve({int(rows): ms / 1e3 for rows, ms in budget.costs})
    if budget.overhead is not None:
        pinned["overhead"] = Overhead(draft=budget.overhead / 1e3)
    return pinned


def make_policy(
    budget: BudgetConfig, drafter: Any, scoring: str, coupled: bool = False
) -> BudgetPolicy:
    """The budget policy; raises ConfigError for a policy that the drafter cannot serve."""
    spec = BUDGETS[str(budget.name)]
    if spec.confident and drafter.confidence is None:
        raise ConfigError(
            f"budget={spec.name}: drafter {drafter.name!r} has no confidence head; use budget=fixed"
        )
    if spec.length and getattr(drafter, "length", None) is None:
        raise ConfigError(
            f"budget={spec.name}: drafter {drafter.name!r} has no length head; use budget=fixed"
        )
    edges = edge_calibration(drafter, scoring)
    if coupled:  # coupled scores are chances already; a greedy target's are not coupled
        edges = EdgeCalibration({0.0: edges.at(0.0), GREEDY_EPS: RAW})
    calibrated = (edges,) if spec.calibrated else ()
    policy: BudgetPolicy = spec.load().from_settings(budget, *calibrated)
    return policy


def coupled_pairs(drafter: Any, scoring: str) -> Mapping[float, tuple[float, float]]:
    """What was fitted for the drafter's coupled scores; {} if nothing was."""
    pairs: Mapping[float, tuple[float, float]] = getattr(drafter, "coupled_pairs", {}).get(
        scoring, {}
    )
    return pairs


def edge_calibration(drafter: Any, scoring: str) -> EdgeCalibration:
    """That of the drafter's edges under a scorer; without pairs if it has none."""
    return EdgeCalibration(getattr(drafter, "edge_pairs", {}).get(scoring, {}))


def make_sampler(decoding: DecodingConfig, sample_id: str) -> Sampler:
    """The target's draws for one sample (prompt and turn)."""
    return Sampler(decoding.temperature, decoding.top_k, decoding.top_p, decoding.seed, sample_id)


def make_rule(decoding: DecodingConfig, target: Target) -> StopRule:
    """The stop rule of both arms: the target's EOS ids, stop ids, stop strings, the cap.

    Special tokens are not part of the text, so a stop string that is one means its id. Raises
    ConfigError for a stop string that contains one beside other text, and for a stop id that the
    target does not have: neither could ever end an answer.
    """
    special, ids = target.tokenizer.special_ids, set(decoding.stop_ids)
    if ids and (largest := max(ids)) >= target.vocab_size:
        raise ConfigError(
            f"decoding.stop_ids: {largest} is not an id of {target.name}; allowed: "
            f"0..{target.vocab_size - 1}"
        )
    texts = []
    for text in decoding.stop_strings:
        if text in special:
            ids.add(special[text])
            continue
        for token in special:
            if token and token in text:
                raise ConfigError(
                    f"decoding.stop_strings: {text!r} contains the special token {token!r}, which "
                    "is never part of the text; give the token alone"
                )
        texts.append(text)
    return StopRule(
        decoding.max_new_tokens,
        frozenset(target.eos_ids),
        frozenset(ids),
        tuple(texts),
        target.tokenizer.decode,
    )


def clock_factory(config: Config, target: Target) -> partial[StageClock]:
    """Makes a new clock, synchronised with the target's device; one for each prompt and arm."""
    synchronize = torch.cuda.synchronize if target.device.type == "cuda" else None
    return partial(
        StageClock,
        synchronize,
        profile=config.engine.profile,
        exclude_first_draft=config.protocol == "paper",
    )
