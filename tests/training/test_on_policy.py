"""On-policy distillation on the tiny target: what is collected, that it helps, that it resumes."""

import json
from types import SimpleNamespace

import pytest
import torch
from training_support import interrupted, run

from dartree_exp.assemble import make_method
from dartree_exp.config import compose
from dartree_exp.decode import autoregress, speculate
from dartree_exp.drafters.dflash.checkpoint import load_drafter
from dartree_exp.engines.batched import finished, tapped
from dartree_exp.errors import UserError
from dartree_exp.metrics.clock import StageClock
from dartree_exp.training import on_policy
from dartree_exp.training.batches import Captured, make_batch
from dartree_exp.training.card import main as card
from dartree_exp.training.corpus import Sample, load_samples, split_holdout
from dartree_exp.training.export import main as export
from dartree_exp.training.model import load_vocabulary
from dartree_exp.training.on_policy import OnPolicyTrainer
from dartree_exp.training.rollout import draft_answer
from dartree_exp.training.state import load_state
from dartree_exp.training.tau import main as tau
from dartree_exp.training.validate import main as validate
from dartree_exp.verify.sampling import Sampler
from dartree_exp.verify.stopping import StopRule

TAPS = (0, 2)
SMALL = {
    "stage": "on_policy", "buffer": 6, "passes": 2, "samples": 3, "cap": 16, "loss_slots": 4,
    "length_width": 8, "length_lr": 0.01, "validate_every": 4, "short_until": 0.0,
}  # fmt: skip


@pytest.fixture(scope="module")
def trained(tiny, tmp_path_factory):
    """A backbone trained on other text than the target's own, and one distilled from there."""
    root = tmp_path_factory.mktemp("runs") / "training"
    run(tiny, root / "backbone", steps=20)
    start = SimpleNamespace(target=tiny.target, data=tiny.data, features="null")
    small = {**SMALL, "init": root / "backbone"}
    curve = run(start, root / "distilled", **small, steps=40)
    return SimpleNamespace(root=root, start=start, small=small, curve=curve)


@pytest.fixture
def runs(tmp_path):
    return tmp_path / "training"


def drafted(tiny, method, prompt, **more):
    return speculate(tiny.opened, method, prompt, Sampler(), StopRule(24, **more), StageClock())


def exported(tiny, trained, out):
    arguments = ["--run", str(trained.root / "distilled"), "--out", str(out)]
    assert export([*arguments, "--data", str(tiny.data), "--target", str(tiny.target)]) == 0
    return load_drafter(out, tiny.opened)


@pytest.fixture(scope="module")
def drafter(tiny, trained, tmp_path_factory):
    return exported(tiny, trained, tmp_path_factory.mktemp("export") / "drafter")


def test_rounds_hold_what_a_forward_over_the_answer_computes(tiny, drafter):
    config = compose(["method=dflash"])
    method = make_method(config.tree, config.budget, drafter)
    prompt = [1, 3, 2, 7, 8]
    answer, advanced = draft_answer(
        tiny.opened, method, Sample("a", "math", prompt, [0]), Sampler(), 24
    )
    rule = StopRule(24, frozenset(tiny.opened.eos_ids))
    plain = autoregress(tiny.opened, prompt, Sampler(), rule, StageClock())
    assert answer.ids.tolist() == prompt + plain.ids and answer.prompt == 5
    read = answer.ids[: len(answer.features)]  # the last id may have no row
    assert len(answer.ids) - 1 <= len(read) == len(answer.finals)
    features = tapped(tiny.opened, read[None], TAPS)[0]
    torch.testing.assert_close(answer.features.float(), features, atol=0.02, rtol=0.02)
    finals = finished(tiny.opened, features[None, :, -32:], TAPS[-1])[0]
    taught = make_batch([answer], [answer.roots], 4, torch.ones(64), everything(tiny))
    inside = taught.inside.flatten()
    rows = taught.finals.behind(torch.arange(4).expand(len(answer.roots), 4))[inside]
    likeliest = (rows.float() @ tiny.opened.lm_head_weight.float().T).argmax(-1)
    assert likeliest.tolist() == taught.labels.flatten()[inside].tolist()  # greedy, to the end
    torch.testing.assert_close(answer.finals.float(), finals, atol=0.02, rtol=0.02)
    starts = [len(prompt)]
    for count in advanced[:-1]:
        starts.append(starts[-1] + count)
    assert answer.roots.tolist() == [s for s in starts if s < len(answer.ids) - 1]


