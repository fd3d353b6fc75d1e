"""What the warm-up settles: threads, row invariance or a tolerance; and the float32 proof."""

import json

import pytest
import torch

import dartree_exp.runs.warm_up as warm_up_module
from dartree_exp.assemble import load_parts
from dartree_exp.config import compose, config_hash
from dartree_exp.config.load import to_yaml
from dartree_exp.engines.target import Target
from dartree_exp.errors import RunError
from dartree_exp.metrics.clock import StageClock
from dartree_exp.records.folder import RunFolder
from dartree_exp.records.reader import Run
from dartree_exp.run import run
from dartree_exp.runs import turns, warm_up
from dartree_exp.runs.warm_up import choose_threads, settle_rows
from wide_target import row_invariant_target

TOY = [
    "model=toy",
    "drafter=random",
    "benchmark.limit=2",
    "decoding.max_new_tokens=8",
    "tree.budget=6",
]
PROMPT = [4, 9, 33, 17]


def start(path, *overrides):
    config = compose([*TOY, *overrides])
    with RunFolder.open(path / config_hash(config), to_yaml(config), config_hash(config)) as folder:
        run(config, folder)
    return Run(folder.path)


def environment(done):
    return json.loads((done.path / "environment.json").read_text())


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("alone", "together", "chosen"), [(3.0, 5.0, 1), (5.0, 3.0, 2)])
def test_the_faster_number_of_threads_is_used_and_both_are_recorded(
    monkeypatch, alone, together, chosen
):
    def costs(target, ids, rows, clock):
        return {str(n): alone if torch.get_num_threads() == 1 else together for n in rows}

    monkeypatch.setattr(warm_up_module, "forward_costs", costs)
    torch.set_num_threads(2)
    target, _ = load_parts(compose(TOY))
    torch.set_num_threads(2)
    tried = choose_threads(target, PROMPT, [1, 7], StageClock)
    assert torch.get_num_threads() == chosen
    assert tried == {"1": {"1": alone, "7": alone}, "2": {"1": together, "7": together}}


@pytest.mark.parametrize("baseline", ["shared", "paired"])
def test_a_resumed_run_and_runs_that_share_a_baseline_have_one_number(
    tmp_path, monkeypatch, baseline
):
    """Were it chosen anew, plain decoding would be timed again, and one run's times would be of two
    kinds.
    """
    chosen = iter([2, 1, 1])

    def choose(target, ids, rows, clock):
        torch.set_num_threads(next(chosen))
        return {}

    monkeypatch.setattr(warm_up_module, "choose_threads", choose)
    monkeypatch.setattr("dartree_exp.runs.turns.decode_turn", interrupted_after(1))
    with pytest.raises(KeyboardInterrupt):
        start(tmp_path, f"baseline={baseline}", "engine.dtype=fp32")
    monkeypatch.undo()
    monkeypatch.setattr(warm_up_module, "choose_threads", choose)
    assert environment(start(tmp_path, f"baseline={baseline}", "engine.dtype=fp32"))["threads"] == 2
    other = start(tmp_path, f"baseline={baseline}", "engine.dtype=fp32", "tree.budget=5")
    assert environment(other)["threads"] == (2 if baseline == "shared" else 1)
    answers = [len(list(folder.iterdir())) for folder in tmp_path.glob(".ar/*")]
    assert sorted(answers) == ([1, 2] if baseline == "shared" else [])


def interrupted_after(count):
    right, done = turns.decode_turn, []

    def decode(*arguments):
        if len(done) == count:
            raise KeyboardInterrupt
        done.append(1)
        return right(*arguments)

    return decode


def test_a_number_that_was_asked_for_is_kept(tmp_path):
    done = start(tmp_path, "engine.threads=1", "engine.dtype=fp32")
    assert environment(done)["threads"] == 1
    assert set(environment(done)["machine"]) == {"verify_ms_by_rows", "round_ms_besides_verify"}


