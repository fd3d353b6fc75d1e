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

from dartree_exp.kernels.candidate_select import stable_topk

GREEDY_EPS = 1e-5  # below this temperature every caller takes the argmax
NOISE = 1024  # the target's noise of a position is made for a multiple of this many ids


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

    def kept(
        self, logits: Float[Tensor, "*rows V"], temperature: float | None = None
    ) -> Bool[Tensor, "*rows V"]:
        """Tokens kept by top-k, then top-p, of `logits` after temperature (None: the target's; ties
        with the k-th are kept).
        """
        temperature = self.temperature if temperature is None else temperature
        keep = torch.ones_like(logits, dtype=torch.bool)
        if 0 < self.top_k < logits.shape[-1]:
            keep = logits >= logits.topk(self.top_k).values[..., -1:]
        if self.top_p < 1.0:
            scaled = (logits / temperature).masked_fill(~keep, -torch.inf)
            probs, order = scaled.softmax(-1).sort(descending=True, stable=True)
            # Mass before the token: the first is always kept.
            nucleus = probs.cumsum(-1) - probs < self.top_p
            keep = keep & torch.zeros_like(keep).scatter(-1, order, nucleus)
        return keep

    def log_law(
        self, logits: Float[Tensor, "*rows V"], temperature: float | None = None
    ) -> Float64[Tensor, "*rows V"]:
        """Log-probabilities after temperature (None: the target's), top-k and top-p: what the
        target draws from, and what sampled drafts are drawn from. One token of each row if greedy.
        """
        temperature = self.temperature if temperature is None else temperature
        logits = logits.double()
        if temperature < GREEDY_EPS:
            best = logits.argmax(-1, keepdim=True)
            return torch.full_like(logits, -torch.inf).scatter_(-1, best, 0.0)
        scaled = logits / temperature
        if self.top_k or self.top_p < 1.0:
            scaled.masked_fill_(~self.kept(logits, temperature), -torch.inf)
        return scaled.log_softmax(-1)

    def uniforms(self, position: int, size: int, stream: int) -> Float64[np.ndarray, " {size}"]:
        """Uniform numbers in [0, 1) of an absolute position; the first ones are the same whatever
        `size` is.

        stream: 0 is the target's; others are independent of it and of each other.
        """
        bits = np.random.Philox(
            key=np.array(self._key, dtype=np.uint64), counter=[0, 0, stream, position]
        )
        return np.random.Generator(bits).random(size)

    def noise(self, position: int, size: int, stream: int = 0) -> Float64[np.ndarray, " {size}"]:
        """Gumbel noise made of `uniforms`; entry i belongs to token id i."""
        # Exactly 0 would give infinite noise.
        uniform = self.uniforms(position, size, stream).clip(min=2.0**-54)
        return -np.log(-np.log1p(-uniform))

    def scores(
        self, logits: Float[Tensor, " V"], position: int, noise: np.ndarray | None = None
    ) -> Float64[Tensor, " V"]:
        """The deciding score before filters: logits if greedy, else logits / T + g, which is log p
        + g up to a constant. noise: g, if it is at hand.
        """
        logits = logits.double()
        if self.greedy:
            return logits
        noise = self.noise(position, logits.numel()) if noise is None else noise
        return logits / self.temperature + torch.from_numpy(noise).to(logits.device)

    def choose(
        self, logits: Float[Tensor, " V"], position: int, noise: np.ndarray | None = None
    ) -> int:
        """The target's token at `position`, the absolute position of the predicted token."""
        if self.greedy:
            return int(logits.argmax())
        return int(self.best_kept(logits, self.scores(logits, position, noise)))

    def best_kept(
        self, logits: Float[Tensor, "*rows V"], scores: Float64[Tensor, "*rows V"]
    ) -> Int64[Tensor, "*rows"]:
        """The kept token with the largest deciding score of each row."""
        return scores.masked_fill(~self.kept(logits.double()), -torch.inf).argmax(-1)


class RoundDraws:
    """The random decisions of one round for R requests: see `interfaces.Draws`.

    All noise besides the target's is keyed by the root's position and a stream, so it is
    independent of the target's: that of drafts has the depth as the stream, that of rejection
    sampling `VERIFY` + the depth.
    """

    VERIFY = 2**32

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

    def drafts(
        self,
        logits: Float[Tensor, "*R N K"],
        depth: int,
        count: int,
        temperature: float | None = None,
    ) -> tuple[Int64[Tensor, "*R N {count}"], Float64[Tensor, "*R N K"]]:
        if logits.dim() == 2:
            return self._drafts(0, logits, depth, count, temperature)
        found = [self._drafts(r, rows, depth, count, temperature) for r, rows in enumerate(logits)]
        places, laws = zip(*found, strict=True)
        return torch.stack(places), torch.stack(laws)

    def _drafts(
        self,
        request: int,
        logits: Float[Tensor, "N K"],
        depth: int,
        count: int,
        temperature: float | None,
    ) -> tuple[Int64[Tensor, "N {count}"], Float64[Tensor, "N K"]]:
        """The `count` largest of log q + Gumbel noise: draws without replacement, in order. All
        rows have the same noise, since at most one of them is on the accepted path.
        """
        sampler = self._samplers[request]
        log_q = sampler.log_law(logits, temperature)
        if (sampler.temperature if temperature is None else temperature) < GREEDY_EPS:
            return stable_topk(logits, count)[1], log_q
        noise = sampler.noise(self.start[request], logits.shape[-1], stream=depth)
        return stable_topk(log_q + torch.from_numpy(noise).to(log_q.device), count)[1], log_q

    def greedy(self, request: int) -> bool:
        return self._samplers[request].greedy

    @property
    def temperatures(self) -> tuple[float, ...]:
        return tuple(sampler.temperature for sampler in self._samplers)

    def kept(
        self, request: int, logits: Float[Tensor, "*rows K"], temperature: float
    ) -> Bool[Tensor, "*rows K"] | None:
        sampler = self._samplers[request]
        if sampler.top_p == 1.0 and not sampler.top_k:
            return None
        return sampler.kept(logits, temperature)

    def law(self, request: int, logits: Float[Tensor, " V"]) -> Float64[Tensor, " V"]:
        return self._samplers[request].log_law(logits).exp()

    def uniforms(self, request: int, depth: int, size: int) -> list[float]:
        sampler, start = self._samplers[request], self.start[request]
        drawn: list[float] = sampler.uniforms(start, size, self.VERIFY + depth).tolist()
        return drawn

    def one(self, request: int) -> RoundDraws:
        drawn = {(0, place): g for (r, place), g in self._drawn.items() if r == request}
        return RoundDraws([self._samplers[request]], (self.start[request],), self._index, drawn)

    def target_noise(self, depth: int, size: int) -> Float64[Tensor, "R {size}"]:
        requests = range(len(self.start))
        return torch.from_numpy(np.stack([self._target_noise(r, depth, size) for r in requests]))

    def _target_noise(self, request: int, depth: int, size: int) -> np.ndarray:
        sampler, position = self._samplers[request], self.start[request] + depth
        if sampler.greedy:
            return np.zeros(size)
        found = self._drawn.get((request, position))
        if found is None or len(found) < size:
            # A drafting vocabulary ends a little before the target's: drawn once for both.
            whole = -(-size // NOISE) * NOISE
            found = self._drawn[request, position] = sampler.noise(position, whole)
        return found[:size]

    def target(self, request: int, logits: Float[Tensor, " V"], depth: int) -> int:
        noise = self._target_noise(request, depth, logits.numel())
        return self._samplers[request].choose(logits, self.start[request] + depth, noise)

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
