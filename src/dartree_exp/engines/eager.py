"""The plain engine: one library forward and one cache per request."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dartree_exp.engines.cache import TargetCache
from dartree_exp.engines.target import Output, Target
from dartree_exp.interfaces import Accepted, Commit, DraftTree, Forward, Probes, Rows


class EagerEngine:
    """R requests of one loop on `Target`; see `interfaces.Engine`.

    capacities: rows of each request's cache (prompt, answer and the largest tree with its probes).
    taps: decoder layers whose outputs the drafter reads.
    """

    def __init__(self, target: Target, capacities: Sequence[int], taps: Sequence[int]) -> None:
        self._target, self._taps = target, taps
        self.caches: list[TargetCache] = [target.new_cache(rows) for rows in capacities]
        self._start = [0] * len(self.caches)  # rows of each cache that are committed
        self._rows: Rows | None = None

    def prefill(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Commit]:
        outputs = [
            self._target.prefill(ids, cache, self._taps)
            for ids, cache in zip(prompts, self.caches, strict=True)
        ]
        self._start = [len(ids) for ids in prompts]
        device = self._target.device
        ids = _padded([torch.tensor(list(prompt), device=device) for prompt in prompts])
        commit = Commit(
            roots=(0,) * len(prompts),  # the loop replaces them by the tokens it samples
            start=tuple(self._start),
            lengths=tuple(self._start),
            ids=ids,
            features=_padded(_features(outputs)) if self._taps else None,
            hidden=_padded([output.hidden for output in outputs]),
        )
        return torch.stack([output.logits[-1] for output in outputs]), commit

    def rows(self, tree: DraftTree, probes: Probes | None) -> Rows:
        start = torch.tensor(self._start, device=tree.tokens.device)[:, None]
        tokens, parents, positions = tree.tokens, tree.parents, tree.depths + start
        if probes is not None:
            tokens = torch.cat((tokens, probes.tokens), 1)
            parents = torch.cat((parents, probes.parents), 1)
            for p in range(probes.tokens.shape[1]):
                above = positions.gather(1, probes.parents[:, p : p + 1])
                positions = torch.cat((positions, above + 1), 1)
        masks = [self._target.mask(parents[r], past) for r, past in enumerate(self._start)]
        return Rows(tokens, parents, positions, tuple(masks), nodes=tree.tokens.shape[1])

    def forward(self, rows: Rows) -> Forward:
        self._rows = rows
        outputs = [
            self._target.verify(tokens, position[None], mask, cache, self._taps)
            for tokens, position, mask, cache in zip(
                rows.tokens, rows.positions, rows.masks, self.caches, strict=True
            )
        ]
        return Forward(
            logits=_stacked([output.logits for output in outputs]),
            features=_stacked(_features(outputs)) if self._taps else None,
            hidden=_stacked([output.hidden for output in outputs]),
            nodes=rows.nodes,
        )

    def commit(self, forward: Forward, accepted: Accepted, active: Sequence[bool]) -> Commit:
        paths = [path if on else [] for path, on in zip(accepted.paths, active, strict=True)]
        for cache, start, path in zip(self.caches, self._start, paths, strict=True):
            cache.keep(start, [start + node for node in path])
        self._start = [start + len(path) for start, path in zip(self._start, paths, strict=True)]
        assert self._rows is not None
        on_device = accepted.path
        places = [on_device[r, : len(path)] for r, path in enumerate(paths)]

        def committed(rows: Tensor) -> Tensor:
            return _padded([rows[r].index_select(0, place) for r, place in enumerate(places)])

        return Commit(
            roots=accepted.bonus,
            start=tuple(self._start),
            lengths=tuple(len(path) for path in paths),
            ids=committed(self._rows.tokens),
            features=None if forward.features is None else committed(forward.features),
            hidden=committed(forward.hidden),
        )


def _features(outputs: Sequence[Output]) -> list[Tensor]:
    return [output.features for output in outputs if output.features is not None]


def _stacked(rows: Sequence[Tensor]) -> Tensor:
    """[n, ...] of each request, stacked: [R, n, ...]; a view for one request."""
    return rows[0][None] if len(rows) == 1 else torch.stack(list(rows))


def _padded(rows: Sequence[Tensor]) -> Tensor:
    """[L_r, ...] of each request, padded with zeros: [R, L, ...]; a view for one request."""
    if len(rows) == 1:
        return rows[0][None]
    return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True)
