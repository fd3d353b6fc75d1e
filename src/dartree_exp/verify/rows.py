"""Self-test of row invariance: whether the bits of a target's row depend on the number of rows
computed with it.

Two measurements on the target's own weights: every kind of product over the row counts in use, and
whole forwards, where each of a few decoded tokens is computed as one step and as one row of a tree.
The result holds for this machine, number of threads and versions.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dartree_exp.engines.forward import Product
from dartree_exp.engines.target import Target
from dartree_exp.interfaces import DraftTree
from dartree_exp.trees.masks import position_ids
from dartree_exp.verify.finite import check_finite

STEPS = 8  # decoded tokens compared by the self-test
MEASURED_STEPS = 24  # decoded tokens compared for the tolerance


@torch.inference_mode()
def self_test(target: Target, ids: Sequence[int], rows: int) -> bool:
    """Whether bits are the same over all row counts up to `rows` (from 2 if a single row is
    computed among copies), with the target's current attention. ids: any short prompt.
    """
    counts = row_counts(rows) if target.forward.copied else [1, *row_counts(rows)]
    like = target.lm_head_weight
    return all(same_products(product, counts, like) for product in target.products()) and all(
        row_difference(target, ids, n, STEPS) == 0
        for n in {counts[-1], (counts[-1] + 1) // 2}
        if n > 1
    )


def row_counts(rows: int) -> list[int]:
    """Every number from 2 to 65, then the multiples of 16 and the numbers after them, up to
    `rows`.
    """
    rows = max(2, rows)
    tiles = {n + d for n in range(64, rows, 16) for d in (0, 1)}
    return sorted(n for n in {*range(2, 66), *tiles, rows} if n <= rows)


def same_products(product: Product, counts: list[int], like: Tensor) -> bool:
    """Whether `product` gives each row the same bits for every row count in `counts`. like: a
    tensor of the model's dtype and device.
    """
    draws = torch.Generator().manual_seed(0)
    x, size = (torch.randn(counts[-1], product.columns, generator=draws) for _ in range(2))
    x = (x * torch.exp(2 * size)).to(like)  # a few large values, as in a model's hidden states
    whole = product.of(x)
    if not all(torch.equal(product.of(x[:n]), whole[:n]) for n in counts):
        return False
    singles = range(min(16, len(x))) if counts[0] == 1 else ()
    if not all(torch.equal(product.of(x[i : i + 1]), whole[i : i + 1]) for i in singles):
        return False
    # The last rows too, to test a row at another position of a tile.
    return all(torch.equal(product.of(x[-n:]), whole[-n:]) for n in {2, 3, counts[-1] // 2 + 1})


@torch.inference_mode()
def row_difference(
    target: Target, ids: Sequence[int], rows: int, steps: int = MEASURED_STEPS
) -> float:
    """Largest absolute difference of a logit between one-token steps after `ids` and the same
    tokens as tree rows.

    The tree has at least `rows` rows; its path of `steps` greedy tokens is not in adjacent rows if
    there is room for siblings. Raises NonFiniteLogitsError for logits that are not finite.
    """
    cache = target.new_cache(len(ids) + max(rows, steps + 1) + 1)
    token = int(target.prefill(ids, cache).logits[-1].argmax())
    alone: list[Tensor] = []
    path = []
    for _ in range(steps + 1):
        path.append(token)
        alone.append(target.step(token, cache))
        token = int(alone[-1].argmax())
    cache.keep(len(ids))
    tree, places = path_tree(path, rows, target.vocab_size, target.device)
    mask = target.mask(tree.parents, len(ids))
    together = target.verify(tree.tokens, position_ids(tree, len(ids)), mask, cache).logits[places]
    check_finite(together, "target", "warm-up")
    return float((together.double() - torch.stack(alone).double()).abs().max())


def path_tree(
    path: list[int], rows: int, vocab: int, device: torch.device
) -> tuple[DraftTree, list[int]]:
    """A tree of max(rows, len(path)) rows that contains `path` (root first), and the rows of the
    path's tokens.

    At every depth some siblings come before the path's node; their ids follow its token.
    """
    depth = len(path) - 1
    spare = max(rows, len(path)) - len(path)
    tokens, parents, depths, places = [path[0]], [-1], [0], [0]
    for d in range(1, depth + 1):
        more = spare // depth + (d <= spare % depth)
        tokens += [(path[d] + 1 + i) % vocab for i in range(more)] + [path[d]]
        parents += [places[-1]] * (more + 1)
        depths += [d] * (more + 1)
        places.append(len(tokens) - 1)
    nodes, above, levels = torch.tensor([tokens, parents, depths], device=device).unbind()
    return DraftTree(
        nodes, above, levels, torch.zeros(len(tokens), device=device), None, len(tokens) - 1
    ), places
