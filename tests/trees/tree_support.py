"""Small seeded drafters, heads of golden cases and the naive views of a tree that the tests compare
with.
"""

from collections import Counter

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dartree_exp.drafters.heads.gru import GRUHead
from dartree_exp.drafters.heads.head import Head
from dartree_exp.drafters.heads.latent import LatentHead
from dartree_exp.drafters.heads.markov import MarkovHead
from dartree_exp.interfaces import Block
from dartree_exp.kernels.tree_mask import visibility
from dartree_exp.trees.children import Children
from dartree_exp.trees.masks import position_ids
from dartree_exp.trees.scorer import make_scorer
from markov_heads import MARKOV_HEADS


def golden_head(tensors: dict, prefix: int) -> Head:
    """The head of a golden case: vanilla Markov, or GRU bound to its embedding table."""
    if MarkovHead.key_prefix + MarkovHead.output_key in tensors:
        keys = [key for key in tensors if key.startswith(MarkovHead.key_prefix)]
        markov = MarkovHead(tensors["hidden"].shape[1], *tensors[keys[0]].shape)
        markov.load_state_dict(
            {key.removeprefix(MarkovHead.key_prefix): tensors[key] for key in keys}
        )
        return markov.requires_grad_(False)
    rank, joint = tensors["embed_proj.0.weight"].shape
    vocab = tensors["embed_proj.2.weight"].shape[0]
    width = tensors["prefix_gru.weight_hh_l0"].shape[1]
    head = GRUHead(joint - width, vocab, width, rank, prefix)
    head.load_state_dict(
        {
            key: value
            for key, value in tensors.items()
            if key.startswith(("prefix_gru", "embed_proj"))
        }
    )
    return head.requires_grad_(False).bind(tensors["target.embed_tokens.weight"])


def check_verification_tree(tree, tensors, scores, root_position: int) -> None:
    """A built tree against a golden one; scores: of the supertree or pool that it was cut from."""
    assert torch.equal(tree.tokens[1:], tensors["tree.tokens"])
    assert torch.equal(tree.parents, tensors["tree.parents"])
    assert torch.equal(tree.depths[1:], tensors["tree.depths"])
    # Products of fewer rows round differently, and a built tree grows only where needed.
    torch.testing.assert_close(tree.scores[1:], scores[tensors["kept_indices"]])
    assert torch.equal(visibility(tree.parents), tensors["tree.visibility"])
    assert torch.equal(position_ids(tree, root_position)[0], tensors["tree.position_ids"])


def drafter(
    seed: int,
    depths: int,
    vocab: int,
    *,
    prefix: int = 0,
    scale: float = 3.0,
    columns=None,
    head_type="gru",
):
    """A random block and head: GRU, latent, or of a Markov type. `columns`: target ids the block is
    restricted to.
    """
    gen = torch.Generator().manual_seed(seed)
    total = vocab if columns is None else max(columns) + 1
    if head_type == "gru":
        made = GRUHead(6, total, 5, 4, prefix)
    elif head_type == "latent":
        made = LatentHead(6, 3, 4, "slot")
    else:
        made = MARKOV_HEADS[head_type](6, total, 4)
    head = made.requires_grad_(False)
    for weight in head.parameters():
        weight.normal_(generator=gen)
    ids = None if columns is None else torch.tensor(columns)
    head.bind(torch.randn(total, 6, generator=gen), ids)
    logits = scale * torch.randn(depths, vocab, generator=gen)
    return Block(torch.randn(depths, 6, generator=gen), logits, ids), head


def scorer(
    scoring: str,
    seed: int,
    depths: int,
    vocab: int,
    *,
    candidates="all",
    normalise="candidates",
    root=0,
    **kwargs,
):
    """A seeded scorer."""
    block, head = drafter(seed, depths, vocab, **kwargs)
    return make_scorer(scoring, block, head, root, candidates=candidates, normalise=normalise)


def paths(tree) -> dict[tuple[int, ...], float]:
    """Token path of every node, with its score."""
    found, of = {}, [()]
    tokens, parents, scores = tree.tokens.tolist(), tree.parents.tolist(), tree.scores.tolist()
    for node in range(1, len(tokens)):
        of.append((*of[parents[node]], tokens[node]))
        found[of[-1]] = scores[node]
    assert len(found) == len(tokens) - 1
    return found


def every_path(scorer, depths: int) -> dict[tuple[int, ...], float]:
    """All prefixes of up to `depths` tokens with their scores in double precision, by recursion
    over single nodes.
    """
    found = {}

    def visit(state, depth, path, total):
        row = scorer.score(state, depth)[0].double().tolist()
        for token, step in zip(scorer.candidates(depth).tolist(), row, strict=True):
            found[(*path, token)] = total + step
            if depth < depths:
                below = scorer.advance(state, depth, torch.tensor([0]), torch.tensor([token]))
                visit(below, depth + 1, (*path, token), total + step)

    visit(scorer.start(), 1, (), 0.0)
    return found


class Operations(TorchDispatchMode):
    """Counts tensor operations and refuses those that bring data to the host."""

    FORBIDDEN = (
        "_local_scalar_dense",
        "item",
        "nonzero",
        "equal",
        "is_nonzero",
        "_to_copy",
        "unique",
    )

    def __init__(self):
        super().__init__()
        self.count = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name.removeprefix("aten::")
        assert name not in self.FORBIDDEN, f"{name} reads the device"
        self.count[name] += 1
        return func(*args, **(kwargs or {}))


class Shapes:
    """A scorer on the meta device: tensors have shapes but no data, so any look at data raises."""

    num_drafts = 6
    path_dependent = True

    root = torch.empty((), dtype=torch.int64, device="meta")

    def start(self):
        return torch.empty(1, 5, device="meta")

    def candidates(self, depth):
        return torch.empty(16, dtype=torch.int64, device="meta")

    def score(self, state, depth):
        return torch.empty(state.shape[0], 16, device="meta")

    def top(self, state, depth, count):
        size = (state.shape[0], min(count, 16))
        ints = torch.empty(size, dtype=torch.int64, device="meta")
        return ints, torch.empty(size, device="meta"), ints

    def advance(self, state, depth, parent, token):
        return state[parent] + token[:, None]


ALL = Children()
