"""Scorers against the plain formulas, written out once more per node."""

import pytest
import torch
from tree_support import drafter, scorer

from dartree_exp.errors import ConfigError
from dartree_exp.trees.menu import MenuTable, step_log_probs
from dartree_exp.trees.scorer import make_scorer

COLUMNS = [1, 4, 5, 9, 12, 13, 17, 20, 21, 30]


def corrected_rows(block, head, path, depth):
    """float64 logits over all columns at `depth`, after the root 0 and `path`, without the split
    projection.
    """
    embed = head._embed[0].double()
    w_ih, w_hh = head.prefix_gru.weight_ih_l0.double(), head.prefix_gru.weight_hh_l0.double()
    state = torch.zeros(w_hh.shape[1], dtype=torch.float64)
    for token in (0, *path):
        r_i, z_i, n_i = (w_ih @ embed[token]).chunk(3)
        r_h, z_h, n_h = (w_hh @ state).chunk(3)
        gate, update = torch.sigmoid(r_i + r_h), torch.sigmoid(z_i + z_h)
        state = (1 - update) * torch.tanh(n_i + gate * n_h) + update * state
    logits = block.logits[depth - 1].double()
    if depth <= head.pure_draft_prefix_len:
        return logits
    code = head.embed_proj[0].weight.double() @ torch.cat([block.hidden[depth - 1].double(), state])
    correction = head.embed_proj[2].weight.double() @ (code * torch.sigmoid(code))
    return logits + (correction if block.vocab_ids is None else correction[block.vocab_ids])


@pytest.mark.parametrize("columns", [None, COLUMNS])
@pytest.mark.parametrize("normalise", ["candidates", "vocab", "vocab_on_prefix"])
@pytest.mark.parametrize("candidates", [3, 10, "all"])
@pytest.mark.parametrize("scoring", ["marginal", "conditional", "static"])
def test_scores_are_the_formulas(scoring, candidates, normalise, columns):
    block, head = drafter(3, 3, 10, prefix=1, columns=columns)
    made = make_scorer(scoring, block, head, 0, candidates=candidates, normalise=normalise)
    ids = torch.arange(10) if columns is None else torch.tensor(columns)
    state, path, chain = made.start(), (), ()
    for depth in range(1, 4):
        order = block.logits[depth - 1].argsort(descending=True, stable=True)[
            : 10 if candidates == "all" else candidates
        ]
        assert torch.equal(made.candidates(depth), ids[order])
        uncorrected = scoring == "marginal" or depth <= 1
        if scoring == "marginal":
            logits = block.logits[depth - 1].double()
        else:
            logits = corrected_rows(block, head, path if scoring == "conditional" else chain, depth)
        over_all = normalise == "vocab" or (normalise == "vocab_on_prefix" and uncorrected)
        expected = logits[order] - torch.logsumexp(logits if over_all else logits[order], 0)
        score = made.score(state, depth)
        torch.testing.assert_close(score[0].double(), expected, atol=2e-5, rtol=0)
        assert (score <= 0).all()

        token, log_prob, rank = made.best(state, depth)
        assert log_prob.item() == score.max() and rank.item() == score.argmax()
        assert token.item() == made.candidates(depth)[score.argmax()]
        chain = (*chain, token.item())
        worst = made.candidates(depth)[-1:]
        path = (*path, worst.item())
        state = made.advance(state, depth, torch.tensor([0]), worst)


@pytest.mark.parametrize("normalise", ["candidates", "vocab"])
@pytest.mark.parametrize("columns", [None, COLUMNS])
def test_a_static_menu_is_the_best_of_the_corrected_rows(columns, normalise):
    """Table 2's arm: Domino's chain over the whole draft vocabulary, then the K best of each
    corrected row.
    """
    block, head = drafter(3, 3, 10, prefix=1, columns=columns, scale=0.5)
    made = make_scorer("static", block, head, 0, candidates=2, normalise=normalise, menu=4)
    ids = torch.arange(10) if columns is None else torch.tensor(columns)
    state, chain, outside = made.start(), (), False
    for depth in range(1, 4):
        logits = corrected_rows(block, head, chain, depth)
        order = logits.argsort(descending=True)[:4]
        assert torch.equal(made.candidates(depth), ids[order])
        expected = logits[order] - torch.logsumexp(
            logits if normalise == "vocab" else logits[order], 0
        )
        torch.testing.assert_close(
            made.score(state, depth)[0].double(), expected, atol=2e-5, rtol=0
        )
        chain = (*chain, ids[order[0]].item())
        outside = outside or not set(order.tolist()) <= set(
            block.logits[depth - 1].topk(4).indices.tolist()
        )
    assert outside, "the correction must bring in a token that base logits would have left out"


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("candidates", [4, "all"])
@pytest.mark.parametrize("ask", ["score", "best", "top"])
def test_one_bad_correction_is_seen(monkeypatch, ask, candidates, bad):
    made = scorer("conditional", 3, 3, 9, candidates=candidates)
    state = made.start().expand(3, -1)
    arguments = (state, 2, 2) if ask == "top" else (state, 2)
    getattr(made, ask)(*arguments)
    assert made.finite()
    right = made._head.correction

    def poisoned(prepared, state, depth):
        correction = right(prepared, state, depth)
        correction[1, -1] = bad
        return correction

    monkeypatch.setattr(made._head, "correction", poisoned)
    getattr(made, ask)(*arguments)
    assert not made.finite()


def test_many_nodes_at_once_equal_one_at_a_time():
    made = scorer("conditional", 5, 2, 8, candidates=4)
    tokens = made.candidates(1)
    together = made.advance(made.start(), 1, torch.zeros(4, dtype=torch.int64), tokens)
    scores = made.score(together, 2)
    for row, token in enumerate(tokens):
        alone = made.advance(made.start(), 1, torch.tensor([0]), token[None])
        torch.testing.assert_close(made.score(alone, 2)[0], scores[row])
    assert not torch.allclose(scores[0], scores[1])  # the path does matter


def test_equal_logits_stand_in_the_order_of_token_ids():
    block, _ = drafter(0, 1, 10, columns=COLUMNS)
    block.logits[0] = torch.tensor([1.0, 2, 1, 2, 1, 2, 1, 2, 1, 2])
    scorer = make_scorer("marginal", block, None, 0, candidates=7, normalise="vocab")
    assert scorer.candidates(1).tolist() == [4, 9, 13, 20, 30, 1, 5]


def test_step_log_probs_never_exceed_zero():
    logits = torch.randn(200, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor(
        [100.0, 1e-3, 1e-6]
    )
    assert (step_log_probs(logits) <= 0).all()
    # Control: the order of the released code does lift some children above their parents.
    parent = torch.full((200, 1), -7.3)
    released = (parent + logits) - torch.logsumexp(logits, -1, keepdim=True)
    assert (released > parent).any()


def test_whole_tables_do_not_sort_for_a_chain():
    made = scorer("marginal", 1, 2, 9, candidates="all", normalise="vocab")
    made.best(made.start(), 1)
    assert "selection" not in made.table.__dict__
    made.score(made.start(), 1)
    assert "selection" in made.table.__dict__


def test_refusals():
    block, head = drafter(0, 2, 5)
    with pytest.raises(ValueError, match="correction head"):
        make_scorer("conditional", block, None, 0, candidates=3, normalise="vocab")
    with pytest.raises(ConfigError, match=r"tree\.scoring=markov: must be one of marginal, static"):
        make_scorer("markov", block, head, 0, candidates=3, normalise="vocab")
    with pytest.raises(ValueError, match="unknown normalisation"):
        MenuTable(block, 3, "softmax")
