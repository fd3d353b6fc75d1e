"""EAGLE-3's objective: each step of the training-time test is the forward that drafting does."""

import copy
import math
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from dartree_exp.config import compose
from dartree_exp.drafters import load_drafter
from dartree_exp.interfaces import Commit, Opening
from dartree_exp.models.toy import toy_target
from dartree_exp.training.batches import Captured, Vocabulary, make_batch
from dartree_exp.training.eagle import eagle_hidden, steps
from dartree_exp.training.model import DraftModel
from dartree_exp.training.step import Step, draw
from dartree_exp.verify.sampling import Sampler

GAMMA = -1 / math.log(0.8)
TEXT = [4, 9, 33, 17, 9, 60, 3, 21, 40, 22]
STEPS = 4


@pytest.fixture(scope="module")
def made():
    target = toy_target(dtype=torch.float64, seed=1, layers=3)
    drafter = load_drafter(compose(["drafter=eagle", "model=toy"]).drafter, target)
    read = target.prefill(TEXT, target.new_cache(len(TEXT)), drafter.target_layer_ids)
    return target, drafter, read


def test_the_steps_are_what_drafting_computes_along_the_text(made):
    """Row n of step i: the scores below a root at n + 1 and the i tokens after it."""
    target, drafter, read = made
    embed, rows = target.embed_weight, torch.arange(2, len(TEXT) - STEPS)
    tokens = torch.tensor([TEXT[n + 1 : n + 1 + STEPS] for n in rows])
    following = torch.tensor(TEXT[1:])
    made_steps = steps(drafter.model, read.features[:-1], following, rows, tokens, embed)
    trained = [drafter.model.logits(hidden) for hidden in made_steps]
    for place, n in enumerate(rows.tolist()):
        session = drafter.open(Opening([TEXT], [Sampler()], None, nullcontext))
        ids = torch.tensor([TEXT[: n + 1]])
        commit = Commit(
            (TEXT[n + 1],),
            (n + 1,),
            (n + 1,),
            ids,
            read.features[None, : n + 1],
            read.hidden[None, : n + 1],
        )
        scorer = session.draft(commit, None).one(0)
        state = scorer.start()
        for i in range(STEPS):
            row = trained[i][place].log_softmax(-1)
            torch.testing.assert_close(scorer.score(state, i + 1)[0], row)
            if n + 2 + i < len(TEXT):
                token = torch.tensor([TEXT[n + 2 + i]])
                state = scorer.advance(state, i + 1, torch.tensor([0]), token)


def batch_of(made, anchors):
    """The text as a batch with these anchors, over the drafter's vocabulary."""
    target, drafter, read = made
    sample = Captured("a", "b", torch.tensor(TEXT), 2, read.features, read.hidden)
    embed, head = target.embed_weight, target.lm_head_weight
    vocabulary = Vocabulary.of(embed, head, drafter.ids.tolist(), 0)
    scale = torch.ones(read.features.shape[1], dtype=torch.float64)
    return make_batch([sample], [torch.tensor(anchors)], STEPS, scale, vocabulary), vocabulary


def trainable(model):
    """A float32 copy without the packed products of inference."""
    model = copy.deepcopy(model).float().requires_grad_(True)
    for part in model.modules():
        part.__dict__.pop("forward", None)
    return model


def test_the_slots_of_an_anchor_are_the_steps_of_the_row_before_it(made):
    _, drafter, read = made
    batch, vocabulary = batch_of(made, [3, 5, 6])
    found = eagle_hidden(trainable(drafter.model), batch, vocabulary.embed.float())
    every = torch.arange(len(TEXT) - 1)
    tokens = torch.tensor([[*TEXT[n + 1 :], *[0] * STEPS][:STEPS] for n in every])
    features, ids = read.features[:-1].float(), torch.tensor(TEXT)
    model, embed = trainable(drafter.model), vocabulary.embed.float()
    whole = torch.stack(list(steps(model, features, ids[1:], every, tokens, embed)), 1)
    torch.testing.assert_close(found[0], model.norm(whole)[[2, 4, 5]])
    slots = torch.tensor([[[0, 2], [1, 3], [0, 1]]])
    some = eagle_hidden(model, batch, embed, slots)
    torch.testing.assert_close(some, found.gather(2, slots[..., None].expand(-1, -1, -1, 32)))


SETTINGS = SimpleNamespace(
    stage="backbone", ce=0.0, l1=0.0, kl=1.0, rkl=0.0, rkl_clip=0.0, rkl_temperature=1.0,
    base_decay=1.0, gamma=GAMMA, anchors=3, loss_slots=STEPS,
)  # fmt: skip


def stepped(made, model):
    """The loss of a training step on the text, all slots drawn, after its backward."""
    batch, vocabulary = batch_of(made, [3, 5, 6])
    narrow = Vocabulary(
        vocabulary.embed.float(), vocabulary.head.float(), vocabulary.ids, vocabulary.columns, 0
    )
    drawn = draw(batch, SETTINGS, [torch.Generator().manual_seed(0)])
    step = Step(DraftModel(model, torch.ones(64)), SETTINGS, narrow)
    loss = step(batch, drawn, drawn.totals, 0.5)
    loss.backward()
    return loss


@pytest.fixture
def exact(monkeypatch):
    monkeypatch.setattr("dartree_exp.training.step.cpu_has_bf16", lambda: False)


def test_loss_and_gradients_by_their_definition(made, exact):
    """KL divergence from the target's distribution over the draft vocabulary, step i weighted
    0.8^i, as a mean over the rows whose token can be drafted; its gradient by autograd.
    """
    _, drafter, read = made
    model, other = trainable(drafter.model), trainable(drafter.model)
    loss = stepped(made, model)
    batch, vocabulary = batch_of(made, [3, 5, 6])
    hidden = eagle_hidden(other, batch, vocabulary.embed.float())[0]
    total = weights = torch.zeros(())
    skipped = 0
    for a, anchor in enumerate([3, 5, 6]):
        for i in range(STEPS):
            if anchor + i + 1 >= len(TEXT):
                continue
            if TEXT[anchor + i + 1] not in drafter.ids.tolist():
                skipped += 1
                continue
            p = (read.hidden[anchor + i].float() @ vocabulary.head.float().T).softmax(-1)
            q = other.lm_head(hidden[a, i]).log_softmax(-1)
            total = total + 0.8**i * (p * (p.log() - q)).sum()
            weights = weights + 0.8**i
    expected = total / weights
    assert skipped > 0 and loss.base == pytest.approx(float(expected.detach()), rel=1e-4)
    expected.backward()
    for (name, mine), theirs in zip(model.named_parameters(), other.parameters(), strict=True):
        assert theirs.grad.abs().sum() > 0, name
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-3, atol=1e-6, msg=name)


def test_later_steps_pass_gradients_to_the_features(made):
    _, drafter, _ = made
    batch, vocabulary = batch_of(made, [3, 5])
    features = batch.inputs.features.float().requires_grad_(True)
    batch = replace(batch, inputs=replace(batch.inputs, features=features))
    hidden = eagle_hidden(trainable(drafter.model), batch, vocabulary.embed.float())
    hidden[0, 0, STEPS - 1].sum().backward()
    assert (features.grad[:3].abs().sum(1) > 0).all() and features.grad[3:].abs().sum() == 0
