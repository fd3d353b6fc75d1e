"""Every method emits plain decoding's ids, exactly, in fp32 and fp64, greedy and sampled."""

import pytest
import torch
from contract_support import DRAFTING, SELDOM, shared_out
from transformers import GenerationConfig

from dartree_exp.engines.target import Target
from dartree_exp.models.toy import toy_target
from dartree_exp.verify.sampling import Sampler

SAMPLERS = {
    "greedy": Sampler(),
    "T=1": Sampler(1.0, seed=3, sample_id="a"),
    "T=0.7 top-k": Sampler(0.7, top_k=12, seed=4, sample_id="b"),
    "T=1 top-p": Sampler(1.0, top_p=0.8, seed=5, sample_id="c"),
}


KINDS = [f"{family}-{bits}" for family in ("llama", "qwen3") for bits in ("fp32", "fp64")]


@pytest.mark.parametrize("method,kind", shared_out(KINDS))
def test_ids_equal_plain_decoding(make_case, method, kind):
    family, bits = kind.split("-")
    dtype = {"fp32": torch.float32, "fp64": torch.float64}[bits]
    case = make_case(method, family=family, dtype=dtype)
    paths = []
    for name, sampler in SAMPLERS.items():
        plain = case.plain(sampler=sampler)
        drafted = case.drafted(sampler=sampler)
        assert drafted.ids == plain.ids, name
        assert len(set(plain.ids)) > 5, "a constant text would prove nothing"
        paths += [r.accepted for r in drafted.rounds]
    if method.startswith("ngram"):  # these texts seldom repeat
        return
    assert max(map(len, paths)) > 2 or method in SELDOM, (
        "drafts must be accepted for this to mean anything"
    )
    if DRAFTING[method].builder != "chain" and method != "speculative_sampling":
        assert any(path != list(range(len(path))) for path in paths), (
            "no accepted path was non-contiguous"
        )


@pytest.mark.parametrize("drafter", ["oracle", "random", "adversarial"])
@pytest.mark.parametrize("method", ["dflash", "ddtree"])
@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS.keys())
def test_scripted_drafters(make_case, method, drafter, sampler):
    case = make_case(method, drafter=drafter)
    plain, drafted = case.plain(sampler=sampler), case.drafted(sampler=sampler)
    assert drafted.ids == plain.ids
    advanced = [r.tokens_advanced for r in drafted.rounds]
    if drafter == "oracle":
        assert set(advanced) == {case.method.depth + 1}
    if drafter == "adversarial":
        assert method == "ddtree" or set(advanced) == {1}


def test_plain_decoding_equals_the_library(make_case):
    """An independent oracle: transformers' own greedy generation."""
    for family in ("llama", "qwen3"):
        case = make_case("dflash", family=family)
        prompt = torch.tensor([[4, 9, 33, 17]])
        settings = GenerationConfig(
            max_new_tokens=20, do_sample=False, eos_token_id=None, pad_token_id=0
        )
        library = toy_target(family, torch.float32, seed=1, layers=2)._model
        theirs = library.generate(
            prompt, attention_mask=torch.ones_like(prompt), generation_config=settings
        )
        assert case.plain(prompt[0].tolist(), cap=20).ids == theirs[0, 4:].tolist()


def test_sampled_ids_differ_between_seeds_and_samples(make_case):
    case = make_case("dartree_pruned")
    texts = {
        tuple(case.plain(sampler=Sampler(1.0, seed=s, sample_id=i)).ids)
        for s in range(3)
        for i in ("a", "b")
    }
    assert len(texts) == 6


def test_control_a_wrong_commit_is_caught(make_case, monkeypatch):
    """Keeping the first rows in place of the accepted ones (the classic non-contiguous bug) changes
    ids.
    """
    from dartree_exp.engines.cache import TargetCache

    right = TargetCache.keep

    def naive(self, prefix_length, rows=None):
        return right(self, prefix_length + (0 if rows is None else len(rows)), None)

    case = make_case("dartree_pruned")
    plain = case.plain(cap=48)
    monkeypatch.setattr(TargetCache, "keep", naive)
    assert case.drafted(cap=48).ids != plain.ids


def test_control_a_wrong_mask_is_caught(make_case, monkeypatch):
    right = Target.mask

    def all_visible(*arguments):
        return torch.zeros_like(right(*arguments))

    case = make_case("dartree_pruned")
    plain = case.plain(cap=48)
    monkeypatch.setattr(Target, "mask", all_visible)
    assert case.drafted(cap=48).ids != plain.ids


def test_control_unkeyed_noise_is_caught(make_case, monkeypatch):
    """Noise drawn in sequence, not keyed by position, gives other ids than plain decoding."""
    import numpy as np

    case = make_case("dartree_pruned")
    plain = case.plain(sampler=Sampler(1.0, seed=3))
    stream = np.random.default_rng(3)
    monkeypatch.setattr(Sampler, "noise", lambda self, position, size: stream.gumbel(size=size))
    assert case.drafted(sampler=Sampler(1.0, seed=3)).ids != plain.ids
