"""The acceptance-oriented objective of a latent mixture (DBLast): by definition, by autograd, and
on a text with two modes, which independent slots mix.
"""

from itertools import product

import pytest
import torch
import torch.nn.functional as F

from dartree_exp.drafters.heads.latent import LatentHead
from dartree_exp.interfaces import Block, Limits
from dartree_exp.training.mixture import MixtureMix, acceptance, mixture_loss, prefix_log_probs
from dartree_exp.trees.children import Children
from dartree_exp.trees.heap import HeapBuilder
from dartree_exp.trees.menu import Scoring
from dartree_exp.trees.mixture import MixtureScorer

N, D, Z, H, V, RANK = 6, 4, 3, 5, 7, 2


def test_the_sum_of_prefix_probabilities_is_the_expected_accepted_length():
    """Of drafts drawn from the mixture, over all V^D of them."""
    torch.manual_seed(0)
    size, vocab = 3, 3
    log_prior = torch.randn(1, Z).double().log_softmax(-1)
    each = torch.randn(1, size, Z, vocab).double().log_softmax(-1)
    label = torch.tensor([2, 0, 1])
    wanted = 0.0
    for draft in product(range(vocab), repeat=size):
        chance = sum(
            log_prior[0, z].exp() * each[0, range(size), z, list(draft)].exp().prod()
            for z in range(Z)
        )
        agreed = [a == b for a, b in zip(draft, label.tolist(), strict=True)]
        wanted += float(chance) * (agreed.index(False) if False in agreed else size)
    said = each.gather(3, label[None, :, None, None].expand(1, size, Z, 1)).squeeze(3)
    known = torch.ones(1, size, dtype=torch.bool)
    _, length = acceptance(prefix_log_probs(log_prior, said, known), known)
    assert length.item() == pytest.approx(wanted, abs=1e-12)


def inputs():
    rng = torch.Generator().manual_seed(1)
    sizes = {
        "hidden": (N, D, H), "head": (V, H), "codes": (N, D, Z, RANK), "output": (V, RANK),
        "prior": (N, Z),
    }  # fmt: skip
    made = {name: torch.randn(*size, generator=rng) for name, size in sizes.items()}
    labels = torch.randint(0, V, (N, D), generator=rng)
    labels[1, 2:] = -1  # the end of the text
    labels[2, 1] = -1  # an id outside the drafting vocabulary
    labels[3] = -1
    return made, labels, torch.rand(N, D, generator=rng)


def by_definition(made, labels, weights, mix, base_share):
    """The loss, the base loss and the mean accepted length, float64, with probabilities and no
    logarithms until the last moment.
    """
    base = made["hidden"] @ made["head"].T
    logits = base[:, :, None] + made["codes"] @ made["output"].T
    q, prior = logits.softmax(-1), made["prior"].softmax(-1)
    whole = weights[labels >= 0].sum()
    entropy, base_loss, terms, lengths = 0.0, 0.0, [], []
    for n in range(N):
        weight, chances, open_ = prior[n], [], True
        for d in range(D):
            if labels[n, d] < 0:
                open_ = False
                continue
            share = weights[n, d] / whole
            base_loss = base_loss - share * base[n, d].log_softmax(-1)[labels[n, d]]
            after = weight * q[n, d, :, labels[n, d]]
            entropy = entropy - share * (after.sum() / weight.sum()).log()
            if open_:
                chances.append((weight.sum(), after.sum()))
            weight = after
        if chances:
            counted = [p for before, p in chances if before.detach() >= mix.threshold - 1e-9]
            terms.append(-sum(counted).log() if mix.log else -sum(counted))
            lengths.append(sum(p for _, p in chances))
    accepted = sum(terms) / len(terms)
    mixed = mix.ce * entropy + mix.accept * accepted
    loss = base_share * mix.ce * base_loss + (1 - base_share) * mixed
    return loss, mixed, mix.ce * base_loss, sum(lengths) / len(lengths)


@pytest.mark.parametrize("rows", [1, 40, 1000])
@pytest.mark.parametrize("base_share", [0.0, 0.4])
@pytest.mark.parametrize(
    "mix",
    [
        MixtureMix(),
        MixtureMix(0.0, 1.0),
        MixtureMix(0.0, 1.0, log=False),
        MixtureMix(0.3, 0.7, threshold=0.12),
        MixtureMix(0.3, 0.7, log=False, threshold=0.12),
    ],
)
def test_losses_and_gradients_are_those_of_the_definition(mix, base_share, rows):
    made, labels, weights = inputs()
    found = mixture_loss(
        made["hidden"], made["head"], labels, weights,
        (float(weights[labels >= 0].sum()), N - 1.0), made["codes"], made["output"],
        made["prior"].log_softmax(-1), mix=mix, base_share=base_share, hidden_gradient=True,
        rows=rows,
    )  # fmt: skip
    exact = {name: value.double().requires_grad_(True) for name, value in made.items()}
    loss, mixed, base_loss, length = by_definition(exact, labels, weights.double(), mix, base_share)
    loss.backward()
    assert found.final == pytest.approx(mixed.item(), rel=1e-5)
    assert found.base == pytest.approx(base_loss.item(), rel=1e-5)
    assert found.accepted == pytest.approx(length.item(), rel=1e-5)
    for name in ("hidden", "codes", "output"):
        torch.testing.assert_close(
            getattr(found, name).double(), exact[name].grad, atol=1e-6, rtol=1e-4
        )
    # The caller goes on through the softmax of the prior.
    logits = made["prior"].requires_grad_(True)
    logits.log_softmax(-1).backward(found.prior)
    torch.testing.assert_close(logits.grad.double(), exact["prior"].grad, atol=1e-6, rtol=1e-4)


