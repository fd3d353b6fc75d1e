"""Prompt lookup: what is found, in which rounds it helps, and what is refused."""

import pytest
import torch

from dartree_exp.assemble import make_method
from dartree_exp.config import compose
from dartree_exp.decode import autoregress, speculate
from dartree_exp.drafters import load_drafter
from dartree_exp.drafters.ngram.session import continuations
from dartree_exp.drafters.trie import Trie
from dartree_exp.errors import ConfigError
from dartree_exp.metrics.clock import StageClock
from dartree_exp.models.toy import toy_target
from dartree_exp.verify.sampling import Sampler
from dartree_exp.verify.stopping import StopRule


def by_definition(text, longest, shortest, most):
    """Every start of an earlier occurrence, for each length from the longest on."""
    for n in range(longest, shortest - 1, -1):
        last = text[len(text) - n :]
        tails = [
            text[i + n : i + n + most] for i in range(len(text) - n) if text[i : i + n] == last
        ]
        if n <= len(text) - 1 and tails:
            return tails
    return []


@pytest.mark.parametrize("longest,shortest,most", [(1, 1, 3), (3, 1, 2), (4, 2, 5), (3, 3, 1)])
def test_continuations_are_those_of_the_longest_ngram_that_occurred(longest, shortest, most):
    draw = torch.Generator().manual_seed(1)
    found = 0
    for length in (1, 2, 5, 9, 30, 60):
        for alphabet in (2, 4):
            text = torch.randint(alphabet, (length,), generator=draw).tolist()
            expected = Trie()
            for tail in by_definition(text, longest, shortest, most):
                expected.add(tail)
            assert continuations(text, longest, shortest, most) == expected
            found += bool(expected.children)
    assert found > 2


def test_a_text_that_repeats_takes_fewer_rounds_and_stays_the_same():
    target, sampler, rule = toy_target(dtype=torch.float64), Sampler(), StopRule(150)
    config = compose(["model=toy", "method=ngram"])
    method = make_method(config.tree, config.budget, load_drafter(config.drafter, target))
    prompt = [4, 9, 33, 17]
    plain = autoregress(target, prompt, sampler, rule, StageClock())
    drafted = speculate(target, method, prompt, sampler, rule, StageClock())
    assert drafted.ids == plain.ids
    assert len(drafted.rounds) < len(plain.ids) - 20


def test_a_tree_has_no_nodes_that_follow_nothing():
    """A chain ends where the text that is copied ends."""
    target = toy_target(dtype=torch.float64)
    config = compose(["model=toy", "method=ngram", "tree=chain"])
    method = make_method(config.tree, config.budget, load_drafter(config.drafter, target))
    prompt = [9, 33, 9, 33, 17]
    decoded = speculate(target, method, prompt, Sampler(), StopRule(24), StageClock())
    assert any(0 < round_.tree.num_nodes < 10 for round_ in decoded.rounds)
    for round_ in decoded.rounds:
        assert round_.tree.scores.isfinite().all()


@pytest.mark.parametrize(
    "overrides,message",
    [
        (
            ["drafter.longest=2", "drafter.shortest=3"],
            "drafter.shortest=3: must be at most drafter.longest=2",
        ),
        (["tree=sampled"], "tree=sampled: the drafts of drafter.family=ngram are not drawn"),
        (["drafter.path=x"], "drafter.path=x: drafter.family=ngram loads nothing"),
    ],
)
def test_what_has_no_meaning_is_refused(overrides, message):
    with pytest.raises(ConfigError, match=message):
        compose(["model=toy", "method=ngram", *overrides])
