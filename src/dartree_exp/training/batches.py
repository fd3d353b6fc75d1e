"""Captured features in memory, the order in which samples are visited, and random anchors.

Everything random is drawn from generators seeded by (seed, purpose, counter), so a resumed run
continues with the same batches. New shards join during a run: capture and training overlap.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from dartree_exp.training.errors import InputError
from dartree_exp.training.forward import BlockInputs
from dartree_exp.training.shards import read_finals, read_shard, shard_path, shards_from

MIN_OUTPUT = 8  # tokens; shorter outputs have hardly an anchor with labels


@dataclass(frozen=True)
class Captured:
    """One sample: ids int64 [L], its prompt length, features bfloat16 [L, n * H]; finals bfloat16
    [L, H], the target's final-normed hidden states, if they were asked for. roots: int64 [n], the
    positions at which a drafter began its rounds; None if the text was not drafted. The last id of
    a drafted text may have no features and finals: it is a label only.
    """

    name: str
    domain: str
    ids: Tensor
    prompt: int
    features: Tensor
    finals: Tensor | None = None
    roots: Tensor | None = None


class FeatureStore:
    """The shards 1.. of a folder up to the first that is missing (shard 0 is held out), with final
    hidden states if `finals`.
    """

    def __init__(self, folder: Path, taps: tuple[int, ...], finals: bool = False) -> None:
        self.folder, self.taps, self.finals = folder, taps, finals
        self.samples: list[Captured] = []
        self.shards = 0

    def available(self) -> int:
        """Number of shards on disk, from shard 1 on, without a gap."""
        return self.shards + shards_from(self.folder, self.shards + 1)

    def grow(self, shards: int) -> list[int]:
        """Load up to this many shards; indices of the new samples."""
        before = len(self.samples)
        while self.shards < shards:
            self.shards += 1
            self.samples += load_captured(self.folder, self.shards, self.taps, self.finals)
        return list(range(before, len(self.samples)))


def load_captured(
    folder: Path, number: int, taps: tuple[int, ...], finals: bool = False
) -> list[Captured]:
    """The samples of one shard with enough output to train or validate on."""
    shard = read_shard(shard_path(folder, number), taps)
    final = read_finals(folder, number, len(shard.ids)) if finals else None
    out, begin = [], 0
    for i, length in enumerate(shard.lengths.tolist()):
        part, prompt = slice(begin, begin + length), int(shard.prompt_lengths[i])
        if length - prompt >= MIN_OUTPUT:
            out.append(
                Captured(
                    shard.names[i],
                    shard.domains[i],
                    shard.ids[part].long(),
                    prompt,
                    shard.features[part],
                    None if final is None else final[part],
                )
            )
        begin += length
    return out


def generator(*key: int) -> torch.Generator:
    """A generator whose stream depends on all integers of the key."""
    state = 0
    for part in key:
        state = (state * 1_000_003 + part + 0x9E3779B9) % (2**63 - 1)
    return torch.Generator().manual_seed(state)


class Order:
    """Visits every known sample once per epoch, in random order; new samples are mixed into the
    running epoch.
    """

    def __init__(self, seed: int) -> None:
        self.seed, self.epoch, self.shuffles = seed, 0, 0
        self.known, self.queue = 0, list[int]()

    def add(self, indices: list[int]) -> None:
        self.known += len(indices)
        self._shuffle(self.queue + indices)

    def take(self, count: int) -> list[int]:
        """The next `count` samples; a new epoch starts where the old one runs out."""
        if not self.known:
            raise InputError(
                "no captured sample to train on: only shard 0, which is held out, or outputs too "
                "short"
            )
        while len(self.queue) < count:
            rest, self.queue = self.queue, []
            self.epoch += 1
            self._shuffle(list(range(self.known)))
            self.queue = rest + self.queue
        taken, self.queue = self.queue[:count], self.queue[count:]
        return taken

    def state(self) -> dict:
        return {
            "epoch": self.epoch,
            "shuffles": self.shuffles,
            "known": self.known,
            "queue": self.queue,
        }

    def restore(self, state: dict) -> None:
        self.epoch, self.shuffles = state["epoch"], state["shuffles"]
        self.known, self.queue = state["known"], list(state["queue"])

    def _shuffle(self, indices: list[int]) -> None:
        self.shuffles += 1
        permutation = torch.randperm(len(indices), generator=generator(self.seed, 1, self.shuffles))
        self.queue = [indices[i] for i in permutation.tolist()]


@dataclass(frozen=True)
class Finals:
    """The target's final-normed hidden states of a batch: bfloat16 [T, H] of all its tokens, and
    the rows int64 [S, A] of the anchors.
    """

    hidden: Tensor
    rows: Tensor

    def before(self) -> Tensor:
        """[S, A, H], what predicted each anchor."""
        return self.hidden[(self.rows - 1).clamp_min(0)]

    def behind(self, slots: Tensor) -> Tensor:
        """[N * R, H], what predicts the token after each slot int64 [N, R] of the N blocks. Rows of
        slots without a label are any.
        """
        rows = self.rows.flatten()[:, None] + slots
        return self.hidden[rows.flatten().clamp_max(len(self.hidden) - 1)]


@dataclass(frozen=True)
class Batch:
    """Inputs of the forward and what it should predict.

    labels: int64 [S, A, b], column of the token at anchor + k + 1, or -1 (past the end, not in the
        draft vocabulary, or an unused anchor slot). previous: int64 [S, A, b], target ids of the
        tokens at anchor + k (teacher forcing).
    inside: bool [S, A, b], there is a token to predict, in the draft vocabulary or not.
    following: int64 [S, C], the token after each context position (any where padded).
    finals: None for samples without them.
    """

    inputs: BlockInputs
    labels: Tensor
    previous: Tensor
    inside: Tensor
    following: Tensor
    finals: Finals | None = None


@dataclass(frozen=True)
class Vocabulary:
    """Frozen tables of the target and the drafting softmax' restriction.

    embed: [V, H]; head: [Vd, H], the lm_head rows of `ids` int64 [Vd]; columns: int64 [V], column
    of an id or -1.
    """

    embed: Tensor
    head: Tensor
    ids: Tensor
    columns: Tensor
    mask_token_id: int

    @classmethod
    def of(cls, embed: Tensor, lm_head: Tensor, ids: list[int], mask_token_id: int) -> Vocabulary:
        kept = torch.tensor(ids)
        columns = torch.full((embed.shape[0],), -1)
        columns[kept] = torch.arange(len(kept))
        return cls(embed, lm_head[kept].contiguous(), kept, columns, mask_token_id)


def random_anchors(sample: Captured, count: int, rng: torch.Generator) -> Tensor:
    """int64 [<= count], ascending distinct positions from the first output token on, each with a
    label behind it; of a drafted text those at which rounds began.
    """
    if sample.roots is not None:
        return sample.roots[torch.randperm(len(sample.roots), generator=rng)[:count].sort().values]
    places = len(sample.ids) - 1 - sample.prompt
    return sample.prompt + torch.randperm(places, generator=rng)[:count].sort().values


def make_batch(
    samples: list[Captured],
    anchors: list[Tensor],
    block: int,
    scale: Tensor,
    vocabulary: Vocabulary,
) -> Batch:
    """Pack samples with their anchors; `scale` float32 [n * H] multiplies the features."""
    used = [int(a[-1]) for a in anchors]  # Context from the last anchor on is visible to none.
    features = (
        torch.cat([s.features[:n] for s, n in zip(samples, used, strict=True)]).float().mul_(scale)
    )
    rows, following = torch.zeros(2, len(samples), max(used), dtype=torch.int64)
    places = torch.zeros(len(samples), max(len(a) for a in anchors), dtype=torch.int64)
    tokens = torch.full((*places.shape, block + 1), -1)
    begin = 0
    for i, (sample, chosen) in enumerate(zip(samples, anchors, strict=True)):
        rows[i, : used[i]] = torch.arange(begin, begin + used[i])
        following[i, : used[i]] = sample.ids[1 : used[i] + 1]
        begin += used[i]
        # Unused anchor slots repeat the first anchor, without labels.
        places[i] = torch.cat([chosen, chosen[:1].expand(places.shape[1] - len(chosen))])
        at = chosen[:, None] + torch.arange(block + 1)
        tokens[i, : len(chosen)] = torch.where(
            at < len(sample.ids), sample.ids[at.clamp_max(len(sample.ids) - 1)], -1
        )
    roots = torch.stack([s.ids[p] for s, p in zip(samples, places, strict=True)])
    inside = tokens[:, :, 1:] >= 0
    labels = torch.where(inside, vocabulary.columns[tokens[:, :, 1:]], -1)
    inputs = BlockInputs(
        features, rows, places, vocabulary.embed[roots], vocabulary.embed[vocabulary.mask_token_id]
    )
    finals = [s.finals for s in samples if s.finals is not None]
    taught = None
    if len(finals) == len(samples):
        starts = torch.tensor([0, *(len(f) for f in finals[:-1])]).cumsum(0)
        taught = Finals(torch.cat(finals), starts[:, None] + places)
    return Batch(inputs, labels, tokens[:, :, :-1].clamp_min(0), inside, following, taught)


def feature_scale(samples: list[Captured]) -> Tensor:
    """1 / rms of each feature over the samples, float32 [n * H]; the first position, an attention
    sink, is left out.
    """
    total, count = torch.zeros(samples[0].features.shape[1], dtype=torch.float64), 0
    for sample in samples:
        total += sample.features[1:].double().square().sum(0)
        count += len(sample.ids) - 1
    return (total / count).rsqrt().float()


def picked(hidden: Tensor, slots: Tensor | None) -> Tensor:
    """Slots int64 [S, A, R] of all slots' hidden states [S, A, b, H]."""
    if slots is None:
        return hidden
    return hidden.gather(2, slots[..., None].expand(-1, -1, -1, hidden.shape[-1]))
