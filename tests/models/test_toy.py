"""The toy targets: seeded, varied text, the same model in both dtypes, a consistent codec."""

import pytest
import torch

from dartree_exp.errors import UserError
from dartree_exp.models.toy import EOS_IDS, RESERVED_IDS, toy_target


def greedy(target, prompt, count):
    cache = target.new_cache(len(prompt) + count)
    ids = [int(target.prefill(prompt, cache).logits[-1].argmax())]
    while len(ids) < count:
        ids.append(int(target.step(ids[-1], cache).argmax()))
    return ids


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_greedy_text_is_no_short_loop(family):
    ids = greedy(toy_target(family), [5, 9, 30], 60)
    trigrams = set(zip(ids, ids[1:], ids[2:], strict=False))
    assert len(set(ids)) >= 16
    assert len(trigrams) >= 50


def test_weights_have_a_digest_in_every_dtype():
    """bfloat16 is what engine.dtype=auto takes on some machines."""
    digests = {
        toy_target("llama", dtype, layers=1).weights_sha256
        for dtype in (torch.bfloat16, torch.float32)
    }
    assert len(digests) == 2


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_a_seed_is_one_model_and_another_seed_another(family):
    first, again, other = (
        toy_target(family, seed=1),
        toy_target(family, seed=1),
        toy_target(family, seed=2),
    )
    assert first.weights_sha256 == again.weights_sha256 != other.weights_sha256
    double = toy_target(family, torch.float64, seed=1)
    assert torch.equal(double.embed_weight.float(), first.embed_weight)
    assert greedy(first, [7, 8], 40) == greedy(again, [7, 8], 40) != greedy(other, [7, 8], 40)


def test_tied_toy_shares_one_tensor():
    target = toy_target(tied=True)
    assert target.lm_head_weight is target.embed_weight
    assert toy_target().lm_head_weight is not toy_target().embed_weight


def test_unknown_family():
    with pytest.raises(ValueError, match="toy family must be one of llama, qwen3"):
        toy_target("gpt")


def test_codec_ids_are_ordinary_and_depend_on_the_words():
    codec = toy_target().tokenizer
    first = codec.encode_chat([{"role": "user", "content": "write a poem"}])
    assert len(first) == 4
    assert all(RESERVED_IDS <= i < 64 for i in first)
    assert first != codec.encode_chat([{"role": "user", "content": "write a song"}])
    assert first == toy_target(seed=9).tokenizer.encode_chat(
        [{"role": "user", "content": "write a poem"}]
    )


def test_codec_text_grows_with_the_ids_and_drops_special_ones():
    codec = toy_target().tokenizer
    ids = list(range(64))
    text = codec.decode(ids)
    assert all(text.startswith(codec.decode(ids[:k])) for k in range(65))
    words = text.split()
    assert len(words) == len(set(words)) == 64 - RESERVED_IDS
    assert codec.decode(EOS_IDS) == ""


def test_large_vocabularies_still_have_distinct_words():
    codec = toy_target(vocab_size=600).tokenizer
    words = codec.decode(range(600)).split()
    assert len(words) == len(set(words)) == 600 - RESERVED_IDS


def test_toy_has_no_thinking_mode():
    with pytest.raises(UserError, match="no thinking mode"):
        toy_target().tokenizer.encode_chat([{"role": "user", "content": "x"}], enable_thinking=True)
