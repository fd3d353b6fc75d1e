"""A latent category summed out along each path (DBLast)."""

import pytest
import torch
from tree_support import ALL, every_path, paths

from dartree_exp.drafters.heads.latent import LatentHead
from dartree_exp.interfaces import Block, Limits
from dartree_exp.trees.chain import ChainBuilder
from dartree_exp.trees.heap import HeapBuilder
from dartree_exp.trees.levelwise import PrunedBuilder
from dartree_exp.trees.menu import Scoring
from dartree_exp.trees.mixture import MixtureScorer
from dartree_exp.trees.pool import PoolBuilder
from dartree_exp.verify.sampling import RoundDraws, Sampler

D, V, H, Z = 4, 9, 6, 3
SOME = torch.tensor([0, 3, 4, 8, 11])
ROOT = 7


def block(seed, size=V, ids=None):
    draws = torch.Generator().manual_seed(seed)
    hidden = torch.randn(D, H, generator=draws)
    return Block(hidden, 2 * torch.randn(D, size, generator=draws), ids)


def head(ids=None, prior="slot", total=V):
    torch.manual_seed(3)
    made = LatentHead(H, Z, 5, prior)
    with torch.no_grad():
        for weight in made.parameters():
            weight.normal_(std=0.6)
    return made.requires_grad_(False).bind(torch.randn(total, H), ids, torch.randn(total, H))


def scorer(seed=1, candidates="all", latent="summed", ids=None, prior="slot", draws=None):
    total, size = (V, V) if ids is None else (12, len(ids))
    how = Scoring(candidates, "vocab", None, draws, latent)
    return MixtureScorer.of_round(block(seed, size, ids), ROOT, head(ids, prior, total), how)


def by_hand(seed, ids=None, prior="slot"):
    """log p(z) and log q(y_d | z) from the head's definition, [Z] and [D, Z, Vd]."""
    total, size = (V, V) if ids is None else (12, len(ids))
    one, made = block(seed, size, ids), head(ids, prior, total)
    embed, lm_head = made._tables
    read = one.hidden[0] if prior == "slot" else embed[ROOT]
    each = []
    for z in range(Z):
        g = (one.hidden @ made.down_proj.weight.T * made.factors[z]) @ made.up_proj.weight.T
        each.append((one.logits + g @ lm_head.T).log_softmax(-1))
    return (made.prior_proj.weight @ read).log_softmax(-1), torch.stack(each, 1)


@pytest.mark.parametrize("prior", ["slot", "root"])
@pytest.mark.parametrize("ids", [None, SOME])
def test_a_paths_score_is_the_logarithm_of_the_mixtures_probability(ids, prior):
    log_prior, each = by_hand(1, ids, prior)
    columns = list(range(V)) if ids is None else ids.tolist()
    found = every_path(scorer(ids=ids, prior=prior), D if ids is not None else 3)
    for path, score in found.items():
        of_z = sum(each[d, :, columns.index(token)] for d, token in enumerate(path))
        assert score == pytest.approx(float((log_prior + of_z).logsumexp(0)), abs=1e-4)
    whole = torch.tensor([s for path, s in found.items() if len(path) == 3]).exp().sum()
    assert float(whole) == pytest.approx(1, abs=1e-4)  # nothing was left out


def test_the_mixture_makes_slots_depend_on_each_other():
    """Control: the product of its marginals is another distribution."""
    found = every_path(scorer(), 2)
    marginal = scorer(candidates="all").table.logits
    apart = [
        abs(score - float(marginal[0, p[0]] + marginal[1, p[1]]))
        for p, score in found.items()
        if len(p) == 2
    ]
    assert max(apart) > 0.3


def test_the_candidates_are_the_best_of_the_marginal():
    log_prior, each = by_hand(2)
    marginal = (log_prior[:, None] + each).logsumexp(1)
    made = scorer(2, candidates=3)
    for depth in range(1, D + 1):
        best = marginal[depth - 1].topk(3).indices
        assert torch.equal(made.candidates(depth), best)
        whole = scorer(2)
        assert torch.allclose(
            made.score(made.start(), depth), whole.rows(whole.start(), depth)[:, best], atol=1e-6
        )


