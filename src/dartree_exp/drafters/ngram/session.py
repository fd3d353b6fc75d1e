"""Prompt lookup: what followed an earlier occurrence of the last tokens is the draft.

Saxena, prompt-lookup-decoding (2023), which takes one occurrence. All occurrences of the longest
n-gram together make a trie here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dartree_exp.drafters.no_drafts import NoDrafts
from dartree_exp.drafters.spec import DrafterSettings
from dartree_exp.drafters.texts import Texts
from dartree_exp.drafters.trie import Trie, trie_scorer
from dartree_exp.interfaces import Accepted, Commit, Draws, Forward, Opening, Probes, Scorer

if TYPE_CHECKING:
    from dartree_exp.engines.target import Target


class NgramDrafter:
    """See `interfaces.Drafter`. longest, shortest: lengths of the n-grams that are looked up."""

    head = confidence = None
    target_layer_ids: tuple[int, ...] = ()
    weights_sha256: str | None = None

    def __init__(
        self, target: Target, num_drafts: int, longest: int, shortest: int, name: str = "ngram"
    ) -> None:
        self.name, self.num_drafts, self.block_size = name, num_drafts, num_drafts
        self.longest, self.shortest = longest, shortest
        self.max_positions = target.max_positions

    @classmethod
    def from_settings(cls, settings: DrafterSettings, target: Target) -> NgramDrafter:
        assert settings.num_drafts is not None  # checked with the configuration
        return cls(target, settings.num_drafts, settings.longest, settings.shortest, settings.name)

    def open(self, opening: Opening) -> NgramSession:
        return NgramSession(self, opening)


class NgramSession:
    def __init__(self, drafter: NgramDrafter, opening: Opening) -> None:
        self._drafter, self._texts = drafter, Texts(opening.prompts)

    def draft(self, commit: Commit, draws: Draws) -> Scorer:
        drafter = self._drafter
        none = self.skip(commit)
        tries = [
            continuations(text, drafter.longest, drafter.shortest, drafter.num_drafts)
            for text in self._texts.ids
        ]
        return trie_scorer(tries, commit.roots, drafter.num_drafts, commit.ids.device) or none

    def skip(self, commit: Commit) -> Scorer:
        self._texts.read(commit)
        return NoDrafts.after(commit)

    def probes(self, tree: object) -> Probes | None:
        return None

    def after(self, accepted: Accepted, forward: Forward) -> None:
        return None


def continuations(text: Sequence[int], longest: int, shortest: int, most: int) -> Trie:
    """Up to `most` tokens after each earlier occurrence of the longest n-gram that ends the text
    and occurred before; empty if none did.
    """
    ids, found = np.asarray(text), Trie()
    for n in range(min(longest, len(ids) - 1), shortest - 1, -1):
        windows = np.lib.stride_tricks.sliding_window_view(ids[:-1], n)
        hits = np.flatnonzero((windows == ids[-n:]).all(1))
        for hit in hits.tolist():
            found.add(text[hit + n : hit + n + most])
        if len(hits):
            break
    return found
