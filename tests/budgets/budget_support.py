"""Random trees and cost curves for the tests of policies, and a policy's choice of one round."""

from __future__ import annotations

import torch

from dartree_exp.budgets.cost import CostCurve
from dartree_exp.interfaces import Accepted, DraftTree, Limits, Overhead, RoundResult, RoundView


def random_tree(seed: int, nodes: int = 24, coarse: bool = False) -> DraftTree:
    """With request axis; coarse: few distinct probabilities, so chances tie."""
    noise = torch.Generator().manual_seed(seed)
    parents, depths, scores = [-1], [0], [0.0]
    for node in range(1, nodes + 1):
        parent = int(torch.randint(node, (), generator=noise))
        q = float(torch.rand((), generator=noise))
        q = 0.25 + 0.25 * round(2 * q) if coarse else q
        parents.append(parent)
        depths.append(depths[parent] + 1)
        scores.append(scores[parent] + torch.tensor(q).log().item())
    fields = [torch.tensor([values]) for values in (range(nodes + 1), parents, depths)]
    tree = DraftTree(*fields, torch.tensor([scores]), None, nodes, levels=max(depths))
    return tree.validate(nodes)


def chain(*q: float) -> DraftTree:
    """A path whose drafts have these probabilities."""
    scores = torch.tensor([1.0, *q]).log().cumsum(0)
    number = torch.arange(len(q) + 1)
    fields = (number, number - 1, number, scores, number - 1)
    tokens, parents, depths, scores, ranks = (field[None] for field in fields)
    return DraftTree(tokens, parents, depths, scores, ranks, len(q), levels=len(q)).validate(len(q))


def convex(seed: int, rows: int = 25) -> CostCurve:
    """A random rising convex table of every number of rows."""
    noise = torch.Generator().manual_seed(seed)
    slopes = (0.2 * torch.rand(rows, generator=noise)).sort().values
    seconds = 1.0 + torch.cat([torch.zeros(1), slopes]).cumsum(0)
    return CostCurve(dict(enumerate(seconds.tolist(), start=1)))


def staircase(step: int, rise: float, rows: int = 25) -> CostCurve:
    """Constant over `step` rows, then a rise."""
    return CostCurve({n: 1.0 + rise * ((n - 1) // step) for n in range(1, rows + 1)})


OVERHEAD, MOST = Overhead(0.3, 0.1), Limits(64, 64)


def view(cost, index=0, requests=1, overhead=OVERHEAD, most=MOST, **more):
    return RoundView(index, (7,) * requests, most, cost, overhead, **more)


def cut(policy, tree: DraftTree, cost, **more) -> DraftTree:
    """The tree that a new policy verifies of this one in its first round."""
    first = view(cost, requests=tree.tokens.shape[0], **more)
    assert policy.drafts(first)
    return policy.trim(first, tree, None)


def observe(policy, tree: DraftTree, *accepted: int) -> None:
    """A round in which each request accepted so many drafts."""
    paths = tuple(list(range(n + 1)) for n in accepted)
    found = Accepted(paths, paths, (0,) * len(paths), (True,) * len(paths), torch.device("cpu"))
    policy.observe(RoundResult(tree, found, None, {}))
