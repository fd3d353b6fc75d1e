"""Coupled drafting: scores are made of the noise of the target's own draw."""

import pytest
import torch
from tree_support import drafter, every_path

from dartree_exp.interfaces import Block, Limits
from dartree_exp.trees.chain import ChainBuilder
from dartree_exp.trees.coupled import CoupledBuilder, Coupling, coupled_block
from dartree_exp.trees.scorer import make_scorer
from dartree_exp.verify.sampling import RoundDraws, Sampler

D, V, T, START, ROOT = 3, 7, 0.8, 40, 4
PAIR = 1.3, 0.6
COUPLING = Coupling({T: PAIR})
HEADS = {
    "marginal": "gru",
    "conditional": "gru",
    "static": "gru",
    "lattice": "vanilla",
    "mixture": "latent",
}


def draws_of(*samplers):
    return RoundDraws(list(samplers), (START,) * len(samplers), 0)


class Given:
    """A builder that shows which scorer it was given."""

    def build(self, scorer, limits, draws=None):
        self.scorer = scorer


def coupled_scorer(scoring, block, head, draws, coupling=COUPLING):
    """As `assemble.make_method` puts it together."""
    roots, candidates = (ROOT,) * len(block.logits), V if scoring == "lattice" else "all"
    if scoring != "mixture":
        block, head = coupled_block(block, head, draws, coupling)
        return make_scorer(scoring, block, head, roots, candidates=candidates)
    given = Given()
    plain = make_scorer(scoring, block, head, roots, candidates=candidates)
    CoupledBuilder(given, coupling).build(plain, Limits(D, 8), draws)
    return given.scorer


def made(scoring, seed=0, **more):
    block, head = drafter(seed, D, V, head_type=HEADS[scoring], **more)
    return Block.stack([block]), head


def by_definition(plain, draws, temper, spread):
    """Coupled path scores from the scores of another scorer, token by token in double precision."""
    noise = {d: draws.target_noise(d, V)[0] for d in range(1, D + 1)}
    found = every_path(plain.one(0), D)
    coupled = {}
    for path in sorted(found, key=len):
        siblings = [(*path[:-1], token) for token in range(V)]
        before = found[path[:-1]] if path[:-1] else 0.0
        log_q = torch.tensor([found[s] - before for s in siblings], dtype=torch.float64)
        row = ((log_q / (temper * T) + noise[len(path)]) / spread).log_softmax(-1)
        coupled[path] = coupled.get(path[:-1], 0.0) + float(row[path[-1]])
    return coupled


@pytest.mark.parametrize("scoring", [name for name in HEADS if name != "static"])
def test_scores_are_the_equation_of_the_page(scoring):
    block, head = made(scoring)
    draws = draws_of(Sampler(T, seed=1, sample_id="a"))
    candidates = V if scoring == "lattice" else "all"
    plain = make_scorer(scoring, block, head, (ROOT,), candidates=candidates)
    expected = by_definition(plain, draws, *PAIR)
    found = every_path(coupled_scorer(scoring, block, head, draws).one(0), D)
    assert found == pytest.approx(expected, abs=2e-4)
    # Control: noise of another seed gives other scores.
    other = draws_of(Sampler(T, seed=2, sample_id="a"))
    wrong = every_path(coupled_scorer(scoring, block, head, other).one(0), D)
    assert wrong != pytest.approx(expected, abs=0.1)


def test_a_static_menu_follows_the_coupled_chain():
    """Its rows are those of conditional scores along the best coupled chain."""
    block, head = made("static")
    draws = draws_of(Sampler(T, seed=1, sample_id="a"))
    static = coupled_scorer("static", block, head, draws)
    chain = ChainBuilder().build(coupled_scorer("conditional", block, head, draws), Limits(D, D))
    assert torch.equal(ChainBuilder().build(static, Limits(D, D)).tokens, chain.tokens)


def first_drafts(logits, samplers):
    """The best draft of each request at depth 1, for a drafter with these logits."""
    block = Block(torch.zeros(len(samplers), 1, 2), logits.expand(len(samplers), 1, -1), None)
    block, _ = coupled_block(block, None, draws_of(*samplers), Coupling())
    return block.logits[:, 0].argmax(-1).tolist()


