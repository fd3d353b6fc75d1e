"""Progressive Tree Drafting (arXiv 2607.10661): the target guesses its own continuations in probe
rows of each verification forward. No drafter, no training.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from dartree_exp.drafters.no_drafts import NoDrafts
from dartree_exp.drafters.ptd.forest import ROOT, Forest, Shape
from dartree_exp.drafters.trie import Trie, trie_scorer
from dartree_exp.interfaces import (
    Accepted,
    Commit,
    DraftTree,
    Draws,
    Forward,
    Opening,
    Probes,
    Scorer,
)

if TYPE_CHECKING:
    from dartree_exp.drafters.spec import DrafterSettings
    from dartree_exp.engines.target import Target


class PTDDrafter:
    """See `interfaces.Drafter`. The guess tree of a round is what the pool has for its root."""

    head = None
    confidence = None
    target_layer_ids: tuple[int, ...] = ()
    weights_sha256: str | None = None

    def __init__(self, target: Target, shape: Shape, seed: int = 0, name: str = "ptd") -> None:
        self.name, self.target, self.shape, self.seed = name, target, shape, seed
        self.num_drafts = shape.depth
        self.max_probes = shape.rows
        self.block_size = shape.depth + shape.first + 1  # positions behind the root
        self.max_positions = target.max_positions

    @classmethod
    def from_settings(cls, settings: DrafterSettings, target: Target) -> PTDDrafter:
        assert settings.num_drafts is not None  # validated
        shape = Shape(settings.num_drafts, settings.children, settings.probes)
        return cls(target, shape, settings.seed, settings.name)

    def open(self, opening: Opening) -> PTDSession:
        return PTDSession(self, opening)


class PTDSession:
    """The forests of the requests of one loop."""

    def __init__(self, drafter: PTDDrafter, opening: Opening) -> None:
        self._drafter, self._resting = drafter, False
        self._forests = [
            Forest(drafter.shape, prompt, drafter.seed, drafter.target.eos_ids)
            for prompt in opening.prompts
        ]
        self._counts: list[int] = []  # probe rows of each request in this round

    def draft(self, commit: Commit, draws: Draws) -> Scorer:
        self._resting = False
        pairs = zip(self._forests, commit.roots, strict=True)
        tries = [forest.pool.get(root, Trie()) for forest, root in pairs]
        found = trie_scorer(tries, commit.roots, self._drafter.num_drafts, commit.ids.device)
        return found or self._none(commit)

    def skip(self, commit: Commit) -> Scorer:
        self._resting = True
        return self._none(commit)

    def _none(self, commit: Commit) -> NoDrafts:
        return NoDrafts.after(commit)

    def probes(self, tree: DraftTree) -> Probes | None:
        """The guesses of every request, behind its root; shorter ones are padded with guesses that
        nobody reads.
        """
        if self._resting:
            return None
        nodes = tree.tokens.shape[1]
        rows = [forest.rows() for forest in self._forests]
        self._counts = [len(tokens) for tokens, _ in rows]
        most = max(self._counts)
        tokens = [ids + [0] * (most - len(ids)) for ids, _ in rows]
        parents = [
            [0 if place == ROOT else nodes + place for place in above] + [0] * (most - len(above))
            for _, above in rows
        ]
        device = tree.tokens.device
        return Probes(torch.tensor(tokens, device=device), torch.tensor(parents, device=device))

    def after(self, accepted: Accepted, forward: Forward) -> None:
        if self._resting:
            return
        said = forward.probe_logits.argmax(-1).tolist()
        for forest, row, count in zip(self._forests, said, self._counts, strict=True):
            forest.grow(row[:count])
