"""Tiny targets, a drafter that is right often enough to exercise trees, and every named method over
it.
"""

from __future__ import annotations

from functools import cache

import pytest
import torch
from contract_support import DRAFTING, PROMPT, RANK

from dartree_exp.assemble import make_method
from dartree_exp.config import compose
from dartree_exp.decode import Decoded, autoregress, speculate
from dartree_exp.drafters.block_session import BlockDrafter
from dartree_exp.drafters.heads.confidence import ConfidenceHead
from dartree_exp.drafters.heads.length import LengthHead
from dartree_exp.drafters.scripted.session import ScriptedDrafter
from dartree_exp.interfaces import Block
from dartree_exp.metrics.clock import StageClock
from dartree_exp.models.toy import toy_target
from dartree_exp.verify.sampling import Sampler
from dartree_exp.verify.stopping import StopRule
from markov_heads import MARKOV_HEADS

ON_DSPARK = ("dspark", "dartree_dspark")

torch.set_num_threads(1)  # tiny matrices: a second thread only waits


class NoisyOracle(BlockDrafter):
    """Proposes the target's continuation among equally likely others, with random hidden states and
    a random head.

    The right token is seldom the first candidate, so accepted paths jump between branches.
    """

    def __init__(self, target, head, num_drafts: int = 6) -> None:
        self._oracle = ScriptedDrafter("oracle", target, num_drafts)
        self.name, self.num_drafts, self.block_size = "noisy", num_drafts, num_drafts
        self.target_layer_ids = (0,)
        self.max_positions = target.max_positions
        self.weights_sha256 = None
        self.head, self.confidence = head, None
        torch.manual_seed(6)
        length = LengthHead(target.hidden_size, RANK, num_drafts)
        torch.nn.init.normal_(length.out.weight, std=3.0)  # lengths of all kinds
        self.length = length.to(target.dtype).requires_grad_(False)
        if isinstance(head, tuple(MARKOV_HEADS.values())):
            torch.manual_seed(6)
            confidence = (
                ConfidenceHead(target.hidden_size, RANK).to(target.dtype).requires_grad_(False)
            )
            self.confidence = confidence.bind(head)

    def session(self, prompt_ids, sampler=None):
        return _NoisySession(self, self._oracle.session(prompt_ids, sampler))


class _NoisySession:
    def __init__(self, drafter, inner) -> None:
        self._drafter, self._inner = drafter, inner
        self._committed = 0

    def propose(self, features, root: int, start: int) -> Block:
        self._committed += features.shape[0]
        assert self._committed == start, "features of exactly the committed tokens must arrive"
        block = self._inner.propose(features, root, start)
        noise = torch.Generator().manual_seed(start)
        logits = 1.5 * torch.randn(block.logits.shape, generator=noise)
        truth = block.logits.argmax(-1, keepdim=True)
        logits.scatter_add_(1, truth, 3.0 + torch.rand(truth.shape, generator=noise))
        hidden = torch.randn(block.hidden.shape, generator=noise).to(block.hidden.dtype)
        return Block(hidden, logits, None)


@cache
def tree_config(*overrides: str):
    drafter = ["drafter=dspark"] if "budget=confidence" in overrides else []
    config = compose(["model=toy", "tree.budget=16", *drafter, *overrides])
    return config.tree, config.budget


@cache
def target_of(family: str, dtype: torch.dtype, engine: str = "packed"):
    return toy_target(family, dtype, seed=1, layers=2, engine=engine)


@cache
def plain_decode(target, prompt: tuple[int, ...], sampler: Sampler, rule: StopRule) -> Decoded:
    """Plain decoding does not know the method, so methods share it."""
    return autoregress(target, list(prompt), sampler, rule, StageClock())


class Case:
    """One target and one method, ready to decode by either arm."""

    def __init__(self, target, drafter, *overrides: str) -> None:
        tree, budget = tree_config(*overrides)
        self.target, self.drafter, self.tree_config = target, drafter, tree
        self.method = make_method(tree, budget, drafter)

    def plain(self, prompt=PROMPT, cap=18, sampler=None, **rule) -> Decoded:
        return plain_decode(self.target, tuple(prompt), sampler or Sampler(), _rule(cap, rule))

    def plain_again(self, prompt, cap, sampler, **rule) -> Decoded:
        """`plain`, but decoded now: for tests that change how the target computes."""
        return autoregress(self.target, list(prompt), sampler, _rule(cap, rule), StageClock())

    def drafted(self, prompt=PROMPT, cap=18, sampler=None, on_round=None, **rule) -> Decoded:
        return speculate(
            self.target,
            self.method,
            prompt,
            sampler or Sampler(),
            _rule(cap, rule),
            StageClock(),
            on_round,
        )


def _rule(cap: int, rule: dict) -> StopRule:
    return StopRule(cap, **({"eos_ids": frozenset()} | rule))


@pytest.fixture
def make_case():
    """`make_case(name, *overrides, family=, dtype=, drafter=)`: a fresh method of the table over a
    cached target.

    target: another target in its place.
    """

    def make(
        name,
        *overrides,
        family="llama",
        dtype=torch.float32,
        drafter="noisy",
        num_drafts=6,
        target=None,
    ):
        target, (chosen, head, _, client) = target or target_of(family, dtype), DRAFTING[name]
        if drafter == "noisy":
            made = NoisyOracle(target, head and head(target), num_drafts)
        else:
            made = ScriptedDrafter(drafter, target, num_drafts)
        case = Case(target, made, *chosen, *overrides)
        if client is not None:
            case.method = client(target, case.method)
        return case

    return make
