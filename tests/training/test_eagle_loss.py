"""EAGLE-3's objective: each step of the training-time test is the forward that drafting does."""

import copy
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch

from dartree_exp.config import compose
from dartree_exp.drafters import load_drafter
from dartree_exp.drafters.eagle.model import EagleModel
from dartree_exp.interfaces import Commit, Opening
from dartree_exp.models.toy import toy_target
from dartree_exp.training.eagle import DECAY, steps, steps_loss
from dartree_exp.verify.sampling import Sampler

TEXT = [4, 9, 33, 17, 9, 60, 3, 21, 40, 22]
STEPS = 4


@pytest.fixture(scope="module")
def made():
    target = toy_target(dtype=torch.float64, seed=1, layers=3)
    drafter = load_drafter(compose(["drafter=eagle", "model=toy"]).drafter, target)
    read = target.prefill(TEXT, target.new_cache(len(TEXT)), drafter.target_layer_ids)
    teacher = read.hidden @ target.lm_head_weight.T
    return target, drafter, read, teacher


def test_the_steps_are_what_drafting_computes_along_the_text(made):
    """Row n of step i: the scores below a root at n + 1 and the i tokens after it."""
    target, drafter, read, _ = made
    embed = target.embed_weight
    trained = list(steps(drafter.model, read.features, torch.tensor(TEXT), embed, STEPS))
    for n in range(2, len(TEXT) - STEPS):
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
            row = trained[i][n].log_softmax(-1)
            torch.testing.assert_close(scorer.score(state, i + 1)[0], row)
            if n + 2 + i < len(TEXT):
                token = torch.tensor([TEXT[n + 2 + i]])
                state = scorer.advance(state, i + 1, torch.tensor([0]), token)


def trainable(model):
    """A copy without the packed products of inference."""
    model = copy.deepcopy(model).requires_grad_(True)
    for part in model.modules():
        part.__dict__.pop("forward", None)
    return model


@pytest.mark.parametrize("restricted", [True, False])
def test_the_loss_by_its_definition(made, restricted):
    target, drafter, read, teacher = made
    model, ids, embed = drafter.model, torch.tensor(TEXT), target.embed_weight
    answer = torch.arange(len(TEXT)) >= 4
    vocab = drafter.ids if restricted else None
    if not restricted:
        model = EagleModel(replace(model.config, draft_vocab_size=64), 2).double()
    loss = steps_loss(model, read.features, ids, embed, teacher, answer, vocab, STEPS)
    rows, total, skipped = len(TEXT) - 1, 0.0, 0
    for i, logits in enumerate(steps(model, read.features, ids, embed, STEPS)):
        step = 0.0
        for n in range(rows):
            if n + 2 + i >= len(TEXT) or not answer[n + 2 + i]:
                continue
            law = teacher[n + 1 + i].double()
            if restricted and int(law.argmax()) not in set(drafter.ids.tolist()):
                skipped += 1
                continue
            p = (law[drafter.ids] if restricted else law).softmax(-1)
            step += float(-(p * logits[n].detach().log_softmax(-1)).sum())
        total += DECAY**i * step / rows
    assert float(loss.total.detach()) == pytest.approx(total, rel=1e-5)
    assert skipped > 0 or not restricted


def test_gradients_reach_every_weight_through_all_steps(made):
    target, drafter, read, teacher = made
    model = trainable(drafter.model)
    answer = torch.ones(len(TEXT), dtype=torch.bool)
    parts = read.features, torch.tensor(TEXT), target.embed_weight, teacher, answer, drafter.ids
    steps_loss(model, *parts, STEPS).total.backward()
    assert all(weight.grad.abs().sum() > 0 for weight in model.parameters())
    first = model.fc.weight.grad.clone()
    model.zero_grad()
    steps_loss(model, *parts, 1).total.backward()
    assert not torch.allclose(first, model.fc.weight.grad), "later steps pass gradients to fc"


def test_a_drafter_that_learnt_the_text_is_right_in_every_step(made):
    """A few steps of descent on one text lower every step's loss."""
    target, drafter, read, teacher = made
    model = trainable(drafter.model)
    answer = torch.ones(len(TEXT), dtype=torch.bool)
    parts = read.features, torch.tensor(TEXT), target.embed_weight, teacher, answer, drafter.ids
    descent = torch.optim.Adam(model.parameters(), lr=0.01)
    first = steps_loss(model, *parts, STEPS)
    for _ in range(150):
        descent.zero_grad()
        steps_loss(model, *parts, STEPS).total.backward()
        descent.step()
    last = steps_loss(model, *parts, STEPS)
    assert (last.by_step < first.by_step).all() and (last.right == 1).all()