def test_a_depth_that_is_hardly_reached_does_not_count():
    """Control for the threshold: it changes the term, and only where it is not met."""
    chances = torch.tensor([[0.5, 0.2, 0.01], [0.9, 0.8, 0.7]])
    known = torch.ones(2, 3, dtype=torch.bool)
    cut, length = acceptance(chances.log(), known, log=False, threshold=0.3)
    torch.testing.assert_close(cut, torch.tensor([-0.7, -2.4]))
    torch.testing.assert_close(length, torch.tensor([0.71, 2.4]))


def test_a_label_with_next_to_no_chance_still_has_a_gradient():
    said = torch.full((1, 2, 1), -200.0, requires_grad=True)
    known = torch.ones(1, 2, dtype=torch.bool)
    for log, slope in ((True, -1.0), (False, 0.0)):
        said.grad = None
        log_probs = prefix_log_probs(torch.zeros(1, 1), said, known)
        acceptance(log_probs, known, log)[0].sum().backward()
        assert said.grad[0, 0, 0] == pytest.approx(slope)


MODES = torch.tensor([[0, 1, 2, 3], [4, 5, 6, 7]])
VOCAB, WIDTH = 8, 16


def two_modes():
    """Hidden states [D, WIDTH] and a vocabulary head whose logits are, at every depth, one half for
    either mode: the best that independent slots can say of a text of which half is one, half the
    other.
    """
    rng = torch.Generator().manual_seed(2)
    head = torch.randn(VOCAB, WIDTH, generator=rng)
    logits = torch.full((D, VOCAB), -6.0)
    logits.scatter_(1, MODES.T, 3.0)
    return logits @ torch.linalg.pinv(head).T, head


def fitted(latents, mix):
    """A latent head trained on both modes."""
    hidden, head = two_modes()
    torch.manual_seed(0)
    made = LatentHead(WIDTH, latents, 8, "slot")
    made.init_training()
    made.bind(head, lm_head=head)
    optimizer = torch.optim.Adam(made.parameters(), 0.02)
    both, weights = hidden.expand(2, -1, -1), torch.ones(2, D)
    for _ in range(250):
        codes, output = made.codes(both), made.readout()
        prior = made.log_prior(both, MODES[:, 0])
        found = mixture_loss(
            both, head, MODES, weights, (2.0 * D, 2.0), codes.detach(), output.detach(),
            prior.detach(), mix=mix,
        )  # fmt: skip
        optimizer.zero_grad()
        torch.autograd.backward([codes, output, prior], [found.codes, found.output, found.prior])
        optimizer.step()
    return made.requires_grad_(False).bind(head, lm_head=head)


def expected(made):
    """Mean over the modes of the expected accepted length of a draft drawn from the mixture, and of
    the best tree of 2 D nodes.
    """
    hidden, head = two_modes()
    block = Block(hidden, F.linear(hidden, head), None)
    each = made.log_probs(block)
    prior = made.log_prior(block.hidden, torch.tensor(0))
    said = torch.stack([each[range(D), :, mode] for mode in MODES])
    known = torch.ones(2, D, dtype=torch.bool)
    _, lengths = acceptance(prefix_log_probs(prior.expand(2, -1), said, known), known)
    scorer = MixtureScorer.of_round(block, 0, made, Scoring("all", "vocab"))
    tree = HeapBuilder(Children()).build(scorer, Limits(depth=D, nodes=2 * D))
    tokens, parents = tree.tokens.flatten().tolist(), tree.parents.flatten().tolist()
    followed = []
    for mode in MODES.tolist():
        node = 0
        for depth, token in enumerate(mode):
            below = [i for i in range(1, len(tokens)) if parents[i] == node]
            node = next((i for i in below if tokens[i] == token), -1)
            if node < 0:
                followed.append(depth)
                break
        else:
            followed.append(D)
    return float(lengths.mean()), sum(followed) / 2


@pytest.mark.parametrize("mix", [MixtureMix(), MixtureMix(0.0, 1.0)])
def test_categories_separate_modes_that_independent_slots_mix(mix):
    """Both modes are learnt: a draft is one of them, and a tree of 2 D nodes holds both. Control:
    one category is a product of marginals, of which the best says sum_d 2^-d, a tree not much more.
    """
    mixed, little = expected(fitted(1, MixtureMix()))
    assert mixed == pytest.approx(sum(0.5**d for d in range(1, D + 1)), abs=0.03)
    length, both = expected(fitted(3, mix))
    assert length > 0.97 * D / 2 > 2 * mixed
    assert both == D > 1.7 * little


def test_the_expected_length_itself_is_as_high_with_one_mode_alone():
    """Why its logarithm is minimised: -L does not ask for the other mode, which a tree needs."""
    length, _ = expected(fitted(1, MixtureMix(0.0, 1.0, log=False)))
    assert length == pytest.approx(D / 2, abs=0.02)
    one = fitted(3, MixtureMix(0.0, 1.0, log=False))
    assert one.log_prior(two_modes()[0], torch.tensor(0)).exp().max() > 0.95
