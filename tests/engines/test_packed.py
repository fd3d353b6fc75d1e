"""The packed forward computes the library's model."""

from functools import partial

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dartree_exp.config import compose
from dartree_exp.decode import autoregress
from dartree_exp.engines import folded
from dartree_exp.engines.folded import FoldedAttention
from dartree_exp.errors import UserError
from dartree_exp.metrics.clock import StageClock
from dartree_exp.models.registry import load_target
from dartree_exp.models.toy import toy_target
from dartree_exp.verify.rows import self_test
from dartree_exp.verify.sampling import Sampler
from dartree_exp.verify.stopping import StopRule
from wide_target import PROMPT as LONG
from wide_target import row_invariant_target

PROMPT = [5, 9, 30, 41, 12, 7, 7, 22]
TOKENS, PARENTS, DEPTHS = [11, 6, 23, 6, 17], [-1, 0, 0, 1, 3], [0, 1, 1, 2, 3]
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8,
}
SHAPES = {
    "one key head": {"num_key_value_heads": 1},
    "as many key heads as heads": {"num_key_value_heads": 4},
    "wide heads": {"head_dim": 16},
    "tied": {"tied": True},
    "biases": {"attention_bias": True},
    "llama3 rope": {"rope_parameters": LLAMA3},
}
# In float64 too, because the norms of the library compute in float32.
TOLERANCE = {torch.float64: 2e-6, torch.float32: 2e-5}


def logits(target):
    """Of a prompt, a step and a tree, with features."""
    cache = target.new_cache(40)
    first = target.prefill(PROMPT, cache, (0, -1))
    step = target.step(8, cache)
    mask = target.mask(torch.tensor(PARENTS), cache.length)
    positions = torch.tensor([DEPTHS]) + cache.length
    tree = target.verify(torch.tensor(TOKENS), positions, mask, cache, (1,))
    features = torch.cat([first.features.flatten(), tree.features.flatten()])
    return torch.cat([first.logits, step[None], tree.logits]), features


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_logits_and_features_equal_the_librarys(family, shape, dtype):
    make = partial(toy_target, family, dtype, layers=2, **shape)
    ours, theirs = logits(make(engine="packed")), logits(make(engine="eager"))
    for mine, other in zip(ours, theirs, strict=True):
        assert (mine - other).abs().max() < TOLERANCE[dtype] * other.abs().max()


def test_biases_of_the_mlp_are_added():
    make = partial(toy_target, "llama", torch.float64, mlp_bias=True)
    assert torch.allclose(logits(make(engine="packed"))[0], logits(make())[0], atol=2e-5)


@pytest.mark.parametrize("row_invariant", [False, True])
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_a_long_prompt_is_attended_in_parts(family, row_invariant, monkeypatch):
    def read():
        target = toy_target(family, torch.float32, engine="packed")
        target.row_invariant = row_invariant
        return target.score(LONG, target.new_cache(len(LONG)))

    whole = read()
    monkeypatch.setattr(folded, "MOST_SCORES", 4 * len(LONG) * 5)
    assert torch.allclose(read(), whole, atol=1e-5)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_greedy_ids_equal_the_librarys_in_fp32(family):
    def decoded(engine):
        target = toy_target(family, torch.float32, seed=2, engine=engine)
        return autoregress(target, PROMPT, Sampler(), StopRule(60), StageClock()).ids

    assert decoded("packed") == decoded("eager")
    assert len(set(decoded("packed"))) > 5


@pytest.mark.real_model
def test_embedded_ids_equal_the_librarys_in_fp32():
    found = {}
    for engine in ("packed", "eager"):
        config = compose([f"engine={engine}", "engine.dtype=fp32"])
        target = load_target(config.model, config.engine)
        assert target.engine == engine
        ids = target.tokenizer.encode_chat([{"role": "user", "content": "What is 17 * 12?"}])
        found[engine] = autoregress(target, ids, Sampler(), StopRule(32), StageClock()).ids
    assert found["packed"] == found["eager"]


class Allocated(TorchDispatchMode):
    """Bytes of every storage that an operator creates."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes, self._seen = [], []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        known = {
            x.untyped_storage().data_ptr()
            for x in tree_leaves((args, kwargs or {}))
            if isinstance(x, torch.Tensor) and x.layout == torch.strided
        }
        result = func(*args, **(kwargs or {}))
        for x in tree_leaves(result):
            if isinstance(x, torch.Tensor) and x.layout == torch.strided:
                storage = x.untyped_storage()
                if storage.data_ptr() not in known:
                    self.bytes.append(storage.nbytes())
        return result


@pytest.mark.parametrize("row_invariant", [False, True])
def test_a_forward_allocates_nothing_that_grows_with_the_context(row_invariant):
    def allocated(context, engine):
        target = toy_target("llama", torch.float32, engine=engine)
        target.row_invariant = row_invariant
        cache = target.new_cache(300)
        target.prefill([4 + i % 50 for i in range(context)], cache)
        positions = torch.tensor([DEPTHS]) + context
        with Allocated() as found:
            mask = target.mask(torch.tensor(PARENTS), context)
            target.verify(torch.tensor(TOKENS), positions, mask, cache)
        return found.bytes

    assert allocated(40, "packed") == allocated(250, "packed")
    assert allocated(40, "eager") != allocated(250, "eager")  # control: the library's does


def test_the_self_test_sees_scores_that_depend_on_the_number_of_keys(monkeypatch):
    target = row_invariant_target("llama", "packed")
    right = FoldedAttention._score

    def careless(self, out, queries, keys):
        right(self, out, queries, keys)
        out *= 1 + 2**-22 * (keys.shape[-1] % 32 == 0)

    monkeypatch.setattr(FoldedAttention, "_score", careless)
    assert not self_test(target, LONG, 9)


def test_other_activations_are_refused_by_name_and_left_to_the_library():
    with pytest.raises(UserError, match=r"engine.name=packed: hidden_act=gelu; only silu"):
        toy_target(engine="packed", hidden_act="gelu")
    assert toy_target(engine=None, hidden_act="gelu").engine == "eager"
    assert toy_target(engine=None).engine == "packed"
