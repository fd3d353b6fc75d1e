"""Rejection sampling: a sampled draft x is accepted with probability min(1, p(x) / q(x)).

Speculative sampling (Leviathan et al., arXiv 2211.17192; Chen et al., arXiv 2302.01318) for chains;
for siblings, recursive rejection in the order of their draws. The emitted tokens have the target's
own law, whatever q is, if each draft was drawn from the q that is given here.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from dartree_exp.interfaces import Accepted, DraftTree, Draws
from dartree_exp.verify.finite import check_finite
from dartree_exp.verify.spec import REJECTION, VERIFIERS
from dartree_exp.verify.walk import Fields, Found, accepted, follow

LEAST_MASS = 1e-8  # below it max(p - q, 0) is rounding, and p is kept

Law = Float64[Tensor, " V"]


class RejectionSampling:
    """For trees whose nodes were drawn from `DraftTree.laws`. A greedy target accepts the token
    that it takes itself, as exact match does.

    Each decision is read on the host, so a GPU waits once for each node that is tried.
    """

    exact = True
    proposals = VERIFIERS[REJECTION].proposals

    def __call__(
        self,
        tree: DraftTree,
        logits: Float[Tensor, "R n V"],
        draws: Draws,
        healthy: Bool[Tensor, " R"] | None = None,
    ) -> Accepted:
        """See `interfaces.Verifier`. Raises ValueError for a tree without the laws it needs."""
        fields = torch.stack((tree.tokens, tree.parents, tree.depths), dim=1).tolist()
        found = [
            follow(r, own, logits[r], draws)
            if draws.greedy(r)
            else self._sampled(r, tree, own, logits[r], draws)
            for r, own in enumerate(fields)
        ]
        return accepted([own[0] for own in fields], found, healthy, logits.device)

    def _sampled(
        self,
        request: int,
        tree: DraftTree,
        fields: Fields,
        logits: Float[Tensor, "n V"],
        draws: Draws,
    ) -> Found:
        tokens, parents, depths = fields
        children: dict[int, list[int]] = {}
        for node, parent in enumerate(parents):
            children.setdefault(parent, []).append(node)
        path = [0]
        while True:
            node = path[-1]
            check_finite(logits[node], "target", draws.where(request))
            siblings = children.get(node, [])
            *tries, last = draws.uniforms(request, depths[node] + 1, len(siblings) + 1)
            p = draws.law(request, logits[node])
            taken = None
            if siblings:
                q = law_of_children(tree, request, node, depths[node], p.numel())
                drafts = [tokens[child] for child in siblings]
                taken, p = first_accepted(p, q, drafts, tries, tree.proposal == "distinct")
            if taken is None:
                return path, draw(p, last)
            path.append(siblings[taken])


def law_of_children(tree: DraftTree, request: int, node: int, depth: int, vocab: int) -> Law:
    """q over the vocabulary, as the children of a node were drawn from it."""
    if tree.laws is None:
        raise ValueError("rejection sampling needs the laws of the draws: this tree was cut")
    row = int(tree.laws.row[request, node])
    log_q, ids = tree.laws.log_q[depth][request, row], tree.laws.ids[depth]
    ids = ids if ids.dim() == 1 else ids[request]
    return torch.zeros(vocab, dtype=torch.float64, device=ids.device).index_put(
        (ids,), log_q.double().exp()
    )


def first_accepted(
    p: Law, q: Law, drafts: Sequence[int], uniforms: Sequence[float], distinct: bool
) -> tuple[int | None, Law]:
    """The index of the first draft that is accepted, and the law to draw from if there is none.

    drafts: drawn from q in this order; distinct: without replacement. A draft without probability
    was not drawn: everything that q can give was rejected before it.
    """
    for index, (draft, uniform) in enumerate(zip(drafts, uniforms, strict=True)):
        chance = q[draft]
        if not chance > 0:
            continue
        if uniform * chance < p[draft]:
            return index, p
        p = residual(p, q)
        if distinct:
            q = q.clone()
            q[draft] = 0.0
            q /= q.sum().clamp(min=torch.finfo(q.dtype).tiny)
    return None, p


def residual(p: Law, q: Law) -> Law:
    """max(p - q, 0), normalised; p if there is next to nothing left."""
    left = (p - q).clamp(min=0)
    mass = left.sum()
    return left / mass if mass > LEAST_MASS else p


def draw(p: Law, uniform: float) -> int:
    """The token at which the sum of p passes `uniform`."""
    sums = p.cumsum(0)
    return int(torch.searchsorted(sums, uniform * sums[-1], right=True))
