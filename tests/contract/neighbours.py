"""Other drafters than the block-diffusion ones, with random weights, in the contract's methods.

Their drafts would nearly always be wrong, so the target's continuation gets a share of their
scores; everything else is the drafter's own.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from dartree_exp.config import compose
from dartree_exp.decode import Method
from dartree_exp.drafters import load_drafter
from dartree_exp.drafters.eagle.scorer import EagleScorer
from dartree_exp.drafters.scripted.session import ScriptedDrafter
from dartree_exp.interfaces import Block, Opening
from dartree_exp.trees.lift import EachScorer

SHARE = 4.0


def medusa(target, method: Method) -> Method:
    return replace(method, drafter=HelpedBlocks(toy_drafter("medusa", target), target))


def toy_drafter(name, target, *overrides):
    """The drafter of `model=toy`, on any target."""
    return load_drafter(compose([f"drafter={name}", "model=toy", *overrides]).drafter, target)


def eagle(family, target, method: Method) -> Method:
    return replace(method, drafter=HelpedScorers(toy_drafter(family, target), target))


class HelpedScorers:
    """A drafter that brings its scorer, whose scores are raised at the target's tokens."""

    def __init__(self, drafter, target) -> None:
        self._drafter = drafter
        self._oracle = ScriptedDrafter("oracle", target, drafter.num_drafts)

    def __getattr__(self, name):
        return getattr(self._drafter, name)

    def open(self, opening: Opening):
        session = self._drafter.open(opening)
        pairs = zip(opening.prompts, opening.samplers, strict=True)
        oracles = [self._oracle.session(prompt, sampler) for prompt, sampler in pairs]
        draft = session.draft

        def helped(commit, draws):
            scorers = draft(commit, draws)._scorers
            places = zip(scorers, oracles, commit.roots, commit.start, strict=True)
            known = [(own, one.propose(None, root, at), at) for own, one, root, at in places]
            return EachScorer([HelpedScorer(*each) for each in known])

        session.draft = helped
        return session


class HelpedScorer:
    """One request; states are the drafter's own."""

    def __init__(self, own, truth: Block, start: int) -> None:
        self._own, self._truth = own, truth.logits.argmax(-1)
        self._noise = noise_at(start, self._truth.shape)

    def __getattr__(self, name):
        return getattr(self._own, name)

    def score(self, state, depth):
        right = (self._own.candidates(depth) == self._truth[depth - 1]).to(torch.float32)
        raised = self._own.score(state, depth) + 1.5 * SHARE * self._noise[depth - 1] * right
        return raised.log_softmax(-1)

    def top(self, state, depth, count):
        values, columns = self.score(state, depth).sort(dim=-1, descending=True, stable=True)
        values, columns = values[:, :count], columns[:, :count]
        return self._own.candidates(depth)[columns], values, columns

    def sample(self, *arguments):
        return EagleScorer.sample(self, *arguments)

    def best(self, state, depth):
        tokens, values, columns = self.top(state, depth, 1)
        return tokens[:, 0], values[:, 0], columns[:, 0]


class HelpedBlocks:
    """A drafter that proposes blocks, whose logits are raised at the target's tokens."""

    def __init__(self, drafter, target) -> None:
        self._drafter = drafter
        self._oracle = ScriptedDrafter("oracle", target, drafter.num_drafts)

    def __getattr__(self, name):
        return getattr(self._drafter, name)

    def open(self, opening: Opening):
        pairs = zip(opening.prompts, opening.samplers, strict=True)
        oracles = [self._oracle.session(prompt, sampler) for prompt, sampler in pairs]

        def scoring(block, commit, draws):
            places = zip(oracles, commit.roots, commit.start, strict=True)
            truth = Block.stack([one.propose(None, root, start) for one, root, start in places])
            known = truth.logits.argmax(-1, keepdim=True)
            noise = torch.stack([noise_at(s, block.logits.shape[1:]) for s in commit.start])
            logits = block.logits.scatter_add(2, known, SHARE * noise.gather(2, known))
            return opening.scoring(replace(block, logits=logits), commit, draws)

        return self._drafter.open(replace(opening, scoring=scoring))


def noise_at(start: int, shape) -> torch.Tensor:
    """Uniform in [0, 1), by the position of the root."""
    return torch.rand(shape, generator=torch.Generator().manual_seed(start))
