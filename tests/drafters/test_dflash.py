"""A loaded drafter: sessions, restricted vocabulary, without its head, dtypes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dartree_exp.drafters.dflash.checkpoint import load_drafter, save_drafter
from dartree_exp.drafters.dflash.session import DFlashDrafter


def propose(drafter: DFlashDrafter, seed: int = 3) -> list[Any]:
    """Three rounds on random features."""
    generator = torch.Generator().manual_seed(seed)
    session, start, blocks = drafter.session([]), 0, []
    for count in (7, 1, 4):
        features = torch.randn(count, 64, generator=generator, dtype=torch.float64).to(
            drafter.backbone.fc.weight.dtype
        )
        start += count
        blocks.append(session.propose(features, 5 + count, start))
    return blocks


def test_sessions_are_independent(make_parts: Callable):
    backbone, head, target = make_parts()
    drafter = DFlashDrafter("d", target, backbone, head)
    first = propose(drafter)
    again = propose(drafter)
    assert all(torch.equal(a.logits, b.logits) for a, b in zip(first, again, strict=True))
    assert not torch.allclose(first[0].logits, propose(drafter, seed=4)[0].logits)


def test_features_must_reach_the_root(make_parts: Callable):
    backbone, _, target = make_parts()
    session = DFlashDrafter("d", target, backbone).session([])
    session.propose(torch.zeros(7, 64), 1, 7)
    with pytest.raises(
        ValueError, match="features of 3 tokens are needed to reach position 10, got 2"
    ):
        session.propose(torch.zeros(2, 64), 1, 10)
    with pytest.raises(ValueError, match="got none"):
        session.propose(None, 1, 10)
    session.propose(torch.zeros(3, 64), 1, 10)


def test_blocks_past_the_position_range_are_refused(make_parts: Callable):
    backbone, _, target = make_parts(max_position_embeddings=20)
    drafter = DFlashDrafter("d", target, backbone)
    assert drafter.max_positions == 20
    drafter.session([]).propose(torch.zeros(14, 64), 1, 14)  # the last slot is at position 19
    with pytest.raises(ValueError, match="position 15 passes max_position_embeddings = 20"):
        drafter.session([]).propose(torch.zeros(15, 64), 1, 15)


@pytest.mark.parametrize("shift_label", [True, False])
def test_without_head_only_the_head_differs(
    make_parts: Callable, tmp_path: Path, shift_label: bool
):
    backbone, head, target = make_parts(shift_label=shift_label)
    save_drafter(tmp_path, backbone, head)
    domino, dflash = load_drafter(tmp_path, target), load_drafter(tmp_path, target, use_head=False)
    assert domino.head is not None and dflash.head is None
    assert domino.num_drafts == dflash.num_drafts == (6 if shift_label else 5)
    for a, b in zip(propose(domino), propose(dflash), strict=True):
        assert a.logits.shape[0] == domino.num_drafts and torch.equal(a.logits, b.logits)


def test_restricted_vocabulary_equals_the_full_one_with_the_rest_at_minus_infinity(
    make_parts: Callable, tmp_path: Path
):
    backbone, head, target = make_parts(torch.float64)
    kept = torch.tensor([0, 3, 4, 11, 20, 21, 38])
    save_drafter(tmp_path / "all", backbone, head)
    save_drafter(tmp_path / "few", backbone, head, kept.flip(0))
    full, few = load_drafter(tmp_path / "all", target), load_drafter(tmp_path / "few", target)
    hidden = torch.ones(40, dtype=torch.bool)
    hidden[kept] = False
    for a, b in zip(propose(full), propose(few), strict=True):
        assert a.vocab_ids is None and b.vocab_ids.tolist() == kept.tolist()
        assert torch.equal(a.hidden, b.hidden)
        expected = a.logits.masked_fill(hidden, -torch.inf).log_softmax(-1)
        torch.testing.assert_close(b.logits.log_softmax(-1), expected[:, kept])
        # Corrections are requested by target id in both cases.
        ids = kept[b.logits.topk(4).indices]
        assert torch.equal(ids, a.logits.masked_fill(hidden, -torch.inf).topk(4).indices)
        for drafter, block in ((full, a), (few, b)):
            prepared = drafter.head.prepare(block, ids)
            state = drafter.head.start(5)
            state = drafter.head.advance(prepared, state, 1, torch.tensor([0, 0]), ids[0, :2])
            correction = drafter.head.correction(prepared, state, 2)
            every = drafter.head.prepare(block, torch.arange(40).expand(6, 40))
            torch.testing.assert_close(
                correction, drafter.head.correction(every, state, 2)[:, ids[1]]
            )


def test_prefix_depths_are_not_corrected_but_read(make_parts: Callable):
    backbone, head, target = make_parts(pure_draft_prefix_len=2)
    drafter = DFlashDrafter("d", target, backbone, head)
    block = propose(drafter)[0]
    ids = torch.arange(8).expand(6, 8)
    prepared, root = head.prepare(block, ids), head.start(5)
    states = [
        head.advance(prepared, root, 1, torch.zeros(1, dtype=torch.int64), torch.tensor([t]))
        for t in (1, 2)
    ]
    assert all(not head.correction(prepared, states[0], depth).any() for depth in (1, 2))
    assert head.correction(prepared, states[0], 3).all()
    assert not torch.allclose(
        head.correction(prepared, states[0], 3), head.correction(prepared, states[1], 3)
    )


def test_advance_takes_the_parent_rows(make_parts: Callable):
    backbone, head, target = make_parts(torch.float64)
    block = propose(DFlashDrafter("d", target, backbone, head))[0]
    prepared = head.prepare(block, torch.arange(8).expand(6, 8))
    zero = torch.tensor([0])
    one, two = (head.advance(prepared, head.start(5), 1, zero, torch.tensor([t])) for t in (1, 2))
    both = head.advance(
        prepared, torch.cat([one, two]), 2, torch.tensor([1, 0, 1]), torch.tensor([7, 7, 3])
    )
    alone = [
        head.advance(prepared, state, 2, zero, torch.tensor([t]))
        for state, t in ((two, 7), (one, 7), (two, 3))
    ]
    torch.testing.assert_close(both, torch.cat(alone), atol=1e-12, rtol=1e-12)
    assert not torch.allclose(both[0], both[1])


def test_tabulated_reads_equal_products(make_parts: Callable):
    _, head, target = make_parts(torch.float64)
    kept, parent = torch.tensor([3, 5, 30]), torch.tensor([0, 0, 0])
    state = head.bind(target.embed_weight).start(7)
    direct = head.advance(None, state, 1, parent, kept)
    head.bind(target.embed_weight, kept)
    torch.testing.assert_close(
        head.advance(None, state, 1, parent, kept), direct, atol=1e-12, rtol=1e-12
    )
    torch.testing.assert_close(head.start(7), state)  # The root may be any token.
    with pytest.raises(IndexError):
        head.advance(None, state, 1, parent[:1], torch.tensor([4]))


def test_drafting_leaves_modules_trainable(make_parts: Callable):
    """A trainer validates with the modules it is training."""
    backbone, head, target = make_parts()
    propose(DFlashDrafter("d", target, backbone, head, torch.tensor([1, 2])))
    assert all(
        weight.requires_grad for module in (backbone, head) for weight in module.parameters()
    )


def test_an_unbound_head_is_an_error(make_parts: Callable):
    _, head, _ = make_parts()
    with pytest.raises(RuntimeError, match="bind"):
        head.start(3)


def test_binding_adds_nothing_to_the_state_dict(make_parts: Callable):
    backbone, head, target = make_parts()
    names = list(head.state_dict())
    DFlashDrafter("d", target, backbone, head)
    assert list(head.state_dict()) == names and target.embed_weight not in set(head.parameters())


def test_a_drafter_may_live_in_another_dtype(make_parts: Callable, tmp_path: Path):
    backbone, head, target = make_parts(torch.float32)
    save_drafter(tmp_path, backbone, head)
    same, narrow = (
        load_drafter(tmp_path, target),
        load_drafter(tmp_path, target, dtype=torch.bfloat16),
    )
    assert narrow.backbone.fc.weight.dtype == torch.bfloat16
    features = torch.randn(9, 64)
    a, b = (d.session([]).propose(features, 3, 9) for d in (same, narrow))
    assert b.logits.dtype == torch.float32 and narrow.head.start(3).dtype == torch.bfloat16
    assert torch.nn.functional.cosine_similarity(a.logits, b.logits).min() > 0.99
    assert not torch.equal(a.logits, b.logits)
    prepared = narrow.head.prepare(b, torch.arange(8).expand(6, 8))
    assert narrow.head.correction(prepared, narrow.head.start(3), 2).isfinite().all()


def test_weights_have_a_digest(make_parts: Callable, tmp_path: Path):
    backbone, head, target = make_parts()
    save_drafter(tmp_path / "a", backbone, head)
    with torch.no_grad():
        backbone.fc.weight[0, 0] += 1
    save_drafter(tmp_path / "b", backbone, head)
    digests = [load_drafter(tmp_path / name, target).weights_sha256 for name in "aab"]
    assert digests[0] == digests[1] != digests[2] and len(digests[0]) == 64
