"""`tree.draft_sampling=release`: Domino's released chain draws its uncorrected drafts at T > 0
(facts of its graph runner).
"""

import numpy as np
import pytest
import torch

from dartree_exp.interfaces import Block
from dartree_exp.trees.scorer import make_scorer
from dartree_exp.verify.sampling import RoundDraws, Sampler

CHI_SQUARE_DF_7 = 24.3  # 0.1 % quantile
DRAWS = 2000


@pytest.mark.parametrize("family", ["llama", "qwen3"])
@pytest.mark.parametrize(
    "sampler", [Sampler(1.0, seed=3, sample_id="a"), Sampler(0.7, top_k=12, seed=4)]
)
def test_ids_are_plain_decodings_and_drafts_are_not_the_argmaxes(make_case, family, sampler):
    plain = make_case("domino", family=family).plain(sampler=sampler, cap=40)
    first = {}
    for sampling in ("argmax", "release"):
        decoded = make_case("domino", f"tree.draft_sampling={sampling}", family=family).drafted(
            sampler=sampler, cap=40
        )
        assert decoded.ids == plain.ids
        first[sampling] = {r.start: int(r.tree.validate().tokens[1]) for r in decoded.rounds}
    shared = first["argmax"].keys() & first["release"].keys()
    assert any(first["argmax"][start] != first["release"][start] for start in shared)


def test_greedy_drafts_are_the_argmaxes(make_case):
    traces = [
        [
            (r.tree.tokens.tolist(), r.bonus)
            for r in make_case("domino", f"tree.draft_sampling={sampling}").drafted().rounds
        ]
        for sampling in ("argmax", "release")
    ]
    assert traces[0] == traces[1]


def released(make_case, candidates="all"):
    """A block of 8 ids, the head of the contract's Domino, and its released scorer under given
    draws.
    """
    head = make_case("domino").drafter.head
    torch.manual_seed(0)
    ids = torch.arange(10, 18)
    block = Block(torch.randn(3, head.hidden_size), 1.5 * torch.randn(3, 8), ids)
    head.bind(head._embed[0])

    def scorer(draws=None):
        return make_scorer(
            "conditional", block, head, 4, candidates=candidates, normalise="vocab", draws=draws
        )

    return block, scorer


def chi_square(make_case, temperature, candidates):
    """Statistic of depth 1's drafts over seeds, drawn at `temperature`, against softmax(logits /
    0.8).
    """
    block, scorer = released(make_case, candidates)
    counts = torch.zeros(8)
    for seed in range(DRAWS):
        made = scorer(RoundDraws([Sampler(temperature, top_k=1, seed=seed)], (5,)))
        token, log_prob, rank = made.best(made.start(), 1)
        counts[int(token) - 10] += 1
        assert made.candidates(1)[rank] == token and log_prob <= 0
    expected = DRAWS * (block.logits[0] / 0.8).softmax(-1)
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("candidates", ["all", 8])
def test_the_uncorrected_draft_has_the_law_of_the_draft_logits(make_case, candidates):
    assert chi_square(make_case, 0.8, candidates) < CHI_SQUARE_DF_7


def test_control_another_temperature_is_caught(make_case):
    assert chi_square(make_case, 1.2, "all") > 2 * CHI_SQUARE_DF_7


def test_corrected_drafts_are_argmaxes(make_case):
    _, scorer = released(make_case)
    plain = scorer()
    for seed in range(20):
        made = scorer(RoundDraws([Sampler(2.0, seed=seed)], (5,)))
        for depth in (2, 3):
            got, expected = made.best(made.start(), depth), plain.best(plain.start(), depth)
            assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


def test_draft_noise_is_independent_of_the_targets():
    sampler, size = Sampler(1.0, seed=3, sample_id="a"), 20_000
    streams = [sampler.noise(7, size)] + [sampler.noise(6, size, stream=depth) for depth in (1, 2)]
    streams += [sampler.noise(7, size, stream=1)]
    correlations = np.corrcoef(streams)
    assert np.abs(correlations - np.eye(len(streams))).max() < 0.03
    assert np.array_equal(streams[0], sampler.noise(7, size)), "the target's own noise"
