"""Text, shards, order and anchors: what goes into a batch, and damage that must not."""

import gzip
import json
import os

import pytest
import torch
from training_support import CAPTURED

from dartree_exp.engines.batched import tapped
from dartree_exp.training.batches import (
    Captured,
    FeatureStore,
    Order,
    Vocabulary,
    feature_scale,
    generator,
    load_captured,
    make_batch,
    random_anchors,
)
from dartree_exp.training.capture import estimated_bytes, parse_part, plan_shards
from dartree_exp.training.capture import main as capture
from dartree_exp.training.corpus import Sample, frequent_ids, load_samples, split_holdout
from dartree_exp.training.shards import read_shard, shard_path


def sample(i, domain="math", prompt=(1, 2), output=(5, 6, 7)):
    return Sample(f"s{i}", domain, [*prompt, i], list(output))


def test_samples_are_read_plain_and_gzipped(tmp_path):
    row = {"id": "a", "domain": "math", "prompt_ids": [1], "output_ids": [2]}
    (tmp_path / "t.jsonl").write_text(json.dumps(row) + "\n")
    with gzip.open(tmp_path / "t.jsonl.gz", "wt") as out:
        out.write(json.dumps(row) + "\n")
    assert (
        load_samples(tmp_path / "t.jsonl")
        == load_samples(tmp_path / "t.jsonl.gz")
        == [Sample("a", "math", [1], [2])]
    )


@pytest.mark.parametrize(
    ("second", "words"), [('{"id": "b"}', "line 2: not a generated sample"), (None, "occurs twice")]
)
def test_bad_lines_are_named(tmp_path, second, words):
    row = json.dumps({"id": "a", "domain": "math", "prompt_ids": [1], "output_ids": [2]})
    (tmp_path / "t.jsonl").write_text(f"{row}\n{second or row}\n")
    with pytest.raises(ValueError, match=words):
        load_samples(tmp_path / "t.jsonl")


def test_holdout_takes_each_domain_and_no_prompt_twice():
    samples = [sample(i, ("math", "code")[i % 2]) for i in range(20)]
    samples += [Sample("copy", "math", samples[0].prompt_ids, [9])]
    for seed in range(8):
        train, held = split_holdout(samples, 3, seed)
        assert sorted(s.domain for s in held) == ["code"] * 3 + ["math"] * 3
        assert not {tuple(s.prompt_ids) for s in train} & {tuple(s.prompt_ids) for s in held}
    assert split_holdout(samples, 3, 1) == split_holdout(samples, 3, 1)


def test_frequent_ids_are_the_most_frequent_ones():
    samples = [sample(0, output=[5, 5, 9, 9, 7, 3])]
    assert frequent_ids(samples, 3) == [3, 5, 9]
    with pytest.raises(ValueError, match="only 4 distinct"):
        frequent_ids(samples, 5)


def test_captured_features_are_the_models_hidden_states(tiny):
    from transformers import LlamaForCausalLM

    held = load_captured(tiny.features, 0, (0, 2))
    model = LlamaForCausalLM.from_pretrained(tiny.target, dtype=torch.float32)
    with torch.no_grad():
        states = model(held[0].ids[None], output_hidden_states=True).hidden_states
        wanted = torch.cat([states[1], states[3]], dim=-1)[0]
        exact = tapped(tiny.opened, held[0].ids[None], (0, 2))[0]
        assert torch.allclose(exact, wanted, atol=1e-5)
    # Captured in bfloat16 where the CPU has it: products of 8 bits over three layers.
    assert (held[0].features.float() - wanted).norm() < 0.02 * wanted.norm()


def test_features_in_bfloat16_are_those_of_float32_but_for_rounding(tiny):
    ids = torch.randint(4, 30, (2, 9), generator=torch.Generator().manual_seed(0))
    exact = tapped(tiny.opened, ids, (0, 2))
    rounded = tapped(tiny.opened, ids, (0, 2), half=True)
    assert rounded.dtype == torch.float32
    assert 0 < (rounded - exact).norm() < 0.02 * exact.norm()


def test_padding_reaches_no_feature(tiny):
    ids = torch.randint(4, 30, (2, 9))
    padded = torch.cat([ids, torch.randint(4, 30, (2, 5))], dim=1)
    assert torch.allclose(
        tapped(tiny.opened, padded, (0, 2))[:, :9], tapped(tiny.opened, ids, (0, 2)), atol=1e-4
    )


def test_a_truncated_shard_is_refused_and_named(tiny, tmp_path):
    data = shard_path(tiny.features, 1).read_bytes()
    path = tmp_path / "shard_0001.safetensors"
    path.write_bytes(data[:-100])
    with pytest.raises(ValueError, match=r"shard_0001.safetensors: not a whole feature shard"):
        read_shard(path, (0, 2))


def test_a_shard_of_other_taps_is_refused(tiny):
    with pytest.raises(ValueError, match=r"features of layers \(0, 2\), wanted \(1, 2\)"):
        read_shard(shard_path(tiny.features, 1), (1, 2))


