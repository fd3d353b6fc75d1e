"""Candidate selection: torch reference against a Python sort, Triton (interpreter) against the
reference.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dartree_exp.kernels import candidate_select as select


def by_python(row: list[float], k: int) -> list[int]:
    return sorted(range(len(row)), key=lambda column: (-row[column], column))[:k]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(-3, 3), min_size=7, max_size=7), min_size=1, max_size=4),
    st.integers(1, 7),
)
def test_reference_is_a_stable_sort(rows, k):
    logits = torch.tensor(rows, dtype=torch.float32)
    values, columns, lse = select.candidate_select(logits, k, logsumexp=True)
    assert columns.tolist() == [by_python(row, k) for row in rows]
    assert torch.equal(values, logits.gather(1, columns))
    torch.testing.assert_close(lse, logits.double().exp().sum(1).log().float())


@pytest.mark.parametrize("ties", ["none", "few", "many"])
def test_long_rows_take_the_fast_path_and_keep_the_order(ties, monkeypatch):
    gen = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 6000, generator=gen)
    if ties == "few":
        logits = logits.bfloat16().float()
    if ties == "many":  # more equal values at the k-th place than the slack holds
        logits = logits.round()
    sorted_rows = []
    full_sort = select._sorted_topk
    monkeypatch.setattr(
        select, "_sorted_topk", lambda values, k: sorted_rows.append(1) or full_sort(values, k)
    )
    _, columns = select.stable_topk(logits, 64)
    assert columns.tolist() == [by_python(row, 64) for row in logits.tolist()]
    assert bool(sorted_rows) == (ties == "many")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-99, 0), min_size=1, max_size=80), st.integers(1, 80))
def test_short_lists_are_a_stable_sort(values, k):
    k = min(k, len(values))
    top, index = select.stable_topk(torch.tensor(values, dtype=torch.float32), k)
    assert index.tolist() == by_python(values, k) and top.tolist() == [
        values[place] for place in index.tolist()
    ]


@pytest.mark.parametrize(
    ("head", "k", "tied"),
    [
        ([3, 2, 2], 3, True),
        ([3, 2, 2], 2, True),
        ([3, 2, 1, 1], 2, False),
        ([1, 0.0, -0.0], 2, True),
    ],
)
def test_only_a_selection_with_ties_is_sorted(head, k, tied, monkeypatch):
    sorted_lists = []
    full_sort = select._sorted_topk
    monkeypatch.setattr(
        select, "_sorted_topk", lambda values, k: sorted_lists.append(1) or full_sort(values, k)
    )
    values = [*head, *range(-60, -10)]
    _, index = select.stable_topk(torch.tensor(values, dtype=torch.float32), k)
    assert index.tolist() == by_python(values, k)
    assert bool(sorted_lists) == tied


def test_plain_topk_would_not_do():
    # Control: torch.topk does not define the order of ties.
    logits = torch.randn(3, 6000, generator=torch.Generator().manual_seed(0)).round()
    assert logits.topk(64).indices.tolist() != [by_python(row, 64) for row in logits.tolist()]


@pytest.mark.parametrize("k", [0, 6])
def test_k_out_of_range(k):
    with pytest.raises(ValueError, match="5 entries"):
        select.candidate_select(torch.zeros(2, 5), k)


def test_no_rows():
    values, columns, lse = select.candidate_select(torch.zeros(0, 5), 3, logsumexp=True)
    assert values.shape == columns.shape == (0, 3) and lse.shape == (0,)


@pytest.mark.parametrize(
    "columns,k,tile,dtype",
    [
        (1, 1, 8, torch.float32),
        (7, 3, 8, torch.bfloat16),
        (19, 3, 8, torch.float16),
        (19, 4, 8, torch.float32),
    ],
)
def test_triton_equals_the_reference(columns, k, tile, dtype):
    triton_select = pytest.importorskip(
        "dartree_exp.kernels.candidate_select_triton"
    ).candidate_select_triton
    gen = torch.Generator().manual_seed(columns)
    logits = (torch.randn(2, columns, generator=gen) * 3).round().to(dtype)  # ties everywhere
    logits[0, 0] = -0.0
    if columns > 1:
        logits[1, columns // 2] = float("-inf")
    expected = select.candidate_select_torch(logits, k, logsumexp=True)
    got = triton_select(logits, k, logsumexp=True, tile=tile)
    assert torch.equal(got.columns, expected.columns) and torch.equal(got.values, expected.values)
    torch.testing.assert_close(got.logsumexp, expected.logsumexp, atol=1e-5, rtol=1e-6)
    assert triton_select(logits, k, tile=tile).logsumexp is None


def test_dispatch_by_device(monkeypatch):
    calls = []
    monkeypatch.setattr(
        select, "use_triton", lambda tensor: calls.append(tensor.device.type) or False
    )
    select.candidate_select(torch.zeros(1, 4), 2)
    assert calls == ["cpu"]
