"""Exact-match verification: follow the child whose token is the target's own draw.

Lossless for any tree: each emitted token is the target's draw in its own context, and siblings
differ, so at most one child matches (DDTree, arXiv 2604.12989, verification; DARTree, arXiv
2608.13524, preliminaries).
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from dartree_exp.interfaces import Accepted, DraftTree, Draws
from dartree_exp.verify.finite import check_finite
from dartree_exp.verify.walk import Found, accepted, follow, walk


class ExactMatch:
    """Correct for trees of any proposal, since acceptance does not depend on it."""

    exact = True
    proposals: tuple[str, ...] = ("best", "sampled", "distinct")

    def __call__(
        self,
        tree: DraftTree,
        logits: Float[Tensor, "R n V"],
        draws: Draws,
        healthy: Bool[Tensor, " R"] | None = None,
    ) -> Accepted:
        """See `interfaces.Verifier`.

        On a CPU the target's token is drawn only for rows that the walk visits. On another device
        it is drawn for every row in one pass, and the results reach the host in one transfer.

        Only visited rows must be finite. A NaN in the keys or values of another row still reaches
        the visited rows, since a masked key has weight zero and 0 * NaN is NaN.

        Raises NonFiniteLogitsError.
        """
        ids = torch.stack((tree.tokens, tree.parents, tree.depths), dim=1)  # [R, 3, 1+N]
        if not logits.is_cpu:
            return self._fetch(tree, ids, logits, draws, healthy)
        fields = ids.tolist()
        found = [follow(r, own, logits[r], draws) for r, own in enumerate(fields)]
        return accepted([own[0] for own in fields], found, healthy, logits.device)

    def _fetch(
        self,
        tree: DraftTree,
        ids: Int64[Tensor, "R 3 n"],
        logits: Float[Tensor, "R n V"],
        draws: Draws,
        healthy: Bool[Tensor, " R"] | None,
    ) -> Accepted:
        """The same for all requests on another device, with one transfer."""
        if healthy is None:
            healthy = torch.ones(len(ids), dtype=torch.bool, device=ids.device)
        n = ids.shape[-1]
        drawn = draws.target_rows(logits, ids[:, 2], tree.deepest)
        finite = torch.isfinite(logits.sum(-1, dtype=torch.float64))
        flags = torch.cat((finite, healthy[:, None]), 1).to(torch.int64)
        packed = torch.cat((ids[:, :2].flatten(1), drawn, flags), 1).tolist()
        found: list[Found] = []
        for r, row in enumerate(packed):
            tokens, parents, choice, sound = (row[i * n : i * n + n] for i in range(4))
            path, bonus = walk(tokens, parents, choice.__getitem__)
            if not all(sound[node] for node in path):
                check_finite(logits[r, path], "target", draws.where(r))
            found.append((path, bonus))
        fine = [bool(row[-1]) for row in packed]
        return accepted([row[:n] for row in packed], found, fine, logits.device)