def test_capture_resumes_in_parts_and_counts_bytes(tiny, tmp_path, capsys):
    options = ["--target", str(tiny.target), *CAPTURED]
    run = ["--data", str(tiny.data), "--out", str(tmp_path), *options]
    assert capture([*run, "--part", "1/2"]) == 0
    made = sorted(p.name for p in tmp_path.glob("*.safetensors"))
    assert made == ["shard_0001.safetensors", "shard_0003.safetensors"]
    before = (tmp_path / made[0]).stat().st_mtime_ns
    assert capture(run) == 0
    assert (tmp_path / made[0]).stat().st_mtime_ns == before
    for number in range(4):
        mine, reference = (
            read_shard(shard_path(f, number), (0, 2)) for f in (tmp_path, tiny.features)
        )
        assert mine.names == reference.names
        assert torch.equal(mine.features, reference.features)
    size = sum(p.stat().st_size for p in tmp_path.glob("*.safetensors"))
    groups = plan_shards(load_samples(tiny.data), 2, 12, 0)
    assert estimated_bytes(groups, 64) == pytest.approx(size, rel=0.1)


def test_capture_checks_the_disk_first(tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        "shutil.disk_usage",
        lambda _: os.terminal_size((0, 0)) and type("Usage", (), {"free": 1000}),
    )
    options = ["--target", str(tiny.target), "--taps", "0", "2", "--holdout", "2"]
    assert capture(["--data", str(tiny.data), "--out", str(tmp_path), *options]) == 1
    assert "not enough space" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_parts():
    assert parse_part("1/3") == (1, 3)
    for text in ("3/3", "x", "1"):
        with pytest.raises(Exception, match="is not i/n"):
            parse_part(text)


def test_order_visits_everything_once_an_epoch_and_resumes():
    order = Order(seed=4)
    order.add([0, 1, 2, 3, 4])
    assert sorted(order.take(5)) == [0, 1, 2, 3, 4]
    order.take(2)
    order.add([5, 6])
    rest = order.take(5)
    assert {5, 6} <= set(rest)
    copy = Order(seed=4)
    copy.restore(json.loads(json.dumps(order.state())))
    assert copy.take(20) == order.take(20)


def test_store_grows_up_to_the_first_gap(tiny, tmp_path):
    for number in (1, 3):
        os.link(shard_path(tiny.features, number), shard_path(tmp_path, number))
    store = FeatureStore(tmp_path, (0, 2))
    assert store.available() == 1
    assert store.grow(1) == list(range(12))
    os.link(shard_path(tiny.features, 2), shard_path(tmp_path, 2))
    assert store.available() == 3
    assert store.grow(3)[0] == 12


def captured(length, prompt, width=2):
    features = torch.arange(length * width, dtype=torch.float32).view(length, width).bfloat16()
    return Captured("x", "math", torch.arange(length) + 10, prompt, features)


def test_anchors_lie_in_the_output_and_have_a_label():
    for seed in range(20):
        anchors = random_anchors(captured(12, 5), 4, generator(seed))
        assert len(set(anchors.tolist())) == 4
        assert int(anchors[0]) >= 5 and int(anchors[-1]) <= 10
    assert random_anchors(captured(12, 5), 99, generator(0)).tolist() == [5, 6, 7, 8, 9, 10]


def test_labels_are_the_tokens_behind_the_anchor():
    embed = torch.randn(40, 3)
    vocabulary = Vocabulary.of(embed, embed, [i for i in range(40) if i != 18], mask_token_id=0)
    anchors = [torch.tensor([5, 6]), torch.tensor([3])]
    batch = make_batch(
        [captured(10, 5), captured(8, 3)], anchors, 4, torch.tensor([1.0, 0.5]), vocabulary
    )
    ids = torch.where(batch.labels >= 0, vocabulary.ids[batch.labels.clamp_min(0)], -1)
    assert ids[0].tolist() == [
        [16, 17, -1, 19],
        [17, -1, 19, -1],
    ]  # 18 is outside the vocabulary; 20 is past the end
    assert batch.inside[0].tolist() == [[True, True, True, True], [True, True, True, False]]
    assert ids[1].tolist() == [[14, 15, 16, 17], [-1, -1, -1, -1]]  # an unused anchor has no label
    assert batch.previous[0, 0].tolist() == [15, 16, 17, 18]
    assert torch.equal(batch.inputs.anchor_embeds[0, 1], embed[16])
    first = captured(10, 5).features[:6].float() * torch.tensor([1.0, 0.5])
    assert torch.equal(batch.inputs.features[batch.inputs.rows[0]], first)


def test_feature_scale_gives_unit_rms_and_leaves_the_sink_out():
    item = captured(50, 5)
    item.features[0] = 1e4
    scaled = item.features[1:].float() * feature_scale([item])
    assert torch.allclose(scaled.square().mean(0), torch.ones(2), atol=1e-3)
