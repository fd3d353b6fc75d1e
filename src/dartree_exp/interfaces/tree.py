"""The draft tree that a builder returns and a verifier reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int64
from torch import Tensor


@dataclass(frozen=True, eq=False)
class DraftLaws:
    """The laws q that the nodes of a tree were drawn from, by the depth of their parents.

    A verifier needs the law of each parent that it visits, as a whole.
    """

    log_q: tuple[Float[Tensor, "*R _ K"], ...]  # of the expanded nodes of each depth
    ids: tuple[Int64[Tensor, "*R K"] | Int64[Tensor, " K"], ...]  # target ids of the columns
    row: Int64[Tensor, "*R n"]  # the row of a node among those of its depth; -1: not expanded


@dataclass(frozen=True, eq=False)
class DraftTree:
    """A prefix tree of N drafted tokens below the root for each request, n = 1+N nodes; all tensors
    are on one device.

    Node 0 is the root: the last committed token, not a draft, never counted in a budget. Parents
    come before their children. `validate` checks the invariants; no builder does.

    Smaller trees are padded with nodes of parent -1, token and depth 0 and score -inf, which no
    path reaches.
    """

    tokens: Int64[Tensor, "*R n"]  # target token ids
    parents: Int64[Tensor, "*R n"]  # node index of the parent; -1 at the root
    depths: Int64[Tensor, "*R n"]  # 0 at the root
    scores: Float[Tensor, "*R n"]  # log-probability of the path under the drafter; 0 at the root
    # index of the token among its depth's candidates; -1 at the root
    ranks: Int64[Tensor, "*R n"] | None
    # non-root nodes before pruning, also those not grown because no descendant of theirs could be
    # kept; N if nothing is pruned
    supertree_size: int
    levels: int | None = None  # upper bound of the depths, known on the host; None: N
    supertree: DraftTree | None = None  # what was grown before pruning, for the record
    kept: Int64[Tensor, "*R n"] | None = None  # indices of these nodes in the supertree
    size: Int64[Tensor, "*R"] | None = None  # nodes, root included; None: 1+N, no padding
    proposal: str = "best"
    """How nodes were proposed: `best` (the likeliest children), `sampled` (drawn from q with
    replacement) or `distinct` (without). A rejection rule is correct for one kind only.
    """
    laws: DraftLaws | None = None  # what the children were drawn from, where they were drawn

    @property
    def num_nodes(self) -> int:
        """N: without the root, with padding."""
        return self.tokens.shape[-1] - 1

    @property
    def deepest(self) -> int:
        """An upper bound of the depths that needs no transfer from the device."""
        return self.num_nodes if self.levels is None else self.levels

    def one(self, request: int) -> DraftTree:
        """The tree of one request, without request axis and padding; reads `size` on the host."""
        end = self.tokens.shape[-1] if self.size is None else int(self.size[request])

        def of(field: Tensor | None) -> Tensor | None:
            return None if field is None else field[request, :end]

        return replace(
            self,
            tokens=self.tokens[request, :end],
            parents=self.parents[request, :end],
            depths=self.depths[request, :end],
            scores=self.scores[request, :end],
            ranks=of(self.ranks),
            kept=of(self.kept),
            laws=None,
            supertree=None if self.supertree is None else self.supertree.one(request),
            size=None,
        )

    @staticmethod
    def stack(trees: Sequence[DraftTree]) -> DraftTree:
        """Trees of one request each, padded to the largest, along a new request axis."""
        sizes = [tree.tokens.shape[0] for tree in trees]
        end, first = max(sizes), trees[0]

        def side_by_side(name: str, fill: float) -> Tensor | None:
            fields = [getattr(tree, name) for tree in trees]
            if any(field is None for field in fields):
                return None
            return torch.stack(
                [torch.nn.functional.pad(f, (0, end - f.shape[0]), value=fill) for f in fields]
            )

        supertrees = [tree.supertree for tree in trees]
        whole = [tree for tree in supertrees if tree is not None]
        padded = min(sizes) < end
        return DraftTree(
            tokens=side_by_side("tokens", 0),  # type: ignore[arg-type]
            parents=side_by_side("parents", -1),  # type: ignore[arg-type]
            depths=side_by_side("depths", 0),  # type: ignore[arg-type]
            scores=side_by_side("scores", -torch.inf),  # type: ignore[arg-type]
            ranks=side_by_side("ranks", -1),
            supertree_size=max(tree.supertree_size for tree in trees),
            levels=max(tree.deepest for tree in trees),
            supertree=DraftTree.stack(whole) if len(whole) == len(trees) else None,
            kept=side_by_side("kept", -1),
            size=torch.tensor(sizes, device=first.tokens.device) if padded else None,
            proposal=first.proposal,
        )

    def validate(self, budget: int | None = None) -> DraftTree:
        """Check every invariant and return self; for tests and debugging, since it reads the tree
        on the host. With a request axis, each request's tree is checked.

        Raises ValueError naming the first node that breaks one: a proper root, parents that exist
        and come first (prefix closed), depths one more than the parent's, distinct siblings, scores
        that never rise along a path, at most `budget` nodes.
        """
        if self.tokens.dim() == 2:
            for request in range(self.tokens.shape[0]):
                self.one(request).validate(budget)
            return self
        tokens, parents, depths = self.tokens.tolist(), self.parents.tolist(), self.depths.tolist()
        scores = self.scores.tolist()
        if not tokens or (parents[0], depths[0], scores[0]) != (-1, 0, 0.0):
            raise ValueError("node 0 is not a root: it must have parent -1, depth 0 and score 0")
        if budget is not None and self.num_nodes > budget:
            raise ValueError(f"{self.num_nodes} nodes exceed the budget of {budget}")
        if self.supertree_size < self.num_nodes:
            raise ValueError(
                f"supertree of {self.supertree_size} nodes is smaller than the tree of"
                f" {self.num_nodes}"
            )
        seen: dict[tuple[int, int], int] = {}
        for node in range(1, len(tokens)):
            parent = parents[node]
            if not 0 <= parent < node:
                raise ValueError(
                    f"node {node}: parent {parent} does not come before it (not prefix closed)"
                )
            if depths[node] != depths[parent] + 1:
                raise ValueError(
                    f"node {node}: depth {depths[node]} below parent depth {depths[parent]}"
                )
            twin = seen.setdefault((parent, tokens[node]), node)
            if twin != node and self.proposal != "sampled":
                raise ValueError(
                    f"nodes {twin} and {node} are siblings with the same token {tokens[node]}"
                )
            if not scores[node] <= scores[parent]:  # NaN fails as well
                raise ValueError(
                    f"node {node}: score {scores[node]} exceeds its parent's {scores[parent]}"
                )
        return self
