"""EAGLE's drafting: which rows it reads, and that the cached, tree-masked forwards are those of
each path alone.
"""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

from dartree_exp.assemble import load_parts, make_method
from dartree_exp.config import compose
from dartree_exp.decode import Request, autoregress, speculate, speculate_all
from dartree_exp.drafters import load_drafter
from dartree_exp.drafters.eagle.model import EagleModel
from dartree_exp.drafters.eagle.session import EagleDrafter
from dartree_exp.drafters.seeded import fill
from dartree_exp.interfaces import Commit, Limits, Opening
from dartree_exp.metrics.clock import StageClock
from dartree_exp.models.toy import toy_target
from dartree_exp.trees.pool import PoolBuilder
from dartree_exp.verify.sampling import Sampler
from dartree_exp.verify.stopping import StopRule

PROMPT = [4, 9, 33, 17, 9, 60, 3, 21]
FAMILIES = ["eagle", "eagle2"]


@pytest.fixture(scope="module")
def target():
    return toy_target(dtype=torch.float64, seed=1, layers=3)


def made(name, target):
    return load_drafter(compose([f"drafter={name}", "model=toy"]).drafter, target)


@contextmanager
def nothing(stage):
    yield


def opened(drafter, target, text, cuts):
    """The scorer after the commits of `text`, cut at `cuts`; the last token is the root."""
    cache = target.new_cache(len(text))
    read = target.prefill(text[:-1], cache, drafter.target_layer_ids)
    session = drafter.open(Opening([text], [Sampler()], lambda *_: None, nothing))
    scorer = None
    for begin, end in itertools.pairwise([0, *cuts, len(text) - 1]):
        rows = slice(begin, end)
        features = None if read.features is None else read.features[None, rows]
        ids = torch.tensor([text[rows]])
        commit = Commit(
            (text[end],), (end,), (end - begin,), ids, features, read.hidden[None, rows]
        )
        scorer = session.draft(commit, None).one(0)
    return scorer, read


def plainly(drafter, read, text, path):
    """Log-probabilities after a path, by one causal forward over text and path without a cache:
    the true features of the text, then the drafter's own outputs.
    """
    model, embed = drafter.model, drafter._embed
    features = read.hidden if read.features is None else read.features
    hidden, tokens = model.start(features), [*text[1:], *path]
    for count in range(len(text) - 1, len(tokens) + 1):
        rows = torch.arange(count)
        mask = hidden.new_full((count, count), -torch.inf).triu(1)
        out = model(hidden[:count], embed[torch.tensor(tokens[:count])], rows, mask)
        hidden = torch.cat([hidden, out[-1:]])
    return drafter.logits(out[-1:]).log_softmax(-1)[0]


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("cuts", [[], [3, 4]], ids=["prompt", "three commits"])
def test_a_node_has_the_scores_of_its_path_alone(target, name, cuts):
    """Siblings do not see each other, and an earlier state can be expanded again."""
    drafter = made(name, target)
    scorer, read = opened(drafter, target, PROMPT, cuts)
    root = scorer.start()
    torch.testing.assert_close(scorer.score(root, 1)[0], plainly(drafter, read, PROMPT, []))
    first = scorer.advance(root, 1, torch.tensor([0, 0, 0]), torch.tensor([20, 30, 40]))
    second = scorer.advance(first, 2, torch.tensor([2, 0, 2]), torch.tensor([21, 31, 41]))
    again = scorer.advance(first, 2, torch.tensor([1]), torch.tensor([50]))
    third = scorer.advance(second, 3, torch.tensor([2, 1]), torch.tensor([22, 23]))
    for state, depth, paths in (
        (first, 2, [[20], [30], [40]]),
        (second, 3, [[40, 21], [20, 31], [40, 41]]),
        (again, 3, [[30, 50]]),
        (third, 4, [[40, 41, 22], [20, 31, 23]]),
    ):
        for row, path in zip(scorer.score(state, depth), paths, strict=True):
            torch.testing.assert_close(row, plainly(drafter, read, PROMPT, path))
    assert bool(scorer.finite())


def test_control_a_sibling_that_is_seen_changes_the_scores(target, monkeypatch):
    drafter = made("eagle", target)
    scorer, read = opened(drafter, target, PROMPT, [])
    right = type(drafter).forward

    def careless(self, hidden, tokens, positions, mask, cache):
        return right(self, hidden, tokens, positions, torch.zeros_like(mask), cache)

    monkeypatch.setattr(type(drafter), "forward", careless)
    first = scorer.advance(scorer.start(), 1, torch.tensor([0, 0]), torch.tensor([20, 30]))
    expected = plainly(drafter, read, PROMPT, [20])
    assert (scorer.score(first, 2)[0] - expected).abs().max() > 1e-3


