"""Medusa's objective: its labels are the tokens that decoding drafts with perfect heads."""

import pytest
import torch

from dartree_exp.assemble import make_method
from dartree_exp.config import compose
from dartree_exp.decode import autoregress, speculate
from dartree_exp.drafters.medusa.config import MedusaConfig
from dartree_exp.drafters.medusa.model import MedusaHeads
from dartree_exp.drafters.medusa.session import MedusaDrafter
from dartree_exp.metrics.clock import StageClock
from dartree_exp.models.toy import toy_target
from dartree_exp.training.medusa import NO_LABEL, heads_loss, labels
from dartree_exp.verify.sampling import Sampler
from dartree_exp.verify.stopping import StopRule

PROMPT, K = [4, 9, 33, 17, 9, 60, 3, 21], 3
RULE = StopRule(20)


def text_of(target):
    ids = [*PROMPT, *autoregress(target, PROMPT, Sampler(), RULE, StageClock()).ids]
    answer = torch.arange(len(ids)) >= len(PROMPT)
    hidden = target.prefill(ids, target.new_cache(len(ids))).hidden
    return torch.tensor(ids), answer, hidden


def test_trained_heads_draft_their_labels():
    """Heads that reach loss 0 on one answer are accepted whole; each draft is the label."""
    target = toy_target(dtype=torch.float64, seed=1, layers=2)
    ids, answer, hidden = text_of(target)
    heads = MedusaHeads(MedusaConfig(K), 32, 64).double()
    wanted = labels(ids, answer, K)
    for i, head in enumerate(heads.each()):
        rows = wanted[:, i] != NO_LABEL
        one_hot = 30.0 * torch.nn.functional.one_hot(wanted[rows, i], 64).double()
        head[1].weight.data = torch.linalg.lstsq(hidden[rows], one_hot).solution.T
    loss = heads_loss(heads, hidden, ids, answer)
    assert float(loss.total.detach()) < 1e-6 and (loss.right == 1).all()
    config = compose(["model=toy", "tree=chain", "tree.budget=8", "drafter=medusa"])
    drafter = MedusaDrafter("trained", target, heads.requires_grad_(False))
    method = make_method(config.tree, config.budget, drafter)
    rounds = speculate(target, method, PROMPT, Sampler(), RULE, StageClock()).rounds
    assert {r.tokens_advanced for r in rounds[:-1]} == {K + 1}
    for r in rounds[:-1]:
        assert r.tree.tokens[1:].tolist() == wanted[r.start - 1].tolist()


def test_labels_by_hand():
    ids = torch.tensor([10, 11, 12, 13, 14])
    found = labels(ids, torch.tensor([False, False, True, True, True]), 2)
    none = NO_LABEL
    # Position 1 is the last of the prompt: its root, token 12, is the answer's first.
    assert found.tolist() == [[none, none], [13, 14], [14, none], [none, none], [none, none]]


@pytest.mark.parametrize("shared", [False, True])
def test_the_loss_is_the_sum_over_heads_of_the_mean_cross_entropy(shared):
    torch.manual_seed(0)
    heads = MedusaHeads(MedusaConfig(2, 1, shared), 6, 9)
    for weight in heads.parameters():
        torch.nn.init.normal_(weight)
    table = torch.randn(9, 6)
    hidden, ids = torch.randn(2, 7, 6), torch.randint(9, (2, 7))
    answer = torch.rand(2, 7) > 0.3
    loss = heads_loss(heads, hidden, ids, answer, table if shared else None)
    total = 0.0
    for i, head in enumerate(heads.each()):
        terms = []
        for b in range(2):
            for t in range(7 - 2 - i):
                if answer[b, t + 1] and answer[b, t + 2 + i]:
                    z = head[0](hidden[b, t])
                    logits = z @ table.T if shared else head[1](z)
                    terms.append(-logits.log_softmax(-1)[ids[b, t + 2 + i]])
        total += torch.stack(terms).mean()
    torch.testing.assert_close(loss.total, total)
    loss.total.backward()
    assert all(weight.grad.abs().sum() > 0 for weight in heads.parameters())


def test_a_text_without_labels_costs_nothing():
    heads = MedusaHeads(MedusaConfig(2), 6, 9)
    loss = heads_loss(heads, torch.randn(2, 6), torch.tensor([1, 2]), torch.ones(2).bool())
    assert float(loss.total.detach()) == 0 and loss.total.requires_grad
