"""Typical acceptance: the rule by its definition, that it is lossy, and that its runs say so."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from dartree_exp.config import compose, config_hash
from dartree_exp.errors import ConfigError
from dartree_exp.interfaces import DraftTree
from dartree_exp.verify.exact import ExactMatch
from dartree_exp.verify.finite import NonFiniteLogitsError
from dartree_exp.verify.sampling import RoundDraws, Sampler
from dartree_exp.verify.typical import TypicalAcceptance

VOCAB = 7


def random_tree(seed, nodes=14):
    """Distinct siblings, parents first."""
    draw = torch.Generator().manual_seed(seed)
    tokens, parents, depths, taken = [0], [-1], [0], set()
    while len(tokens) <= nodes:
        parent = int(torch.randint(len(tokens), (), generator=draw))
        token = int(torch.randint(VOCAB, (), generator=draw))
        if (parent, token) not in taken:
            taken.add((parent, token))
            tokens.append(token)
            parents.append(parent)
            depths.append(depths[parent] + 1)
    fields = [torch.tensor([field]) for field in (tokens, parents, depths)]
    logits = 2.0 * torch.randn(1, len(tokens), VOCAB, generator=draw)
    return DraftTree(*fields, torch.zeros(1, len(tokens)), None, nodes), logits


def by_definition(tree, logits, sampler, threshold, alpha):
    """Every root-to-node path, and whether each draft on it passes."""
    tokens, parents = tree.tokens[0].tolist(), tree.parents[0].tolist()
    best = ((0, 0.0), [0])
    for node in range(len(tokens)):
        path = [node]
        while path[0]:
            path.insert(0, parents[path[0]])
        total = 0.0
        for above, below in pairwise(path):
            scaled = (logits[0, above].double() / sampler.temperature).masked_fill(
                ~sampler.kept(logits[0, above].double()), -math.inf
            )
            p = scaled.softmax(-1).tolist()
            entropy = -sum(x * math.log(x) for x in p if x > 0)
            if not p[tokens[below]] > min(threshold, alpha * math.exp(-entropy)):
                break
            total += math.log(p[tokens[below]])
        else:
            if (len(path) - 1, total) > best[0]:
                best = ((len(path) - 1, total), path)
    return best[1]


SAMPLERS = [Sampler(1.0, seed=1), Sampler(0.6, top_k=4, seed=2), Sampler(1.4, top_p=0.8, seed=3)]


@pytest.mark.parametrize("knobs", [(0.09, 0.3), (0.5, 0.9), (0.02, 1.0), (0.0, 0.0), (1.0, 50.0)])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_path_is_the_longest_and_then_the_likeliest(sampler, knobs):
    lengths = set()
    for seed in range(30):
        tree, logits = random_tree(seed)
        draws = RoundDraws([sampler], (5,))
        made = TypicalAcceptance(*knobs)(tree, logits, draws)
        path = by_definition(tree, logits, sampler, *knobs)
        assert made.paths[0] == path
        assert made.tokens[0] == [int(tree.tokens[0, node]) for node in path[1:]]
        depth = int(tree.depths[0, path[-1]]) + 1
        assert made.bonus[0] == draws.target(0, logits[0, path[-1]], depth)
        lengths.add(len(path))
    assert len(lengths) > 1 or knobs == (1.0, 50.0)


def test_a_greedy_target_gets_the_path_of_exact_match():
    for seed in range(20):
        tree, logits = random_tree(seed)
        draws = RoundDraws([Sampler()], (5,))
        typical, exact = TypicalAcceptance(), ExactMatch()
        assert typical(tree, logits, draws).paths == exact(tree, logits, draws).paths
        assert typical(tree, logits, draws).bonus == exact(tree, logits, draws).bonus


def test_it_changes_the_law():
    """One draft of probability 0.3 is always taken; exact match takes it 0.3 of the time."""
    tokens = torch.tensor([[0, 2]])
    tree = DraftTree(
        tokens, torch.tensor([[-1, 0]]), torch.tensor([[0, 1]]), torch.zeros(1, 2), None, 1
    )
    p = torch.tensor([0.1, 0.2, 0.3, 0.1, 0.1, 0.1, 0.1])
    logits = p.log().expand(1, 2, VOCAB)
    taken = {TypicalAcceptance: 0, ExactMatch: 0}
    for seed in range(400):
        for verifier in taken:
            draws = RoundDraws([Sampler(1.0, seed=seed)], (5,))
            taken[verifier] += len(verifier()(tree, logits, draws).tokens[0])
    assert taken[TypicalAcceptance] == 400 and 80 < taken[ExactMatch] < 160
    assert not TypicalAcceptance.exact


def test_two_requests_are_verified_apart():
    (one, first), (two, second) = random_tree(1), random_tree(2)
    both = DraftTree.stack([one.one(0), two.one(0)])
    samplers = [SAMPLERS[0], replace(SAMPLERS[0], sample_id="b")]
    made = TypicalAcceptance()(both, torch.cat([first, second]), RoundDraws(samplers, (5, 9)))
    alone = [
        TypicalAcceptance()(tree, logits, RoundDraws([sampler], (start,)))
        for tree, logits, sampler, start in zip(
            (one, two), (first, second), samplers, (5, 9), strict=True
        )
    ]
    assert made.paths == tuple(a.paths[0] for a in alone)
    assert made.bonus == tuple(a.bonus[0] for a in alone)


def test_logits_that_are_not_finite_are_named():
    tree, logits = random_tree(0)
    logits[0, 0, 3] = math.nan
    with pytest.raises(NonFiniteLogitsError, match="target logits: 1 of"):
        TypicalAcceptance()(tree, logits, RoundDraws([SAMPLERS[0]], (5,)))


def test_names_say_that_a_method_is_lossy(tmp_path):
    medusa = ["model=toy", "method=medusa", "decoding=sample"]
    assert compose(medusa).method == "medusa"
    lossy = compose([*medusa, "verify=typical"])
    assert lossy.method == "medusa+static(marginal)+typical"
    assert config_hash(lossy) != config_hash(compose(medusa))
    other = compose([*medusa, "verify=typical", "verify.alpha=0.5"])
    assert config_hash(other) != config_hash(lossy)
    from dartree_exp.config.methods import method_name

    lossy.method = "mine"  # a name of the user's own
    lossy.method = method_name(lossy)
    assert lossy.method == method_name(lossy) == "mine+typical"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["verify.threshold=1.5"], r"verify\.threshold=1\.5: must be a number >= 0 and <= 1"),
        (["verify.alpha=-1"], r"verify\.alpha=-1.*: must be a number >= 0"),
        (["decoding=sample", "proof=fp32"], "the ids differ from plain decoding's by design"),
    ],
)
def test_what_cannot_work_is_refused(overrides, message):
    with pytest.raises(ConfigError, match=message):
        compose(["model=toy", "method=medusa", "verify=typical", *overrides])