def test_the_layers_are_those_whose_inputs_are_named(target):
    """Facts 0.2: id i is the input of layer i, which is the output of layer i - 1."""
    assert made("eagle", target).target_layer_ids == (-1, 0)  # ids 0 and 1
    config = made("eagle", target).model.config
    assert replace(config, aux_ids=None).taps(36) == (1, 17, 32)  # inputs of 2, 18 and 33
    assert made("eagle2", target).target_layer_ids == ()


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("total", [2, 6, 12, 60])
def test_the_pool_is_the_dynamic_tree_with_rerank(target, k, depth, total):
    """Facts 5.1: k + depth * k^2 candidates in a list, the best total - 1 of it, ties by list
    index, in the order of the list. The forwards here are of one path each.
    """
    drafter = made("eagle", target)
    drafter.num_drafts = depth + 1
    scorer, read = opened(drafter, target, PROMPT, [])

    def children(path, above):
        row = plainly(drafter, read, PROMPT, path)
        values, columns = row.sort(descending=True, stable=True)
        return [
            ((*path, int(drafter.ids[c])), above + float(v))
            for v, c in zip(values[:k], columns[:k], strict=True)
        ]

    listed = children((), 0.0)
    frontier = list(listed)
    for _ in range(depth):
        level = [child for path, score in frontier for child in children(path, score)]
        listed += level
        best = sorted(range(len(level)), key=lambda i: (-level[i][1], i))[:k]
        frontier = [level[i] for i in best]
    assert len(listed) == k + depth * k * k
    order = sorted(range(len(listed)), key=lambda i: (-listed[i][1], i))
    chosen = [listed[i] for i in sorted(order[: total - 1])]
    tree = PoolBuilder(k, k).build(scorer, Limits(depth + 1, total - 1)).validate(total - 1)
    paths = [()]
    for token, parent in zip(tree.tokens[1:].tolist(), tree.parents[1:].tolist(), strict=True):
        paths.append((*paths[parent], token))
    assert paths[1:] == [path for path, _ in chosen]
    for score, (_, expected) in zip(tree.scores[1:].tolist(), chosen, strict=True):
        assert score == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("name", FAMILIES)
def test_forwards_within_the_build_are_draft_time(target, name, monkeypatch):
    drafter, now = made(name, target), [0.0]
    right = type(drafter).forward

    def slow(self, *arguments):
        now[0] += 1000
        return right(self, *arguments)

    monkeypatch.setattr(type(drafter), "forward", slow)
    config = compose(["model=toy", "method=eagle3"])
    method = make_method(config.tree, config.budget, drafter)
    clock = StageClock(now=lambda: now[0])
    request = Request(PROMPT, Sampler(), StopRule(6))
    (decoded,) = speculate_all(target, method, [request], clock)
    rounds = len(decoded.rounds)
    assert decoded.time["draft"] == pytest.approx(8e-6 * rounds)
    assert decoded.time["build"] == 0


def test_tokens_outside_the_draft_vocabulary_are_never_drafted(target):
    config = compose(["model=toy", "method=eagle3"])
    drafter = made("eagle", target)
    method = make_method(config.tree, config.budget, drafter)
    decoded = speculate(target, method, PROMPT, Sampler(), StopRule(12), StageClock())
    plain = autoregress(target, PROMPT, Sampler(), StopRule(12), StageClock())
    drafted = {t for r in decoded.rounds for t in r.tree.tokens[1:].tolist()}
    assert decoded.ids == plain.ids and drafted <= set(drafter.ids.tolist()) != set(range(64))


def test_a_model_can_be_trained_on_after_a_drafter_was_made_of_it(target):
    drafter = made("eagle", target)
    model = EagleModel(drafter.model.config, 2).double()
    fill(model, 1)
    again = EagleDrafter("trained", target, model, 3, vocab_ids=drafter.ids)
    rows = torch.randn(2, 64, dtype=torch.float64)
    assert not again.model.start(rows).requires_grad
    model.start(rows).sum().backward()
    assert model.fc.weight.grad is not None and again.model.fc.weight is model.fc.weight


def test_a_missing_row_is_named(target):
    drafter = made("eagle", target)
    read = target.prefill(PROMPT[:4], target.new_cache(8), drafter.target_layer_ids)
    session = drafter.open(Opening([PROMPT], [Sampler()], lambda *_: None, nothing))
    ids = torch.tensor([PROMPT[:4]])
    features = None if read.features is None else read.features[None]
    commit = Commit((21,), (7,), (4,), ids, features, read.hidden[None])
    with pytest.raises(ValueError, match=r"features of 7 tokens are needed .* position 7, got 4"):
        session.draft(commit, None)


def test_a_run_on_the_toy_target():
    target, method = load_parts(compose(["model=toy", "method=eagle2", "engine.dtype=fp64"]))
    decoded = speculate(target, method, PROMPT, Sampler(), StopRule(12), StageClock())
    assert {r.tree.num_nodes for r in decoded.rounds} == {59}