def test_a_drafter_that_is_the_target_drafts_the_target_s_own_draw():
    p = torch.randn(50, generator=torch.Generator().manual_seed(0))
    samplers = [Sampler(T, seed=s, sample_id="a") for s in range(200)]
    drawn = [s.choose(p, START + 1) for s in samplers]
    assert len(set(drawn)) > 10
    assert first_drafts(p, samplers) == drawn
    # Control: with the noise of other seeds, drafts agree as often as two independent draws.
    others = [Sampler(T, seed=s + 1000, sample_id="a") for s in range(200)]
    agreed = sum(a == b for a, b in zip(first_drafts(p, others), drawn, strict=True))
    chance = float((p / T).softmax(-1).square().sum())
    assert agreed / 200 < chance + 4 * (chance / 200) ** 0.5 < 0.8


def test_the_softmax_is_the_law_of_the_draw_if_errors_are_gumbel():
    """20,000 targets whose log p differs from a drafter's log q by Gumbel noise of scale `spread`,
    all drawing with the same g: their draws follow exp(coupled score).
    """
    generator = torch.Generator().manual_seed(3)
    log_q = torch.randn(6, generator=generator, dtype=torch.float64)
    block = Block(torch.zeros(1, 1, 2), log_q[None, None].float(), None)
    draws = draws_of(Sampler(1.0, seed=5, sample_id="a"))
    g, spread, trials = draws.target_noise(1, 6)[0], 0.7, 20_000
    error = -torch.empty(trials, 6, dtype=torch.float64).exponential_(generator=generator).log()
    drawn = (log_q + spread * error + g).argmax(-1).bincount(minlength=6)

    def chi_square(pair):
        coupled, _ = coupled_block(block, None, draws, Coupling({1.0: pair}))
        expected = trials * coupled.logits[0, 0].double().softmax(-1)
        return float(((drawn - expected) ** 2 / expected).sum())

    assert chi_square((1.0, spread)) < 20.5  # the 0.999 quantile at 5 degrees of freedom
    assert chi_square((1.0, 1.0)) > 100  # control: without the spread


def test_what_the_target_filters_out_comes_last():
    p = torch.tensor([3.0, 2.0, 1.0, 0.5, 0.0])
    samplers = [Sampler(T, top_k=2, seed=s, sample_id="a") for s in range(60)]
    drafts = first_drafts(p, samplers)
    assert drafts == [s.choose(p, START + 1) for s in samplers] and set(drafts) == {0, 1}
    unfiltered = [Sampler(T, seed=s, sample_id="a") for s in range(60)]
    assert set(first_drafts(p, unfiltered)) > {0, 1}


@pytest.mark.parametrize("scoring", HEADS)
def test_each_request_has_its_own_noise_and_temperature(scoring):
    samplers = Sampler(T, seed=1, sample_id="a"), Sampler(), Sampler(2.0, seed=3, sample_id="b")
    coupling = Coupling({T: PAIR, 2.0: (0.7, 1.4)})
    blocks = [drafter(seed, D, V, head_type=HEADS[scoring])[0] for seed in range(3)]
    _, head = made(scoring)
    together = coupled_scorer(scoring, Block.stack(blocks), head, draws_of(*samplers), coupling)
    limits = Limits(D, D)
    for request, (block, sampler) in enumerate(zip(blocks, samplers, strict=True)):
        alone = coupled_scorer(scoring, Block.stack([block]), head, draws_of(sampler), coupling)
        expected = every_path(alone.one(0), D)
        assert every_path(together.one(request), D) == pytest.approx(expected, abs=2e-4)
        chain = ChainBuilder().build(together, limits).one(request)
        assert torch.equal(chain.tokens, ChainBuilder().build(alone, limits).one(0).tokens)


def test_the_pair_of_the_nearest_temperature_holds():
    coupling = Coupling({0.7: (1.1, 0.9), 1.5: (1.4, 0.8)})
    assert coupling.at(0.2) == coupling.at(1.0) == (1.1, 0.9)
    assert coupling.at(1.2) == coupling.at(9.0) == (1.4, 0.8)
    assert Coupling().at(1.0) == (1.0, 1.0)
