"""Rounds of sampled drafts over many seeds: the emitted tokens follow the target's own law.

Each seed is one request of one round, so drafts, trees and laws of all seeds are made together.
"""

from dataclasses import replace

import pytest
import torch
from tree_support import drafter

from dartree_exp.interfaces import Limits
from dartree_exp.trees.conditional import ConditionalScorer
from dartree_exp.trees.sampled import SampledBuilder
from dartree_exp.verify.rejection import RejectionSampling
from dartree_exp.verify.sampling import RoundDraws, Sampler

ROUNDS, FEWER, VOCAB, DEPTHS = 20_000, 3_000, 4, 2
FAR = 60.0  # 15 degrees of freedom: chi-square exceeds it once in 4 million
BUILDERS = {"chain": SampledBuilder(1), "tree": SampledBuilder(3)}
SAMPLERS = {
    "T=1": Sampler(1.0),
    "T=0.7 top-k": Sampler(0.7, top_k=3),
    "T=1.3 top-p": Sampler(1.3, top_p=0.9),
}


def target_logits(tokens, parents):
    """[R, n, V]: the target's logits after each node are a function of its path."""
    table = 0.8 * torch.randn(
        1 + VOCAB + VOCAB**2, VOCAB, generator=torch.Generator().manual_seed(9)
    )
    state = torch.zeros_like(tokens)  # of the root
    for node in range(1, tokens.shape[1]):
        above = state.gather(1, parents[:, node : node + 1])[:, 0]
        state[:, node] = 1 + VOCAB * above + tokens[:, node]
    return table[state]


class ManyDraws(RoundDraws):
    """The same decisions for many requests at once, with torch's own random numbers."""

    def __init__(self, sampler, requests):
        super().__init__([sampler] * requests, (7,) * requests)
        self._sampler, self._torch = sampler, torch.Generator().manual_seed(5)
        self._uniforms = torch.rand(3, requests, 4, generator=self._torch).tolist()

    def drafts(self, logits, depth, count, temperature=None):
        law = self._sampler.log_law(logits, temperature)
        noise = torch.empty(law.shape, dtype=law.dtype).exponential_(generator=self._torch)
        return (law - noise.log()).topk(count).indices, law

    def uniforms(self, request, depth, size):
        return self._uniforms[depth - 1][request][:size]


def keyed(sampler, requests):
    """The draws of a run."""
    samplers = [replace(sampler, seed=seed) for seed in range(requests)]
    return RoundDraws(samplers, (7,) * requests)


def emitted(
    sampler, builder, rounds=ROUNDS, tamper=lambda tree, scorer, draws: tree, made=ManyDraws
):
    """Counts [V, V] of the first two tokens, and the mean number of accepted drafts.

    Where a round emits one token, the second is drawn from the target's law after it.
    """
    block, head = drafter(3, DEPTHS, VOCAB, head_type="vanilla", scale=0.5)
    for weight in head.parameters():
        weight.mul_(0.6)
    many = replace(
        block,
        hidden=block.hidden.expand(rounds, -1, -1),
        logits=block.logits.expand(rounds, -1, -1),
    )
    roots = (0,) * rounds
    scorer = ConditionalScorer(many, roots, head, "all", "vocab")
    draws = made(sampler, rounds)
    tree = tamper(builder.build(scorer, Limits(DEPTHS, 8), draws), scorer, draws)
    accepted = RejectionSampling()(tree, target_logits(tree.tokens, tree.parents), draws)
    texts = [[*a, b] for a, b in zip(accepted.tokens, accepted.bonus, strict=True)]
    first = torch.tensor([text[0] for text in texts])
    after = law(sampler)[1][first]
    drawn = torch.multinomial(after, 1, generator=torch.Generator().manual_seed(1))[:, 0]
    known = torch.tensor([text[1] if len(text) > 1 else -1 for text in texts])
    second = torch.where(known < 0, drawn, known)
    counts = torch.bincount(VOCAB * first + second, minlength=VOCAB**2).view(VOCAB, VOCAB)
    return counts, sum(map(len, accepted.tokens)) / rounds


