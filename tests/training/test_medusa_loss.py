"""Medusa under training: its labels are the tokens that decoding drafts with perfect heads."""

import torch

from dartree_exp.assemble import make_method
from dartree_exp.config import compose
from dartree_exp.decode import autoregress, speculate
from dartree_exp.drafters.medusa.config import MedusaConfig
from dartree_exp.drafters.medusa.model import MedusaHeads
from dartree_exp.drafters.medusa.session import MedusaDrafter
from dartree_exp.metrics.clock import StageClock
from dartree_exp.models.toy import toy_target
from dartree_exp.training.batches import Captured, Vocabulary, make_batch
from dartree_exp.training.medusa import medusa_hidden
from dartree_exp.verify.sampling import Sampler
from dartree_exp.verify.stopping import StopRule

PROMPT, K = [4, 9, 33, 17, 9, 60, 3, 21], 3
RULE = StopRule(20)


def text_of(target):
    ids = [*PROMPT, *autoregress(target, PROMPT, Sampler(), RULE, StageClock()).ids]
    hidden = target.prefill(ids, target.new_cache(len(ids))).hidden
    return Captured("a", "b", torch.tensor(ids), len(PROMPT), hidden, hidden)


def batch_of(target, sample):
    anchors = torch.arange(sample.prompt, len(sample.ids) - 1)
    vocabulary = Vocabulary.of(target.embed_weight, target.lm_head_weight, list(range(64)), 0)
    scale = torch.ones(sample.features.shape[1], dtype=torch.float64)
    return make_batch([sample], [anchors], K, scale, vocabulary)


def test_trained_heads_draft_their_labels():
    """Heads that fit the labels of one answer are accepted whole; each draft is the label."""
    target = toy_target(dtype=torch.float64, seed=1, layers=2)
    sample = text_of(target)
    batch, heads = batch_of(target, sample), MedusaHeads(MedusaConfig(K), 32, 64).double()
    read = batch.finals.before()[0]
    for i, head in enumerate(heads.each()):
        rows = batch.labels[0, :, i] >= 0
        one_hot = 30.0 * torch.nn.functional.one_hot(batch.labels[0, rows, i], 64).double()
        head[1].weight.data = torch.linalg.lstsq(read[rows], one_hot).solution.T
    config = compose(["model=toy", "tree=chain", "tree.budget=8", "drafter=medusa"])
    drafter = MedusaDrafter("trained", target, heads.requires_grad_(False))
    method = make_method(config.tree, config.budget, drafter)
    rounds = speculate(target, method, PROMPT, Sampler(), RULE, StageClock()).rounds
    assert {r.tokens_advanced for r in rounds[:-1]} == {K + 1}
    for r in rounds[:-1]:
        labels = batch.labels[0, r.start - sample.prompt]
        assert r.tree.tokens[1:].tolist() == labels.tolist()


def test_slot_k_is_head_k_at_the_position_before_the_anchor():
    target = toy_target(dtype=torch.float64, seed=1, layers=2)
    sample, heads = text_of(target), MedusaHeads(MedusaConfig(K, 1, True), 32, 64)
    for weight in heads.parameters():
        torch.nn.init.normal_(weight)
    batch = batch_of(target, sample)
    found = medusa_hidden(heads, batch)
    for place, anchor in enumerate(batch.inputs.anchors[0].tolist()):
        for k, head in enumerate(heads.each()):
            expected = head[0](sample.finals[anchor - 1].float())
            torch.testing.assert_close(found[0, place, k], expected)
    slots = torch.tensor([[[0, 2]] * found.shape[1]])
    torch.testing.assert_close(medusa_hidden(heads, batch, slots), found[:, :, [0, 2]])
