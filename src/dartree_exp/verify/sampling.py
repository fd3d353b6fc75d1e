"""The target's draw at one position: greedy, or Gumbel-max with noise keyed by position.

At T > 0 the draw at an absolute position is `argmax(log p + g)`, where `g` depends only on (seed,
sample id, position, token id). All nodes of one tree depth therefore have the same noise, only one
node per depth is on the committed path, and every exact-match method emits the same ids as plain
decoding with that seed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

GREEDY_EPS = 1e-5  # below this temperature every caller takes the argmax


def sample_key(sample_id: str) -> int:
    """A 64-bit key of a sample id, the same in every process (unlike `hash`)."""
    return int.from_bytes(hashlib.sha256(sample_id.encode()).digest()[:8], "little")


@dataclass(frozen=True)
class Sampler:
    """The target's temperature, top-k and top-p, and the noise of one sample.

    Args:
        temperature: >= 0; below `GREEDY_EPS` the draw is greedy (ties: lowest token id).
        top_k: keep the k largest logits; 0 keeps all.
        top_p: keep the smallest set of largest probabilities whose mass reaches top_p; 1.0 keeps
            all.
        seed: run seed. sample_id: names the prompt and turn; together they key the noise.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    sample_id: str = ""
    _key: tuple[int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_key", (self.seed & (2**64 - 1), sample_key(self.sample_id)))

    @property
    def greedy(self) -> bool:
        return self.temperature < GREEDY_EPS

    def kept(self, logits: Float[Tensor, "*rows V"]) -> Bool[Tensor, "*rows V"]:
        """Tokens kept by top-k, then top-p, of `logits` after temperature (ties with the k-th are
        kept).
        """
        keep = torch.ones_like(logits, dtype=torch.bool)
        if 0 < self.top_k < logits.shape[-1]:
            keep = logits >= logits.topk(self.top_k).values[..., -1:]
        if self.top_p < 1.0:
            scaled = (logits / self.temperature).masked_fill(~keep, -torch.inf)
            probs, order = scaled.softmax(-1).sort(descending=True, stable=True)
            # Mass before the token: the first is always kept.
            nucleus = probs.cumsum(-1) - probs < self.top_p
            keep = keep & torch.zeros_like(keep).scatter(-1, order, nucleus)
        return keep

    def noise(self, position: int, size: int, stream: int = 0) -> Float64[np.ndarray, " {size}"]:
        """Gumbel noise of an absolute position; entry i belongs to token id i,
        whatever `size` is.

        stream: 0 is the target's; others are independent of it.
        """
        bits = np.random.Philox(
            key=np.array(self._key, dtype=np.uint64), counter=[0, 0, stream, position]
        )
        # Exactly 0 would give infinite noise.
        uniform = np.random.Generator(bits).random(size).clip(min=2.0**-54)
        return -np.log(-np.log1p(-uniform))

    def scores(self, logits: Float[Tensor, " V"], position: int) -> Float64[Tensor, " V"]:
        """The deciding score before filters: logits if greedy, else logits / T + g, which is log p
        + g up to a constant.
        """
        logits = logits.double()
        if self.greedy:
            return logits
        noise = torch.from_numpy(self.noise(position, logits.numel())).to(logits.device)
        return logits / self.temperature + noise

    def choose(self, logits: Float[Tensor, " V"], position: int) -> int:
        """The target's token at `position`, the absolute position of the predicted token."""
        if self.greedy:
            return int(logits.argmax())
        return int(self.best_kept(logits, self.scores(logits, position)))

    def best_kept(
        self, logits: Float[Tensor, "*rows V"], scores: Float64[Tensor, "*rows V"]
    ) -> Int64[Tensor, "*rows"]:
        """The kept token with the largest deciding score of each row."""
        return scores.masked_fill(~self.kept(logits.double()), -torch.inf).argmax(-1)


class RoundDraws:
    """The random decisions of one round for R requests: see `interfaces.Draws`.

    Drafts are drawn from softmax(logits / T) at the target's temperature; top-k and top-p apply to
    the target only. Their noise is keyed by the root's position, with the depth as the stream, and
    is independent of the target's.
    """

    def __init__(
        self,
        samplers: Sequence[Sampler],
        start: tuple[int, ...],
        index: int = 0,
        drawn: dict[tuple[int, int], np.ndarray] | None = None,
    ) -> None:
        """drawn: target noise by request and position, kept between rounds, since the positions
        that a round does not reach are drawn again in the next.
        """
        self._samplers, self.start, self._index = samplers, start, index
        self._drawn = {} if drawn is None else drawn
        for request, position in list(self._drawn):
            if position <= start[request]:
                del self._drawn[request, position]

    def where(self, request: int) -> str:
        return f"round {self._index}, sample {self._samplers[request].sample_id!r}"

    def draft(self, logits: Float[Tensor, "*R K"], depth: int) -> Int64[Tensor, "*R"]:
        if logits.dim() == 1:
            return self._draft(0, logits, depth)
        return torch.stack([self._draft(r, row, depth) for r, row in enumerate(logits)])

    def _draft(self, request: int, logits: Float[Tensor, " K"], depth: int) -> Int64[Tensor, ""]:
        sampler = self._samplers[request]
        if sampler.greedy:
            return logits.argmax()
        noise = sampler.noise(self.start[request], logits.numel(), stream=depth)
        scores = logits.double() / sampler.temperature + torch.from_numpy(noise).to(logits.device)
        return scores.argmax()

    def target_noise(self, depth: int, size: int) -> Float64[Tensor, "R {size}"]:
        requests = range(len(self.start))
        return torch.from_numpy(np.stack([self._target_noise(r, depth, size) for r in requests]))

    def _target_noise(self, request: int, depth: int, size: int) -> np.ndarray:
        sampler, position = self._samplers[request], self.start[request] + depth
        if sampler.greedy:
            return np.zeros(size)
        if (request, position) not in self._drawn:
            self._drawn[request, position] = sampler.noise(position, size)
        return self._drawn[request, position]

    def target(self, request: int, logits: Float[Tensor, " V"], depth: int) -> int:
        return self._samplers[request].choose(logits, self.start[request] + depth)

    def target_rows(
        self, logits: Float[Tensor, "R n V"], depths: Int64[Tensor, "R n"], deepest: int
    ) -> Int64[Tensor, "R n"]:
        drawn = []
        for r, sampler in enumerate(self._samplers):
            if sampler.greedy:
                drawn.append(logits[r].argmax(-1))
                continue
            levels = range(1, deepest + 2)
            noise = np.stack([self._target_noise(r, d, logits.shape[-1]) for d in levels])
            scores = logits[r].double() / sampler.temperature
            scores = scores + torch.from_numpy(noise).to(scores.device)[depths[r]]
            drawn.append(sampler.best_kept(logits[r], scores))
        return torch.stack(drawn)
