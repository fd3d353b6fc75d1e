"""What the contract tests share besides fixtures: the table of methods they all run on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import NamedTuple, TypeVar

import torch
from clients import CLIENTS, OWN_SCORERS, on, roomy
from neighbours import eagle, medusa

from dartree_exp.config.methods import known_methods
from dartree_exp.decode import Method
from dartree_exp.drafters.heads.gru import GRUHead
from dartree_exp.drafters.heads.latent import LatentHead
from dartree_exp.drafters.heads.swiglu import SwiGLUHead
from dartree_exp.drafters.ptd.forest import Shape
from dartree_exp.drafters.ptd.session import PTDDrafter
from dartree_exp.engines.target import Target
from dartree_exp.interfaces import CorrectionHead
from dartree_exp.trees.spec import TREES
from markov_heads import MARKOV_HEADS

RANK = 8
T = TypeVar("T")
PROMPT = [4, 9, 33, 17, 9, 60, 3, 21]  # holds the toy's mask id, 3


@cache
def gru_head(target) -> CorrectionHead:
    torch.manual_seed(5)
    head = GRUHead(target.hidden_size, target.vocab_size, 16, 8, pure_draft_prefix_len=1)
    return head.to(target.dtype).requires_grad_(False).bind(target.embed_weight)


@cache
def markov_head(kind: str, target) -> CorrectionHead:
    torch.manual_seed(5)
    head = MARKOV_HEADS[kind](target.hidden_size, target.vocab_size, RANK)
    return head.to(target.dtype).requires_grad_(False).bind(target.embed_weight)


@cache
def swiglu_head(target) -> CorrectionHead:
    torch.manual_seed(5)
    head = SwiGLUHead(target.hidden_size, 12)
    head = head.to(target.dtype).requires_grad_(False)
    return head.bind(target.embed_weight, lm_head=target.lm_head_weight)


@cache
def latent_head(target) -> LatentHead:
    torch.manual_seed(5)
    head = LatentHead(target.hidden_size, 3, RANK, "slot").to(target.dtype).requires_grad_(False)
    torch.nn.init.normal_(head.factors)
    return head.bind(target.embed_weight, lm_head=target.lm_head_weight)


class Scoring(NamedTuple):
    """A scorer of DESIGN.md section 3: `tree.scoring`, the head behind it, and its published
    systems by builder.
    """

    scoring: str
    head: Callable[..., CorrectionHead | LatentHead] | None
    published: dict[str, tuple[str, ...]]


# A new head is one more line here.
SCORERS = {
    "marginal": Scoring(
        "marginal", None, {"chain": ("dflash", "adaflash"), "heap": ("ddtree", "jetspec")}
    ),
    "static": Scoring("static", gru_head, {"heap": ("chain_ddtree",)}),
    "gru": Scoring(
        "conditional",
        gru_head,
        {
            "chain": ("domino",),
            "heap": ("dominotree", "heap_sequential"),
            "fixed": ("dartree_fixed",),
            "pruned": ("dartree_pruned",),
            "frontier": ("dominotree_frontier",),
            "sampled": ("speculative_sampling",),
        },
    ),
    "markov": Scoring(
        "conditional",
        partial(markov_head, "vanilla"),
        {"chain": ("dspark",), "pruned": ("dartree_dspark",), "pool": ("pctree",)},
    ),
    "swiglu": Scoring("conditional", swiglu_head, {}),
    "lattice": Scoring("lattice", swiglu_head, {"heap": ("treeflash",)}),
    "markov lattice": Scoring("lattice", partial(markov_head, "vanilla"), {}),
    "mixture": Scoring("mixture", latent_head, {"chain": ("dblast",), "pruned": ("dblast_tree",)}),
    "gated": Scoring("conditional", partial(markov_head, "gated"), {}),
    "rnn": Scoring("conditional", partial(markov_head, "rnn"), {}),
}


class Drafting(NamedTuple):
    """One method of the contract: the settings that choose its tree, the head its drafter has, and
    what puts a client's own parts in place.
    """

    overrides: tuple[str, ...]
    head: Callable[..., CorrectionHead | LatentHead] | None
    builder: str
    client: Callable[[Target, Method], Method] | None = None


def names(scorer: str, builder: str) -> tuple[str, ...]:
    """What a pair is called: its published name or names, else after its parts."""
    return SCORERS[scorer].published.get(builder, (f"{scorer}-{builder}",))


NEEDS = {
    "lattice": ("drafter=treeflash", "tree.candidates=8"),
    "mixture": ("drafter=dblast",),
}
"""What a scorer needs of the other settings."""


def _pairs() -> Iterator[tuple[str, Drafting]]:
    """Every scorer x builder pair."""
    for scorer, (scoring, head, _) in SCORERS.items():
        for builder in TREES:
            for name in names(scorer, builder):
                parts = (f"tree={builder}", f"tree.scoring={scoring}")
                parts += NEEDS.get(scoring, ())
                chosen = (f"method={name}",) if name in known_methods() else parts
                shape = "chain" if name == "speculative_sampling" else builder
                yield name, Drafting(chosen, head, shape)


DRAFTING = dict(_pairs())
DRAFTING |= {
    f"medusa-{builder}": Drafting(
        (f"tree={builder}", "tree.scoring=marginal"), None, builder, medusa
    )
    for builder in TREES
    if builder != "static"
}
DRAFTING |= {
    "eagle3": Drafting(("method=eagle3", "tree.budget=16"), None, "pool", partial(eagle, "eagle")),
    "eagle2": Drafting(("method=eagle2", "tree.budget=16"), None, "pool", partial(eagle, "eagle2")),
}
DRAFTING |= {
    f"eagle-{builder}": Drafting(
        (f"tree={builder}", "drafter=eagle", "tree.scoring=own", "tree.budget=16"),
        None,
        builder,
        partial(eagle, "eagle"),
    )
    for builder in TREES
    if builder != "pool"
}
DRAFTING["medusa"] = Drafting(("method=medusa",), None, "static", medusa)
DRAFTING |= {
    name: Drafting(
        ("tree=pruned", "tree.scoring=marginal"),
        None,
        "pruned",
        client,
    )
    for name, client in CLIENTS.items()
}
DRAFTING["ptd"] = Drafting(
    ("method=ptd",),
    None,
    "chain",  # it is not asserted that its trees branch
    lambda target, method: roomy(method, drafter=PTDDrafter(target, Shape(6, 4, 32)), more=32),
)
SELDOM = ("ptd",)
"""Methods whose drafts an untrained target seldom accepts in short texts; tests/drafters has longer
ones.
"""
OWN_NAMES = {("lm", "chain"): "draft_model", ("ngram", "heap"): "ngram"}
DRAFTING |= {
    OWN_NAMES.get((kind, builder), f"{kind}-{builder}"): Drafting(
        (f"tree={builder}", "tree.scoring=own", f"drafter={kind}"),
        None,
        builder,
        lambda target, method, made=made: on(made(target), method),
    )
    for kind, made in OWN_SCORERS.items()
    for builder, spec in TREES.items()
    if kind == "lm" or "best" in spec.proposals
}
_COSTS = "budget.costs=[[1,10.0],[2,10.5],[9,12.0],[17,15.0]]"
POLICIES = {
    "cost_aware": ("tree=pruned", "tree.budget=auto", "budget.most=16", "budget.overhead=2"),
    "cost_aware that rests": ("tree=pruned", "budget=cost_aware", "budget.overhead=90"),
    "caddtree": ("tree=pruned", "budget=caddtree", "budget.overhead=2"),
    "length_head": ("tree=chain", "budget=length_head", "budget.rate=0.7"),
    "libraspec": ("tree=chain", "budget=libraspec", "budget.overhead=2"),
}
DRAFTING |= {
    name: Drafting(("tree.scoring=conditional", _COSTS, *parts), gru_head, parts[0][5:])
    for name, parts in POLICIES.items()
}
MAIN = [name for name in DRAFTING if "-" not in name]
"""All but the ablations, which run a share of what does not depend on the pair."""
ABLATIONS = [name for name in DRAFTING if name not in MAIN]
LATTICES = [name for name, scorer in SCORERS.items() if scorer.scoring == "lattice"]
WITH_LATTICE = [name for name in DRAFTING if "lattice" in name or name == "treeflash"]


def shared_out(values: Sequence[T]) -> list[tuple[str, T]]:
    """Every value for the main methods; for each ablation one of them, in turn."""
    found = [(name, value) for name in MAIN for value in values]
    return found + [(name, values[i % len(values)]) for i, name in enumerate(ABLATIONS)]


def every_id(method: str) -> str:
    """All ids as candidates of a method or scorer. A lattice needs a number."""
    return "tree.candidates=1000" if method in (*WITH_LATTICE, *LATTICES) else "tree.candidates=all"


assert {"ar", *DRAFTING} >= set(known_methods()), "a published method is in no pair"