@pytest.mark.parametrize("budget", [1, 6, 40])
def test_every_builder_merges_the_branches_of_all_categories(budget):
    """The heap is brute force over the mixture's paths, so is the pruned tree of all of them."""
    best = sorted(every_path(scorer(2), 3).items(), key=lambda item: -item[1])[:budget]
    limits, wide = Limits(3, budget), 900
    for builder in (
        HeapBuilder(ALL), PrunedBuilder(ALL, wide, 0.0), PoolBuilder(None, wide),
    ):  # fmt: skip
        tree = builder.build(scorer(2), limits).validate(budget)
        assert set(paths(tree)) == {path for path, _ in best}
    chain = list(paths(ChainBuilder().build(scorer(2), Limits(3, 3))))
    summed = scorer(2)
    state, drafted = summed.start(), []
    for depth in range(1, 4):
        token = summed.rows(state, depth)[0].argmax()
        drafted.append(int(token))
        state = summed.advance(state, depth, torch.tensor([0]), token[None])
    assert chain[-1] == tuple(drafted)


def test_one_category_a_block_is_its_own_argmaxes():
    log_prior, each = by_hand(4)
    greedy = scorer(4, latent="greedy")
    assert not greedy.path_dependent and scorer(4).path_dependent
    (*_, chain) = paths(ChainBuilder().build(greedy, Limits(D, D)))
    assert chain == tuple(each[:, log_prior.argmax()].argmax(-1).tolist())


def test_a_sampled_category_follows_the_prior_and_is_one_for_the_block():
    log_prior, each = by_hand(4)
    counts = torch.zeros(Z)
    for start in range(2000):
        draws = RoundDraws([Sampler(1.0, seed=1, sample_id="a")], (start,))
        made = scorer(4, latent="sampled", draws=draws)
        rows = torch.stack([made.rows(made.start(), d + 1)[0] for d in range(D)])
        (z,) = [z for z in range(Z) if torch.allclose(rows, each[:, z], atol=1e-5)]
        counts[z] += 1
    expected = 2000 * log_prior.exp()
    assert float(((counts - expected) ** 2 / expected).sum()) < 13.8  # chi-square, 2 d.o.f., 0.001
    greedy = RoundDraws([Sampler(0.0, seed=1, sample_id="a")], (3,))
    same = scorer(4, latent="sampled", draws=greedy)
    assert torch.equal(same.table.logits, scorer(4, latent="greedy").table.logits)


@pytest.mark.parametrize("latent", ["summed", "greedy"])
def test_requests_in_one_block_score_as_alone(latent):
    both = Block.stack([block(1), block(2)])
    made = MixtureScorer.of_round(both, (ROOT, ROOT), head(), Scoring(4, "vocab", latent=latent))
    state, parents = made.start(), torch.tensor([[0, 0], [0, 0]])
    tokens = torch.stack([made.candidates(1)[r, :2] for r in range(2)])
    below = made.score(made.advance(state, 1, parents, tokens), 2)
    for r, seed in enumerate((1, 2)):
        for alone in (scorer(seed, 4, latent), made.one(r)):
            advanced = alone.advance(alone.start(), 1, parents[r], tokens[r])
            assert torch.allclose(below[r], alone.score(advanced, 2), atol=1e-6)
    assert bool(made.finite().all())


def test_a_certain_path_never_scores_above_its_parent():
    one = block(1)
    one.logits[:, 2] += 300
    made = MixtureScorer.of_round(one, ROOT, head(), Scoring("all", "vocab"))
    assert max(every_path(made, 2).values()) == 0.0
    tree = HeapBuilder(ALL).build(made, Limits(D, 30)).validate(30)
    assert float(tree.scores.max()) == 0


@pytest.mark.parametrize("where", ["block", "head"])
def test_what_is_not_finite_is_named(where):
    one, made = block(1), head()
    if where == "block":
        one.logits[1, 1] = torch.nan
    else:
        made.factors[1, 0] = torch.inf
    scored = MixtureScorer.of_round(one, ROOT, made, Scoring(4, "vocab"))
    assert not bool(scored.finite())
    named = {"block": "1 of 36 values", "head": "the head (LatentHead)"}[where]
    assert named in scored.fault(0)


def test_a_head_without_tables_says_so():
    with pytest.raises(RuntimeError, match="bind"):
        LatentHead(H, Z, 5, "root").log_prior(block(1).hidden, torch.tensor(1))
