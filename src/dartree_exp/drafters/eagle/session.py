"""Drafting with EAGLE: reads the committed tokens shifted by one, with the target's features."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from dartree_exp.drafters.dflash.cache import DraftCache
from dartree_exp.drafters.eagle.model import EagleModel
from dartree_exp.drafters.eagle.scorer import EagleScorer
from dartree_exp.drafters.no_drafts import NoDrafts
from dartree_exp.drafters.values import CheckpointError
from dartree_exp.interfaces import Accepted, Commit, Draws, Forward, Opening, Probes, Scorer
from dartree_exp.kernels.packed_linear import packed_linear
from dartree_exp.models.digests import digest_of_files
from dartree_exp.trees.lift import EachScorer

if TYPE_CHECKING:
    from dartree_exp.engines.target import Target


class EagleDrafter:
    """EAGLE-2 or EAGLE-3, bound to a target; see `interfaces.Drafter`.

    embed: the drafter's own token embedding [V, H], None for the target's. vocab_ids: int64 [Vd],
    target ids of the draft vocabulary; None: all, in order. Raises CheckpointError if the drafter
    does not fit the target.
    """

    head = None
    confidence = None

    def __init__(
        self,
        name: str,
        target: Target,
        model: EagleModel,
        num_drafts: int,
        embed: Float[Tensor, "V H"] | None = None,
        vocab_ids: Int64[Tensor, " Vd"] | None = None,
        weight_files: Sequence[Path] = (),
    ) -> None:
        config = model.config
        check_fit(config.feature_size, config.vocab_size, config.hidden_size, embed, target)
        self.name, self.model = name, packed(model)
        self.num_drafts = self.block_size = num_drafts
        self.target_layer_ids = config.taps(target.num_layers)
        self.max_positions = config.max_position_embeddings
        self._weight_files = tuple(weight_files)
        self._embed = target.embed_weight if embed is None else embed
        vocabulary = config.vocab_size if vocab_ids is None else len(vocab_ids)
        self.ids = torch.arange(vocabulary) if vocab_ids is None else vocab_ids
        self.ids = self.ids.to(target.device)
        self._target_head = None if config.third else packed_linear(target.lm_head_weight)

    @cached_property
    def weights_sha256(self) -> str | None:
        """Hex digest of the weight files; None for modules without files."""
        return digest_of_files(self._weight_files) if self._weight_files else None

    def open(self, opening: Opening) -> EagleSession:
        return EagleSession(self, opening)

    def forward(
        self,
        hidden: Float[Tensor, "rows H"],
        tokens: Int64[Tensor, " rows"],
        positions: Int64[Tensor, " rows"],
        mask: Float[Tensor, "rows keys"],
        cache: DraftCache,
    ) -> Float[Tensor, "rows H"]:
        """Output hidden states; the rows stay in the cache."""
        embeds = F.embedding(tokens, self._embed).to(hidden.dtype)
        out: Tensor = self.model(hidden, embeds, positions, mask, cache)
        cache.length += len(tokens)
        return out

    def logits(self, hidden: Float[Tensor, "rows H"]) -> Float[Tensor, "rows Vd"]:
        """Over the draft vocabulary, float32 at least."""
        logits = (self._target_head or self.model.logits)(hidden)
        return logits.to(torch.promote_types(logits.dtype, torch.float32))


def packed(model: EagleModel) -> EagleModel:
    """The same parameters with packed products: a later change of the weights is not seen. `model`
    stays as it is, so that it can be trained.
    """
    shared = {id(weight): weight for weight in model.parameters()}
    made = copy.deepcopy(model, shared)
    for part in made.modules():
        if isinstance(part, nn.Linear):
            product: Any = packed_linear(part.weight, part.bias)
            part.forward = product  # type: ignore[method-assign]
    return made


def check_fit(
    features: int, vocabulary: int, hidden: int, embed: Tensor | None, target: Target
) -> None:
    """Raise CheckpointError with the key, its value and what the target allows."""
    rows, width = target.embed_weight.shape
    wrong = [
        ("target_hidden_size", features, width),
        ("vocab_size", vocabulary, rows),
        ("hidden_size (without embed_tokens.weight)", hidden, width if embed is None else hidden),
    ]
    for key, value, allowed in wrong:
        if value != allowed:
            raise CheckpointError(
                f"drafter does not fit target {target.name}: {key} = {value}, allowed: {allowed}"
            )


class _Text:
    """One request: the cache, and the committed rows that the drafter has not read yet."""

    def __init__(self, cache: DraftCache) -> None:
        self.cache, self.read = cache, 0  # rows of the cache that are text
        self.ids: list[Tensor] = []
        self.features: list[Tensor] = []
        self.scorer: EagleScorer | None = None


class EagleSession:
    """The row of position t is the target's feature of t with the token at t + 1; the last row, of
    the position before the root, has the root's. Its output says depth 1.
    """

    def __init__(self, drafter: EagleDrafter, opening: Opening) -> None:
        self._drafter, self._lend = drafter, opening.lend
        self._texts = [_Text(drafter.model.new_cache()) for _ in opening.prompts]

    def draft(self, commit: Commit, draws: Draws) -> Scorer:
        self._note(commit)
        for r, text in enumerate(self._texts):
            if commit.lengths[r]:
                text.scorer = self._read(text, commit.roots[r], commit.start[r])
        made = [text.scorer for text in self._texts if text.scorer is not None]
        # What is drafted for a request that has ended is not committed; any scorer will do.
        return EachScorer([text.scorer or made[0] for text in self._texts])

    def skip(self, commit: Commit) -> Scorer:
        self._note(commit)
        return NoDrafts.after(commit)

    def _note(self, commit: Commit) -> None:
        features = commit.features if self._drafter.model.config.third else commit.hidden
        assert features is not None
        for r, (text, length) in enumerate(zip(self._texts, commit.lengths, strict=True)):
            if length:
                text.ids.append(commit.ids[r, :length])
                text.features.append(features[r, :length])

    @torch.no_grad()
    def _read(self, text: _Text, root: int, start: int) -> EagleScorer:
        """Read the rows up to the root at position `start`. Raises ValueError if the noted rows do
        not end there.
        """
        drafter, cache = self._drafter, text.cache
        ids, features = torch.cat(text.ids), torch.cat(text.features)
        text.ids, text.features = [], []
        cache.length, count = text.read, len(ids)
        if text.read + count != start:
            raise ValueError(
                f"drafter {drafter.name}: features of {start - text.read} tokens are needed to "
                f"reach position {start}, got {count}"
            )
        tokens = torch.cat([ids[1:], ids.new_tensor([root])])
        weight = drafter.model.fc.weight
        hidden = drafter.model.start(features.to(weight.dtype))
        later = hidden.new_full((count, count), torch.finfo(hidden.dtype).min).triu(1)
        mask = torch.cat([later.new_zeros(count, text.read), later], 1)
        positions = torch.arange(text.read, start, device=ids.device)
        out = drafter.forward(hidden, tokens, positions, mask, cache)
        text.read = start
        return EagleScorer(drafter, cache, root, start, out[-1:], self._lend)

    def probes(self, tree: object) -> Probes | None:
        return None

    def after(self, accepted: Accepted, forward: Forward) -> None:
        return None