def test_the_drafter_gets_better_on_what_it_drafts(trained):
    first, last = trained.curve[0], trained.curve[-1]
    assert (first["phase"], last["step"]) == (1, 40) and last["phase"] == 10
    assert last["tau"] > first["tau"] + 0.5
    assert last["base"] < first["base"]
    assert {"tau_math", "tau_code", "tau_variance"} <= last.keys()


def test_the_exported_head_shortens_chains_without_changing_the_text(tiny, drafter):
    prompts = [[1, 3, n, 4 + n, 5 + n] for n in range(4)]
    counts = {}
    for name in ("dflash", "adaflash"):
        config = compose([f"method={name}", "drafter.path=/x", "budget.rate=1"])
        method = make_method(config.tree, config.budget, drafter)
        found = [drafted(tiny, method, prompt) for prompt in prompts]
        rounds = [r for answer in found for r in answer.rounds]
        counts[name] = (
            [answer.ids for answer in found],
            sum(r.tree.num_nodes for r in rounds),
            len(rounds),
        )
    assert counts["dflash"][0] == counts["adaflash"][0]
    assert counts["adaflash"][1] < counts["dflash"][1]


def everything(tiny):
    return load_vocabulary(tiny.opened, list(range(tiny.opened.vocab_size)), 0)


RESUMED = {"steps": 8, "prefit_steps": 2}


@pytest.fixture(scope="module")
def whole(trained):
    folder = trained.root / "whole"
    run(trained.start, folder, **trained.small, **RESUMED)
    return load_state(folder)


def is_whole(whole, folder):
    (one, meta), (two, other) = whole, load_state(folder)
    apart = {"seconds": 0, "machines": None}  # the code may have been edited between two runs
    assert {**meta, **apart} == {**other, **apart}
    for group in ("model", "ema", "optimizer", "buffer"):
        assert one[group].keys() == two[group].keys()
        for name, value in one[group].items():
            assert torch.equal(value, two[group][name]), (group, name)


def test_a_resumed_training_is_the_uninterrupted_one_bit_by_bit(trained, whole, runs):
    options = {**trained.small, **RESUMED}
    interrupted(trained.start, runs / "parts", 5, **options)
    assert load_state(runs / "parts")[1]["step"] == 5
    run(trained.start, runs / "parts", **options)
    is_whole(whole, runs / "parts")


def test_it_resumes_among_the_answers_of_a_phase(trained, whole, runs, monkeypatch):
    collect, left = OnPolicyTrainer._collect, [9]  # one phase, and a part of the next

    def stop(self):
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt
        collect(self)
        self.save()

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(OnPolicyTrainer, "_collect", stop)
        run(trained.start, runs / "parts", **trained.small, **RESUMED)
    assert 0 < len(load_state(runs / "parts")[1]["buffer"]["names"]) < 6
    run(trained.start, runs / "parts", **trained.small, **RESUMED)
    is_whole(whole, runs / "parts")


def test_the_first_steps_may_fit_the_length_head_alone(trained, runs):
    options = {**trained.small, "prefit_steps": 12, "warmup_steps": 1}
    rows = run(trained.start, runs / "fit", **options, steps=12)
    assert rows[-1]["length"] < rows[0]["length"] and rows[0]["tau"] == rows[-1]["tau"]
    before, after = load_state(trained.root / "backbone")[0]["ema"], load_state(runs / "fit")[0]
    for name, value in after["model"].items():
        if name.startswith("backbone."):
            scaled = name != "backbone.fc.weight"  # another scale of the features
            assert not scaled or torch.equal(value, before[name]), name
    interrupted(trained.start, runs / "begun", 1, **options, steps=12)
    first = load_state(runs / "begun")[0]["model"]
    assert torch.equal(first["backbone.fc.weight"], after["model"]["backbone.fc.weight"])
    assert not torch.equal(first["length.out.weight"], after["model"]["length.out.weight"])


def test_sampled_answers_are_drafted_too(trained, runs):
    rows = run(trained.start, runs / "sampled", **trained.small, steps=1, draw_temperature=1)
    assert rows[-1]["tau"] >= 1


