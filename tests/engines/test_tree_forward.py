"""One masked forward over a tree gives the logits of every root-to-node path decoded on its own."""

import pytest
import torch

from dartree_exp.models.toy import toy_target

PROMPT = [5, 9, 30, 41, 12, 7, 7, 22]
TOKENS = [11, 6, 23, 6, 17, 40, 23, 9]
PARENTS = [-1, 0, 0, 1, 1, 2, 3, 6]
DEPTHS = [0, 1, 1, 2, 2, 2, 3, 4]
# From the library's own call, whose norms compute in float32 in every dtype.
APART = {"eager": 1e-12, "packed": 1e-5}
TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-4}


def path_to(node: int) -> list[int]:
    path = []
    while node >= 0:
        path.append(node)
        node = PARENTS[node]
    return path[::-1]


def verify(target, parents=PARENTS, taps=()):
    cache = target.new_cache(64)
    target.prefill(PROMPT, cache)
    positions = torch.tensor([DEPTHS]) + len(PROMPT)
    mask = target.mask(torch.tensor(parents), len(PROMPT))
    return target.verify(torch.tensor(TOKENS), positions, mask, cache, taps), cache


def path_logits(target, node: int) -> torch.Tensor:
    return target.prefill(PROMPT + [TOKENS[i] for i in path_to(node)], target.new_cache(64)).logits[
        0
    ]


def library_states(family):
    """Outputs of the embedding and of every layer, the last one normed, from the library's call."""
    model = toy_target(family, torch.float64)._model
    return model(torch.tensor([PROMPT]), output_hidden_states=True).hidden_states


def largest_difference(target, logits) -> float:
    return max(float((logits[i] - path_logits(target, i)).abs().max()) for i in range(len(TOKENS)))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_tree_logits_equal_each_path(toy, family, dtype):
    target = toy(family, dtype)
    forward, cache = verify(target)
    assert forward.logits.shape == (len(TOKENS), target.vocab_size)
    assert cache.length == len(PROMPT) + len(TOKENS)
    assert largest_difference(target, forward.logits) < TOLERANCE[dtype]


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_control_a_plain_causal_mask_is_caught(toy, family):
    target = toy(family, torch.float64)
    forward, _ = verify(target, range(-1, len(TOKENS) - 1))
    assert largest_difference(target, forward.logits) > 1e-2


def test_a_boolean_or_misshapen_mask_is_refused(toy):
    target = toy(dtype=torch.float64)
    cache = target.new_cache(64)
    target.prefill(PROMPT, cache)
    positions = torch.tensor([DEPTHS]) + len(PROMPT)
    good = target.mask(torch.tensor(PARENTS), len(PROMPT))
    for bad in (good == 0, good.float(), good[..., 1:]):
        with pytest.raises(ValueError, match="tree mask must be additive"):
            target.verify(torch.tensor(TOKENS), positions, bad, cache)
    assert cache.length == len(PROMPT)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_step_equals_prefill_row_by_row(toy, family):
    target = toy(family, torch.float64)
    cache = target.new_cache(64)
    target.prefill(PROMPT[:1], cache)
    for i in range(1, len(PROMPT)):
        logits = target.step(PROMPT[i], cache)
        fresh = target.prefill(PROMPT[: i + 1], target.new_cache(64)).logits[0]
        assert torch.allclose(logits, fresh, rtol=0, atol=1e-10)


def test_prefill_continues_after_a_filled_cache(toy):
    target = toy("qwen3", torch.float64)
    cache = target.new_cache(64)
    target.prefill(PROMPT[:3], cache)
    continued = target.prefill(PROMPT[3:], cache).logits
    assert torch.allclose(
        continued, target.prefill(PROMPT, target.new_cache(64)).logits, rtol=0, atol=1e-10
    )


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_taps_are_the_decoder_layers_outputs_in_the_given_order(toy, family):
    target = toy(family, torch.float64)
    taps = (1, -1, 0)
    features = target.prefill(PROMPT, target.new_cache(64), taps).features
    states = library_states(family)
    expected = torch.cat([states[i + 1][0] for i in taps], dim=-1)
    assert features.shape == (len(PROMPT), len(taps) * target.hidden_size)
    assert torch.allclose(features, expected, rtol=0, atol=APART[target.engine])


def test_the_last_layers_tap_is_not_the_final_norm(toy):
    target = toy(dtype=torch.float64)
    last = target.num_layers - 1
    features = target.prefill(PROMPT, target.new_cache(64), (last,)).features
    library = toy_target(dtype=torch.float64)._model.model
    final = library_states("llama")[-1][0]
    assert torch.allclose(library.norm(features), final, atol=APART[target.engine])
    assert not torch.allclose(features, final, atol=1e-2)


def test_tree_taps_follow_the_rows_and_hooks_are_idle_without_taps(toy):
    target = toy(dtype=torch.float64)
    forward, _ = verify(target, taps=(0, 2))
    node = 7
    alone = target.prefill(
        PROMPT + [TOKENS[i] for i in path_to(node)], target.new_cache(64), (0, 2)
    ).features[-1]
    assert torch.allclose(forward.features[node], alone, atol=1e-10)
    assert target.prefill(PROMPT, target.new_cache(64)).features is None
    if target.engine == "eager":
        hooks = [len(layer._forward_hooks) for layer in target._model.model.layers]
        assert hooks == [1, 0, 1]


@pytest.mark.parametrize("layer", [-2, 3])
def test_a_layer_that_does_not_exist_is_named(toy, layer):
    target = toy()
    with pytest.raises(ValueError, match=rf"layer {layer} cannot be tapped"):
        target.prefill(PROMPT, target.new_cache(64), (layer,))
