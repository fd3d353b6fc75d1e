"""Typical acceptance (Medusa, arXiv 2401.10774, section 2.3.2). It changes the target's law.

    accept x below a node  iff  p(x) > min(threshold, alpha exp(-H(p)))
    path: the longest whose drafts are all accepted; of several, the one that is likeliest under p

Every continuation that is likely enough is taken, whether the target would draw it or not.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from dartree_exp.interfaces import Accepted, DraftTree, Draws
from dartree_exp.verify.finite import check_finite
from dartree_exp.verify.spec import TYPICAL, VERIFIERS
from dartree_exp.verify.walk import Fields, Found, accepted, follow


class TypicalAcceptance:
    """p is the law that the target draws from, after temperature, top-k and top-p. The token after
    the path is the target's own draw. A greedy target accepts the token that it takes itself, as
    exact match does.

    Laws are read on the host, so a GPU waits once for each accepted node.
    """

    exact = False
    proposals = VERIFIERS[TYPICAL].proposals

    def __init__(self, threshold: float = 0.09, alpha: float = 0.3) -> None:
        """The defaults are Medusa's `posterior_threshold` and `posterior_alpha`."""
        self._threshold, self._alpha = threshold, alpha

    def __call__(
        self,
        tree: DraftTree,
        logits: Float[Tensor, "R n V"],
        draws: Draws,
        healthy: Bool[Tensor, " R"] | None = None,
    ) -> Accepted:
        """See `interfaces.Verifier`."""
        fields = torch.stack((tree.tokens, tree.parents, tree.depths), dim=1).tolist()
        found = [self._walk(r, own, logits[r], draws) for r, own in enumerate(fields)]
        return accepted([own[0] for own in fields], found, healthy, logits.device)

    def _walk(
        self,
        request: int,
        fields: Fields,
        logits: Float[Tensor, "n V"],
        draws: Draws,
    ) -> Found:
        tokens, parents, depths = fields

        if draws.greedy(request):
            return follow(request, fields, logits, draws)
        likely = {0: 0.0}  # accepted node -> log-probability of its path under p
        laws: dict[int, tuple[Float64[Tensor, " V"], float]] = {}  # law and least probability
        for node, (token, parent) in enumerate(zip(tokens, parents, strict=True)):
            if parent not in likely:  # not accepted; the root and padding have parent -1
                continue
            if parent not in laws:
                check_finite(logits[parent], "target", draws.where(request))
                p = draws.law(request, logits[parent])
                laws[parent] = p, self.least(p)
            p, least = laws[parent]
            if (chance := float(p[token])) > least:
                likely[node] = likely[parent] + math.log(chance)
        path = [max(likely, key=lambda node: (depths[node], likely[node], -node))]
        while path[-1]:
            path.append(parents[path[-1]])
        path.reverse()
        last = path[-1]
        check_finite(logits[last], "target", draws.where(request))
        return path, draws.target(request, logits[last], depths[last] + 1)

    def least(self, p: Float64[Tensor, " V"]) -> float:
        """The probability that a draft must exceed."""
        entropy = float(torch.special.entr(p).sum())
        return min(self._threshold, self._alpha * math.exp(-entropy))