def test_the_card_says_what_was_done(tiny, trained, tmp_path):
    exported(tiny, trained, tmp_path / "out")
    text = (tmp_path / "out" / "card.md").read_text()
    assert "Stage: on_policy" in text and "tau of its answers" in text
    assert "reverse KL divergence of the base logits" in text and "drafter=adaflash" in text
    assert "cross-entropy of the base logits with the target's likeliest id" in text
    assert "answered their prompts anew" in text
    stored = json.loads((tmp_path / "out" / "config.json").read_text())
    assert stored["dflash_config"]["thresh_head_bottleneck_dim"] == 8
    sizes = json.loads((tmp_path / "out" / "card.json").read_text())["parameters"]
    assert sizes["length"] == (2 * 32 + 1) * 8 + (8 + 1) * 8 + 8 + 1


def test_the_exported_folder_is_validated_with_and_without_its_length_head(tiny, trained, tmp_path):
    exported(tiny, trained, tmp_path / "out")
    drafter, files = (
        ["--drafter", str(tmp_path / "out")],
        [tmp_path / "a.json", tmp_path / "v.json"],
    )
    read = ["--features", str(tiny.features), "--target", str(tiny.target)]
    assert validate([*drafter, *read, "--out", str(files[0])]) == 0
    prompts = ["--data", str(tiny.data), "--holdout", "2", "--samples", "1", "--cap", "12"]
    prompts += ["--set", f"model.path={tiny.target}"]
    assert tau([*drafter, *prompts, "--temperatures", "0", "--out", str(files[1])]) == 0
    rows = json.loads(files[1].read_text())["rows"]
    assert [row["method"] for row in rows] == ["dflash", "adaflash", "ddtree"]
    assert not any(row["differing"] for row in rows)
    measured = ["--accuracy", str(files[0]), "--validation", str(files[1])]
    assert card([*drafter, *measured, "--out", str(tmp_path / "out")]) == 0
    assert "| adaflash | 0 | " in (tmp_path / "out" / "card.md").read_text()


def test_what_the_first_training_held_out_stays_held_out(trained, runs):
    held = {s.id for s in split_holdout(load_samples(trained.start.data), 2, 0)[1]}
    seen = set()

    def note(target, method, sample, *rest):
        seen.add(sample.id)
        return draft_answer(target, method, sample, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(on_policy, "draft_answer", note)
        options = {**trained.small, "seed": 7, "buffer": 36, "cap": 8, "samples": 36, "passes": 1}
        run(trained.start, runs / "run", **options, steps=1)
    record = load_state(runs / "run")[1]["data"]
    assert (record["holdout"], record["seed"]) == (2, 0)
    assert len(held) == 4 and len(seen) > 30 and not seen & held


@pytest.mark.parametrize("long", [1, 0])
def test_short_answers_are_passed_over_until_a_whole_epoch_was_short(trained, runs, long):
    """One prompt of 36 has a long answer: between two of them up to 70 others are visited."""
    prompts = split_holdout(load_samples(trained.start.data), 2, 0)[0][:long]

    def short(target, method, sample, *rest):
        if sample in prompts:
            return draft_answer(target, method, sample, *rest)
        ids = torch.tensor(sample.prompt_ids)
        return Captured(sample.id, sample.domain, ids, len(ids), torch.empty(0)), []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(on_policy, "draft_answer", short)
        if long:
            assert run(trained.start, runs / "run", **trained.small, steps=4)[-1]["step"] == 4
            return
        with pytest.raises(UserError, match="no prompt has an answer of 8 tokens"):
            run(trained.start, runs / "run", **trained.small, steps=4)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"init": "null"}, "on-policy distillation starts from a drafter"),
        ({"block": 5, "loss_slots": 5}, r"training.block=5: the drafter of .* has 4"),
        ({"vocab": 29}, r"training.vocab=29: the drafter of .* has 30"),
        ({"layers": 3}, r"training.layers=3: the drafter of .* has 2"),
        ({"loss_slots": 2}, "a length head needs every slot of whole blocks; use 4 and 0"),
        ({"length_width": 0, "prefit_steps": 2}, "there is no length head to fit"),
        ({"cap": 500}, r"training.cap=500: the longest prompt needs .* the target has 128"),
        ({"stage": "backbone"}, "only training=on_policy trains a length head"),
    ],
)
def test_mistakes_are_one_line(trained, runs, changed, said):
    with pytest.raises(UserError, match=said):
        run(trained.start, runs / "run", **{**trained.small, **changed}, steps=1)


def test_features_are_not_read(tiny, trained, runs):
    with pytest.raises(UserError, match="reads the features of its own rounds; leave it null"):
        run(tiny, runs / "run", **trained.small, steps=1)
