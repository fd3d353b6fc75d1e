"""On another device than the CPU a round brings data to the host once, in the verifier, and once
more if its budget policy chooses the number of nodes.
"""

from collections import Counter

import pytest
import torch
from contract_support import DRAFTING, MAIN, POLICIES
from torch.overrides import TorchFunctionMode

from dartree_exp.verify.exact import ExactMatch
from dartree_exp.verify.sampling import Sampler
from dartree_exp.verify.walk import accepted, follow

READS = ("tolist", "item", "numpy", "cpu", "__bool__", "__int__", "__float__", "__index__")
READS += ("nonzero", "unique", "equal", "allclose")
CHAINS_AND_LEVELS = [
    name for name in MAIN if DRAFTING[name].client is None and DRAFTING[name].builder != "heap"
]


class Elsewhere(TorchFunctionMode):
    """Tensors say that they do not lie on the CPU, and reading them on the host is counted by the
    stage that does it.
    """

    def __init__(self):
        super().__init__()
        self.reads, self.stage = Counter(), None

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func == torch.Tensor.is_cpu.__get__:
            return False
        name = getattr(func, "__name__", "")
        if self.stage and name in READS:
            self.reads[self.stage] += 1
        return func(*args, **(kwargs or {}))


def reads_of(case, sampler, monkeypatch):
    """Reads of each stage, and the number of rounds."""
    from dartree_exp.metrics.clock import StageClock

    elsewhere, right = Elsewhere(), StageClock.stage
    drafting = case.method.scoring  # the scripted drafter of the tests reads the target itself

    class Watched:
        def __init__(self, inner, name):
            self.inner, self.name = inner, name

        def __enter__(self):
            elsewhere.stage = None if self.name == "draft" else self.name
            return self.inner.__enter__()

        def __exit__(self, *error):
            elsewhere.stage = None
            return self.inner.__exit__(*error)

    def scoring(*arguments):
        elsewhere.stage = "draft"
        try:
            return drafting(*arguments)
        finally:
            elsewhere.stage = None

    object.__setattr__(case.method, "scoring", scoring)
    monkeypatch.setattr(StageClock, "stage", lambda self, name: Watched(right(self, name), name))
    with elsewhere:
        decoded = case.drafted(sampler=sampler)
    return decoded, elsewhere.reads


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("method", CHAINS_AND_LEVELS)
def test_one_transfer_a_round(make_case, monkeypatch, method, temperature):
    case, sampler = make_case(method), Sampler(temperature, top_k=9 if temperature else 0)
    decoded, reads = reads_of(case, sampler, monkeypatch)
    assert decoded.ids == case.plain(sampler=sampler).ids
    rounds = len(decoded.rounds)
    assert reads["verify"] == rounds
    # A policy that cuts a tree reads the number of nodes.
    assert (
        reads["build"] <= (rounds if method in (*POLICIES, "adaflash") else 0)
        and reads.total() <= 2 * rounds
    )


def test_control_a_verifier_that_reads_row_by_row_is_caught(make_case, monkeypatch):
    def row_by_row(self, tree, ids, logits, draws, healthy):
        fields = ids.tolist()
        found = [follow(r, own, logits[r], draws) for r, own in enumerate(fields)]
        return accepted([own[0] for own in fields], found, healthy, logits.device)

    monkeypatch.setattr(ExactMatch, "_fetch", row_by_row)
    decoded, reads = reads_of(make_case("dartree_pruned"), Sampler(), monkeypatch)
    assert reads["verify"] >= 4 * len(decoded.rounds)
