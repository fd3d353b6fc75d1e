"""PTD: guesses of the target itself, lossless, and the pool they fill."""

import pytest
import torch

from dartree_exp.assemble import make_method
from dartree_exp.config import compose
from dartree_exp.decode import Request, autoregress, speculate, speculate_all
from dartree_exp.drafters import load_drafter
from dartree_exp.drafters.ptd.forest import ROOT, Forest, Shape
from dartree_exp.drafters.trie import Trie, trie_scorer
from dartree_exp.errors import ConfigError
from dartree_exp.interfaces import Limits
from dartree_exp.metrics.clock import StageClock
from dartree_exp.models.toy import toy_target
from dartree_exp.trees.children import Children
from dartree_exp.trees.heap import HeapBuilder
from dartree_exp.verify.sampling import Sampler
from dartree_exp.verify.stopping import StopRule

PROMPT = [4, 9, 33, 17, 9, 60, 3, 21]


@pytest.fixture(scope="module")
def target():
    return toy_target("llama", torch.float64, seed=1, layers=2)


def method(target, *overrides):
    config = compose(["model=toy", "method=ptd", *overrides])
    return make_method(config.tree, config.budget, load_drafter(config.drafter, target))


@pytest.mark.parametrize("sampler", [Sampler(), Sampler(1.0, seed=3), Sampler(0.3, seed=2)])
def test_long_texts_are_plain_decodings_in_fewer_rounds(target, sampler):
    rule = StopRule(150)
    plain = autoregress(target, PROMPT, sampler, rule, StageClock())
    drafted = speculate(target, method(target), PROMPT, sampler, rule, StageClock())
    assert drafted.ids == plain.ids
    assert len(drafted.rounds) < len(plain.ids) - 3
    for round_ in drafted.rounds:
        round_.tree.validate(32)


@pytest.mark.parametrize("tree", ["heap", "chain", "fixed", "pruned", "pool", "frontier"])
def test_requests_of_one_loop_are_as_alone_with_every_builder(target, tree):
    made = method(target, f"tree={tree}", "tree.budget=8")
    prompts = [PROMPT, [5, 5, 6, 5, 5, 6, 5], [9, 60, 9, 60]]
    caps = (60, 31, 45)
    requests = [Request(p, Sampler(), StopRule(n)) for p, n in zip(prompts, caps, strict=True)]
    together = speculate_all(target, made, requests, StageClock())
    for request, decoded in zip(requests, together, strict=True):
        alone = speculate(target, made, request.prompt, request.sampler, request.rule, StageClock())
        plain = autoregress(target, request.prompt, request.sampler, request.rule, StageClock())
        assert decoded.ids == alone.ids == plain.ids


def test_guesses_of_the_target_are_its_own_continuations(target):
    """Control of rows and parents: a guess's row says what the target says after the same text."""
    seen = []
    made = method(target, "drafter.probes=12")
    opened = made.drafter.open

    def watched(opening):
        session = opened(opening)
        [forest] = session._forests
        grow = forest.grow

        def noted(said):
            seen.append((*forest.rows(), list(said)))
            grow(said)

        forest.grow = noted
        return session

    made.drafter.open = watched
    decoded = speculate(target, made, PROMPT, Sampler(), StopRule(12), StageClock())
    for round_, (tokens, parents, said) in zip(decoded.rounds, seen, strict=True):
        text = [*PROMPT, *decoded.ids][: round_.start + 1]
        assert len(tokens) <= 12
        for place, answer in enumerate(said):
            path, at = [], place
            while at != ROOT:
                path.insert(0, tokens[at])
                at = parents[at]
            cache = target.new_cache(len(text) + len(path))
            assert int(target.prefill([*text, *path], cache).logits[-1].argmax()) == answer


def grown(said, shape, rounds):
    """A forest after so many forwards of a target that always says the same."""
    forest = Forest(shape, [7, 8], seed=0, stop_ids={99})
    for _ in range(rounds):
        tokens, _ = forest.rows()
        forest.grow([said(token) for token in tokens])
    return forest


def test_a_guess_grows_a_level_in_every_forward_and_then_fills_the_pool():
    shape = Shape(depth=3, children=2, rows=50, first=1)
    forest = grown(lambda token: token + 10, shape, rounds=2)
    [first] = forest.rows()[0][:1]
    assert forest.rows() == ([first, first + 10, first + 20], [ROOT, 0, 1]) and not forest.pool
    forest = grown(lambda token: token + 10, shape, rounds=3)
    assert forest.pool[first].levels(9) == [[first + 10], [first + 20], [first + 30]]
    assert forest.pool[first + 20].levels(9) == [[first + 30]]
    assert len(forest.rows()[0]) == 1  # another guess has started


def test_width_stop_tokens_and_rows_are_bounds():
    said = iter(range(1000, 2000))
    forest = Forest(Shape(depth=9, children=2, rows=60, first=1), [7], 0, {99})
    for _ in range(3):
        tokens, _ = forest.rows()
        forest.grow([next(said) for _ in tokens])
    assert len(forest._first[0].children) == 2
    assert grown(lambda token: 99, Shape(4, 4, 50), rounds=5).rows()[1] == [ROOT, 0]
    narrow = Forest(Shape(depth=30, children=4, rows=5), [7, 8], 0, set())
    for _ in range(20):
        tokens, _ = narrow.rows()
        assert len(tokens) <= 5
        narrow.grow([token + 10 for token in tokens])
    assert narrow.pool  # a guess makes room when there is no row left


def test_the_scorer_of_a_trie_follows_counts_and_stops_where_it_ends():
    one, other = Trie(), Trie()
    for path in ([1, 2, 3], [1, 2, 4], [1, 5], [6]):
        one.add(path)
    other.add([8, 9])
    scorer = trie_scorer([one, other], (0, 0), 3, torch.device("cpu"))
    tree = HeapBuilder(Children()).build(scorer, Limits(3, 20))
    mine, theirs = tree.one(0), tree.one(1)
    assert sorted(mine.tokens[1:].tolist()) == [1, 2, 3, 4, 5, 6]
    assert mine.tokens[1:4].tolist() == [1, 2, 6] and theirs.tokens[1:].tolist() == [8, 9]
    assert mine.scores[1].exp() == pytest.approx(3 / 5)
    assert trie_scorer([Trie()], (0,), 3, torch.device("cpu")) is None


def test_bad_settings_are_named():
    for text, said in (
        ("drafter.path=/x", "drafter.path=/x"),
        ("drafter.num_drafts=null", "drafter.num_drafts=null"),
        ("tree.scoring=marginal", "allowed: own"),
        ("drafter.probes=1", "drafter.probes=1"),
    ):
        with pytest.raises(ConfigError, match=said):
            compose(["method=ptd", text])
