"""Tiny targets, a drafter that is right often enough to exercise trees, and every named method over it."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from contract_support import PROMPT

from dartree_exp.assemble import make_method
from dartree_exp.config import compose
from dartree_exp.decode import Decoded, autoregress, speculate
from dartree_exp.drafters.block import Block
from dartree_exp.drafters.confidence import ConfidenceHead
from dartree_exp.drafters.gru import GRUHead
from dartree_exp.drafters.markov import MARKOV_HEADS
from dartree_exp.drafters.scripted import ScriptedDrafter
from dartree_exp.models.toy import toy_target
from dartree_exp.timing import StageClock
from dartree_exp.verify.sampling import Sampler
from dartree_exp.verify.stopping import StopRule

ON_DSPARK = ("dspark", "dartree_dspark")

torch.set_num_threads(1)  # tiny matrices: a second thread only waits


class NoisyOracle:
    """Proposes the target's continuation among equally likely others, with random hidden states and a random head.

    The right token is seldom the first candidate, so accepted paths jump between branches.
    """

    def __init__(self, target, num_drafts: int = 6, head_type: str | None = "gru") -> None:
        self._oracle = ScriptedDrafter("oracle", target, num_drafts)
        self.name, self.num_drafts, self.block_size = "noisy", num_drafts, num_drafts
        self.target_layer_ids = (0,)
        self.max_positions = target.max_positions
        self.weights_sha256 = None
        self.head = self.confidence = None
        torch.manual_seed(5)
        if head_type == "gru":
            head = GRUHead(target.hidden_size, target.vocab_size, 16, 8, pure_draft_prefix_len=1)
            self.head = head.to(target.dtype).requires_grad_(False).bind(target.embed_weight)
        elif head_type is not None:
            head = MARKOV_HEADS[head_type](target.hidden_size, target.vocab_size, 8)
            self.head = head.to(target.dtype).requires_grad_(False).bind(target.embed_weight)
            confidence = ConfidenceHead(target.hidden_size, 8).to(target.dtype).requires_grad_(False)
            self.confidence = confidence.bind(self.head)

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
def tree_config(method: str, *overrides: str):
    drafter = ["drafter=dspark"] if "budget=confidence" in overrides else []
    config = compose([f"method={method}", "tree.budget=16", *drafter, *overrides])
    return config.tree, config.budget


@cache
def target_of(family: str, dtype: torch.dtype):
    return toy_target(family, dtype, seed=1, layers=2)


class Case:
    """One target and one method, ready to decode by either arm."""

    def __init__(self, target, drafter, method: str, *overrides: str) -> None:
        tree, budget = tree_config(method, *overrides)
        self.target, self.drafter, self.tree_config = target, drafter, tree
        self.method = make_method(tree, budget, drafter)

    def plain(self, prompt=PROMPT, cap=18, sampler=None, **rule) -> Decoded:
        return autoregress(self.target, prompt, sampler or Sampler(), _rule(cap, rule), StageClock())

    def drafted(self, prompt=PROMPT, cap=18, sampler=None, on_round=None, **rule) -> Decoded:
        return speculate(
            self.target, self.method, prompt, sampler or Sampler(), _rule(cap, rule), StageClock(), on_round
        )


def _rule(cap: int, rule: dict) -> StopRule:
    return StopRule(cap, **({"eos_ids": frozenset()} | rule))


@pytest.fixture
def make_case():
    """`make_case(method, *overrides, family=, dtype=, drafter=)`, a fresh method over a cached target.

    method: a preset, on its own head, or `preset@head` with a type of Markov head.
    """

    def make(method, *overrides, family="llama", dtype=torch.float32, drafter="noisy", num_drafts=6):
        target = target_of(family, dtype)
        method, _, head = method.partition("@")
        if drafter == "noisy":
            own = None if method in ("dflash", "ddtree") else "vanilla" if method in ON_DSPARK else "gru"
            made = NoisyOracle(target, num_drafts, head or own)
        else:
            made = ScriptedDrafter(drafter, target, num_drafts)
        return Case(target, made, method, *overrides)

    return make
