"""Markov heads: tree states, restricted vocabularies, and drafting equal to teacher forcing."""

import pytest
import torch

from dartree_exp.drafters.heads.markov import MarkovHead
from dartree_exp.interfaces import Block
from markov_heads import MARKOV_HEADS

H, V, RANK, D = 12, 30, 5, 6


def make(head_type: str) -> tuple[MarkovHead, Block]:
    torch.manual_seed(2)
    head = MARKOV_HEADS[head_type](H, V, RANK).double().requires_grad_(False)
    for weight in head.parameters():
        weight.normal_()
    return head, Block(torch.randn(D, H, dtype=torch.float64), torch.zeros(D, V), None)


@pytest.mark.parametrize("head_type", MARKOV_HEADS)
def test_every_path_of_a_tree_is_corrected_as_teacher_forcing_would(head_type: str):
    """Two children per node down to depth D; parents given as rows, out of order."""
    head, block = make(head_type)
    ids = torch.arange(V).expand(D, V)
    prepared, state, paths = head.prepare(block, ids), head.start(7), [[7]]
    generator = torch.Generator().manual_seed(4)
    for depth in range(1, D + 1):
        forced = head(
            block.hidden.expand(len(paths), D, H),
            torch.tensor([path + [0] * (D - depth) for path in paths]),
        )
        torch.testing.assert_close(
            head.correction(prepared, state, depth), forced[:, depth - 1], atol=1e-12, rtol=1e-12
        )
        parent = torch.randperm(len(paths), generator=generator).repeat(2)[:6]
        token = torch.randint(V, (len(parent),), generator=generator)
        state = head.advance(prepared, state, depth, parent, token)
        paths = [[*paths[p], t] for p, t in zip(parent.tolist(), token.tolist(), strict=True)]
    assert len({tuple(path) for path in paths}) > 3


@pytest.mark.parametrize(
    ("head_type", "reads"), [("vanilla", False), ("gated", False), ("rnn", True)]
)
def test_only_the_recurrent_head_remembers_more_than_one_token(head_type: str, reads: bool):
    head, block = make(head_type)
    one, two = (head(block.hidden[None], torch.tensor([[root, 3, 4, 5, 6, 7]])) for root in (1, 2))
    assert not torch.allclose(one[:, 0], two[:, 0])
    assert torch.allclose(one[:, 3], two[:, 3]) is not reads


@pytest.mark.parametrize("head_type", MARKOV_HEADS)
def test_a_restricted_vocabulary_changes_no_correction(head_type: str):
    head, block = make(head_type)
    kept = torch.tensor([0, 4, 9, 21])
    whole = head.correction(head.prepare(block, torch.arange(V).expand(D, V)), head.start(29), 1)
    head.bind(torch.empty(0, 0), kept)
    some = head.correction(head.prepare(block, kept.expand(D, 4)), head.start(29), 1)
    torch.testing.assert_close(some, whole[:, kept])


@pytest.mark.parametrize("head_type", MARKOV_HEADS)
def test_the_first_slot_is_corrected(head_type: str):
    head, block = make(head_type)
    assert head.pure_draft_prefix_len == 0
    assert (
        head.correction(head.prepare(block, torch.arange(V).expand(D, V)), head.start(3), 1)
        .abs()
        .min()
        > 0
    )