def test_row_invariance_is_recorded_and_leaves_no_tolerance(tmp_path):
    row_invariant_target("llama")  # skips where the machine's products are not row-invariant
    done = start(tmp_path, "engine.dtype=bf16", "engine.threads=1")
    assert (environment(done)["row_invariant"], environment(done)["tolerance"]) == (True, 0.0)
    assert [s.verdict for s in done.samples] == ["exact"] * 2


def test_the_librarys_attention_has_a_measured_tolerance(tmp_path, monkeypatch):
    monkeypatch.setattr(warm_up_module, "row_difference", lambda target, ids, rows: 0.375)
    done = start(tmp_path, "engine.dtype=bf16", "engine.attention=library")
    assert (environment(done)["row_invariant"], environment(done)["tolerance"]) == (False, 0.75)


@pytest.mark.parametrize("dtype", ["fp32", "fp64"])
def test_without_rounding_worth_mentioning_only_equal_ids_pass(tmp_path, dtype):
    assert environment(start(tmp_path, f"engine.dtype={dtype}"))["tolerance"] == 0.0


def test_a_failed_self_test_puts_the_librarys_attention_back_or_refuses(monkeypatch):
    monkeypatch.setattr(warm_up_module, "self_test", lambda target, ids, rows: False)
    config = compose([*TOY, "engine.dtype=bf16"])
    target, _ = load_parts(config)
    assert target.row_invariant
    assert not settle_rows(target, config, PROMPT, 7) and not target.row_invariant
    required = compose([*TOY, "engine.dtype=bf16", "engine.attention=row_invariant"])
    target.row_invariant = True
    with pytest.raises(
        RunError,
        match=r"engine.attention=row_invariant: on this machine the bits .* use auto or library",
    ):
        settle_rows(target, required, PROMPT, 7)


@pytest.mark.parametrize("passes", [False, True])
def test_single_rows_are_copied_only_if_they_must_be(monkeypatch, passes):
    config = compose([*TOY, "engine.dtype=bf16"])
    target, _ = load_parts(config)
    monkeypatch.setattr(warm_up, "self_test", lambda target, *_: passes or target.forward.copied)
    assert settle_rows(target, config, PROMPT, 7) and target.row_invariant
    assert target.forward.copied is not passes


def test_the_proof_counts_equal_ids_in_fp32_and_stands_in_the_summary(tmp_path):
    done = start(
        tmp_path, "engine.dtype=bf16", "engine.attention=library", "proof=fp32", "proof_prompts=1"
    )
    assert done.summary["proof"] == {"dtype": "float32", "exact": 1, "of": 1}
    assert "proof" not in start(tmp_path, "engine.dtype=bf16", "engine.attention=library").summary


def test_control_a_lossy_method_fails_the_proof(tmp_path, monkeypatch):
    """Within the tolerance of bf16 it might pass."""
    right = Target.verify

    def shifted(self, *arguments):
        out = right(self, *arguments)
        if self.dtype == torch.float32:
            out.logits = out.logits.roll(1, dims=-1)
        return out

    monkeypatch.setattr(Target, "verify", shifted)
    with pytest.raises(RunError, match="proof=fp32: 2 of 2 outputs differ from plain decoding"):
        start(tmp_path, "engine.dtype=bf16", "proof=fp32")


def test_a_proof_of_nothing_is_no_proof(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "dartree_exp.run.fp32_proof",
        lambda config, prompts: {"dtype": "float32", "exact": 0, "of": 0},
    )
    with pytest.raises(RunError, match="proof=fp32: no prompt fits"):
        start(tmp_path, "engine.dtype=bf16", "engine.attention=library", "proof=fp32")


def test_logits_that_are_not_finite_are_left_to_the_run_to_record(tmp_path, monkeypatch):
    right = Target.verify

    def broken(self, *arguments):
        out = right(self, *arguments)
        out.logits[0] = float("nan")
        return out

    monkeypatch.setattr(Target, "verify", broken)
    with pytest.raises(RunError, match="NaN or infinite"):
        start(tmp_path, "engine.dtype=bf16", "engine.attention=library")
