"""Drafters without weights, for tests and demonstrations.

`oracle` proposes the target's own continuation, `random` seeded noise, `adversarial` any tokens
except the target's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from dartree_exp.drafters.block_session import BlockDrafter
from dartree_exp.drafters.spec import FAMILIES, DrafterSettings
from dartree_exp.errors import ConfigError
from dartree_exp.interfaces import Block

if TYPE_CHECKING:
    from dartree_exp.engines.target import Target

CERTAIN = 30.0  # finite, as drafting logits must be; e^-30 is far below any other path


class Choice(Protocol):
    """The target's decision rule."""

    def choose(self, logits: Tensor, position: int) -> int:
        """The token at an absolute position, given the target's logits [V] for it."""


class ScriptedDrafter(BlockDrafter):
    """One of the kinds in `drafters/spec.py`, bound to a target; see `interfaces.Drafter`.

    No head, no taps. Every depth of a block has random logits [V] around zero, seeded by `seed`,
    the prompt and the root's position. seed: any non-negative integer. Raises ValueError for an
    unknown kind or fewer than one draft.
    """

    head = None
    confidence = None
    target_layer_ids: tuple[int, ...] = ()
    weights_sha256: str | None = None

    def __init__(self, kind: str, target: Target, num_drafts: int, seed: int = 0) -> None:
        kinds = FAMILIES["scripted"].kinds
        if kind not in kinds:
            raise ValueError(f"scripted drafter {kind!r}: allowed are {', '.join(kinds)}")
        if num_drafts < 1:
            raise ValueError(f"num_drafts = {num_drafts}: a scripted drafter needs at least 1")
        self.name = kind
        self.num_drafts = num_drafts
        self.block_size = num_drafts
        self.max_positions = target.max_positions
        self.target = target
        self.seed = seed

    @classmethod
    def from_settings(cls, settings: DrafterSettings, target: Target) -> ScriptedDrafter:
        """Raises ConfigError if the number of drafts is missing."""
        if settings.num_drafts is None:
            raise ConfigError(
                f"drafter.num_drafts = null: drafter.name={settings.name} is scripted and needs a "
                "number"
            )
        return cls(settings.name, target, settings.num_drafts, settings.seed)

    def session(self, prompt_ids: Sequence[int], sampler: Choice | None = None) -> ScriptedSession:
        return ScriptedSession(self, prompt_ids, sampler)


class ScriptedSession:
    """Scripted drafting of one prompt. Decodes the target's continuation as far as needed."""

    def __init__(
        self, drafter: ScriptedDrafter, prompt_ids: Sequence[int], sampler: Choice | None
    ) -> None:
        self._drafter = drafter
        text = ",".join(map(str, [drafter.seed, *prompt_ids]))
        self._key = int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "little")
        knows_target = drafter.name != "random"
        self._truth = Continuation(drafter.target, prompt_ids, sampler) if knows_target else None

    def propose(self, features: Tensor | None, root: int, start: int) -> Block:
        drafter, target = self._drafter, self._drafter.target
        noise = torch.Generator().manual_seed(self._key + start)
        logits = torch.randn(drafter.num_drafts, target.vocab_size, generator=noise)
        if self._truth is not None:
            for slot in range(drafter.num_drafts):
                token = self._truth.token(start + slot + 1)
                if token is not None:
                    logits[slot, token] = CERTAIN if drafter.name == "oracle" else -CERTAIN
        hidden = torch.zeros(
            drafter.num_drafts, target.hidden_size, dtype=target.dtype, device=target.device
        )
        return Block(hidden, logits.to(target.device), None)


class Continuation:
    """The target's continuation of a prompt by plain decoding, extended on demand."""

    def __init__(self, target: Target, prompt_ids: Sequence[int], sampler: Choice | None) -> None:
        self._target = target
        self._sampler = sampler
        self._first = len(prompt_ids)
        limits = [limit for limit in (target.max_positions, target.window) if limit is not None]
        self._cache = target.new_cache(min(limits))
        self._ids: list[int] = []
        self._append(target.prefill(list(prompt_ids), self._cache, ()).logits[-1])

    def token(self, position: int) -> int | None:
        """The token at an absolute position after the prompt, or None past the target's range."""
        while len(self._ids) <= position - self._first:
            if self._cache.length >= self._cache.capacity:
                return None
            self._append(self._target.step(self._ids[-1], self._cache))
        return self._ids[position - self._first]

    def _append(self, logits: Tensor) -> None:
        if self._sampler is None:
            self._ids.append(int(logits.argmax()))
        else:
            self._ids.append(self._sampler.choose(logits, self._first + len(self._ids)))
