"""A miniature client for each seam of the loop: what the systems to come need, in a few lines each.

Each client takes the target and a method on it and gives the method with its own parts in place.
The contract suite runs on all of them.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from dartree_exp.budgets.fixed import FixedBudget
from dartree_exp.decode import Method
from dartree_exp.drafters.lm.session import LmDrafter
from dartree_exp.drafters.ngram.session import NgramDrafter
from dartree_exp.drafters.scripted.session import ScriptedDrafter
from dartree_exp.interfaces import Block, Limits, Probes
from dartree_exp.models.toy import MASK_ID
from dartree_exp.trees.marginal import MarginalScorer


class Client:
    """What a drafter must have, without weights."""

    block_size = num_drafts = 3
    target_layer_ids: tuple[int, ...] = ()
    weights_sha256 = None

    def __init__(self, target) -> None:
        self.name, self.target = type(self).__name__, target
        self.max_positions = target.max_positions

    def open(self, opening):
        self.opening = opening
        return self.session(opening)

    def probes(self, tree):
        return None

    def after(self, accepted, forward):
        return None


# A language model that is not quite the target. What it adds to a row depends on the row alone.


class Doubting:
    def __init__(self, target) -> None:
        self._target = target
        seeded = torch.Generator().manual_seed(3)
        self._noise = torch.randn(target.vocab_size, target.vocab_size, generator=seeded)

    def __getattr__(self, name):
        return getattr(self._target, name)

    def doubted(self, logits):
        noise = self._noise[logits.argmax(-1)].to(logits)
        return logits + 0.5 * logits.std(-1, keepdim=True) * noise

    def prefill(self, ids, cache):
        out = self._target.prefill(ids, cache)
        return replace(out, logits=self.doubted(out.logits))

    def step(self, token, cache):
        return self.doubted(self._target.step(token, cache))

    def verify(self, *arguments):
        out = self._target.verify(*arguments)
        return replace(out, logits=self.doubted(out.logits))


def lm_drafter(target):
    return LmDrafter(Doubting(target), target, 4)


# A drafter whose probe rows ride in the verification forward (PTD): mask tokens below the root
# guess what comes later, and the next block is made of the guesses.


class ProbingDrafter(Client):
    block_size = num_drafts = max_probes = 2

    def session(self, opening):
        return ProbingSession(self.target, opening)


class ProbingSession(Client):
    def __init__(self, target, opening) -> None:
        self.opening, requests = opening, len(opening.prompts)
        self.guesses = torch.zeros(requests, ProbingDrafter.max_probes, target.vocab_size)
        oracle = ScriptedDrafter("oracle", target, ProbingDrafter.max_probes)
        pairs = zip(opening.prompts, opening.samplers, strict=True)
        self.oracles = [oracle.session(prompt, sampler) for prompt, sampler in pairs]

    def draft(self, commit, draws):
        places = zip(self.oracles, commit.roots, commit.start, strict=True)
        known = Block.stack([one.propose(None, root, start) for one, root, start in places])
        # An untrained target guesses badly: the truth gets a share.
        logits = self.guesses.float() + 0.1 * known.logits
        return self.opening.scoring(replace(known, logits=logits), commit, draws)

    def probes(self, tree):
        requests, nodes = tree.tokens.shape
        first, second = torch.zeros(requests, 1), torch.full((requests, 1), nodes)
        parents = torch.cat((first, second), 1).long()  # a chain below the root
        return Probes(torch.full_like(parents, MASK_ID), parents)

    def after(self, accepted, forward):
        self.guesses = forward.probe_logits
        assert forward.verify_logits.shape[1] + ProbingDrafter.max_probes == len(forward.logits[0])


# A policy that reads what rows cost, and asks for another block of depths where they are cheap.


class ExtendingScorer(MarginalScorer):
    def __init__(self, block, roots) -> None:
        super().__init__(block, roots, "all", "vocab")
        self.num_drafts = 2

    def extend(self):
        if self.num_drafts == self.table.num_drafts:
            return False
        self.num_drafts = min(self.num_drafts + 2, self.table.num_drafts)
        return True


def extending(block, commit, draws):
    return ExtendingScorer(block, commit.roots)


class CostReading(FixedBudget):
    """As many nodes as pay, each taken to be accepted with probability 1/2 per depth; another
    block of depths while a step costs less than a tenth of what the next block brings.
    """

    def plan(self, view, scorer):
        def gain(nodes):
            return (2 - 0.5**nodes) / view.cost(nodes + 1)

        nodes = max(range(view.limits.nodes + 1), key=gain)
        while nodes > scorer.num_drafts and scorer.extend():
            pass
        return Limits(min(view.limits.depth, scorer.num_drafts), nodes)


def cheap(rows: int) -> float:
    return 1.0 + 0.001 * rows


def roomy(method: Method, more: int = 0, **parts) -> Method:
    """Parts that do not read `tree.candidates`, and room for the trees they make and for `more`
    rows.
    """
    return replace(method, max_rows=1 + method.budget + more, **parts)


CLIENTS = {
    "probing drafter": lambda target, method: on(ProbingDrafter(target), method),
    "cost-reading policy": lambda target, method: roomy(
        method, scoring=extending, policy=CostReading(), cost=cheap
    ),
}


OWN_SCORERS = {"lm": lm_drafter, "ngram": lambda target: NgramDrafter(target, 4, 3, 1)}
"""Drafters that bring their scorer."""


def on(drafter, method: Method) -> Method:
    return replace(
        method, drafter=drafter, max_rows=method.max_rows + getattr(drafter, "max_probes", 0)
    )