def law(sampler):
    """p of the first token [V], and of the second after each first [V, V]."""
    tokens = torch.tensor([[0, *range(VOCAB)]])
    parents = torch.tensor([[-1, *[0] * VOCAB]])
    p = sampler.log_law(target_logits(tokens, parents)[0]).exp()
    return p[0], p[1:]


def chi_square(counts, sampler):
    first, second = law(sampler)
    expected = counts.sum() * first[:, None] * second
    possible = expected > 0
    assert counts[~possible].sum() == 0, "a token that the target never draws"
    return float(((counts - expected) ** 2 / expected)[possible].sum())


@pytest.mark.parametrize("builder", BUILDERS)
def test_emitted_tokens_follow_the_targets_law(builder):
    counts, drafts = emitted(SAMPLERS["T=1"], BUILDERS[builder])
    assert chi_square(counts, SAMPLERS["T=1"]) < FAR
    assert drafts > 0.5, "drafts must be accepted for this to mean anything"


@pytest.mark.parametrize("sampler", list(SAMPLERS)[1:])
def test_filters_and_temperatures_keep_the_law(sampler):
    """Also with the drafts at a temperature of their own, and one node of two expanded."""
    builder = SampledBuilder(2, 1, temperature=0.5)
    counts, _ = emitted(SAMPLERS[sampler], builder, FEWER)
    assert chi_square(counts, SAMPLERS[sampler]) < FAR


def test_the_draws_of_a_run_keep_the_law():
    counts, _ = emitted(SAMPLERS["T=1"], BUILDERS["tree"], FEWER, made=keyed)
    assert chi_square(counts, SAMPLERS["T=1"]) < FAR


def test_siblings_are_accepted_more_often_than_one_draft():
    chain = emitted(SAMPLERS["T=1"], BUILDERS["chain"], FEWER)[1]
    assert emitted(SAMPLERS["T=1"], BUILDERS["tree"], FEWER)[1] > chain + 0.05


def rows_along(scorer, tree):
    """Log-probabilities below the root and below the first draft of a chain."""
    yield scorer.rows(scorer.start(), 1)
    first = tree.tokens[:, 1:2]
    yield scorer.rows(scorer.advance(scorer.start(), 1, torch.zeros_like(first), first), 2)


def raw_laws(tree, scorer, draws):
    """The laws before top-k, although the drafts were drawn after it."""
    laws = tuple(Sampler(1.0).log_law(rows) for rows in rows_along(scorer, tree))
    return replace(tree, laws=replace(tree.laws, log_q=laws))


def argmax_drafts(tree, scorer, draws):
    """The best drafts, with laws as if they had been drawn."""
    best = SampledBuilder(1, temperature=0.0).build(scorer, Limits(DEPTHS, 8), draws)
    return replace(best, laws=replace(best.laws, log_q=tuple(rows_along(scorer, best))))


def test_control_the_drafts_noise_used_again_is_caught(monkeypatch):
    monkeypatch.setattr(RoundDraws, "VERIFY", 0)
    counts, _ = emitted(SAMPLERS["T=1"], BUILDERS["chain"], FEWER, made=keyed)
    assert chi_square(counts, SAMPLERS["T=1"]) > FAR


def test_control_laws_without_the_filter_are_caught():
    sampler = Sampler(1.0, top_k=2)
    assert chi_square(emitted(sampler, BUILDERS["chain"], ROUNDS, raw_laws)[0], sampler) > FAR


def test_control_argmax_drafts_are_caught():
    counts, _ = emitted(SAMPLERS["T=1"], BUILDERS["chain"], FEWER, argmax_drafts)
    assert chi_square(counts, SAMPLERS["T=1"]) > FAR


def test_a_tree_that_was_cut_has_no_laws():
    def cut(tree, scorer, draws):
        return replace(tree, laws=None)

    with pytest.raises(ValueError, match="this tree was cut"):
        emitted(SAMPLERS["T=1"], BUILDERS["tree"], 10, cut)
