"""One run end to end on the toy target: records, resume, verdicts, failures, fallback, shared
baseline, turns.
"""

import json

import pytest
import torch

from dartree_exp.config import compose, config_hash
from dartree_exp.config.load import to_yaml
from dartree_exp.drafters.scripted.session import ScriptedDrafter
from dartree_exp.engines.target import Target
from dartree_exp.errors import RunError
from dartree_exp.records.folder import RunFolder
from dartree_exp.records.reader import Run
from dartree_exp.run import run
from dartree_exp.runs import arms, turns

TOY = [
    "model=toy",
    "drafter=random",
    "benchmark.limit=3",
    "decoding.max_new_tokens=8",
    "engine.dtype=fp32",
]


def start(path, *overrides):
    config = compose([*TOY, *overrides])
    with RunFolder.open(path / config_hash(config), to_yaml(config), config_hash(config)) as folder:
        run(config, folder)
    return Run(folder.path)


def test_a_run_leaves_its_records(tmp_path, capsys):
    done = start(tmp_path, "tree.budget=6", "decoding=sample")
    assert done.state == "DONE"
    summary = json.loads((done.path / "summary.json").read_text())
    wanted = {
        "method",
        "n",
        "tau_macro",
        "tau_micro",
        "emitted_per_round",
        "speedup",
        "speedup_macro",
        "stages",
    }
    assert wanted | {"verdicts", "by_category", "drafts_per_round"} <= set(summary)
    assert summary["verdicts"] == {"exact": 3, "near_tie": 0, "wrong": 0, "unjudged": 0}
    assert set(summary["by_category"]) == {"math", "code", "chat"}
    for sample in done.samples:
        assert sample.ids == sample.ar_ids and 1 <= sample.emitted <= 8
        assert sample.acceptance_lengths and len(sample.prompt_sha256) == 64
    environment = json.loads((done.path / "environment.json").read_text())
    assert set(environment["machine"]["verify_ms_by_rows"]) == {"1", "2", "5", "7"}
    assert environment["weights"]["target"] and "drafter" not in environment["weights"]
    out = capsys.readouterr().out
    assert "prompt 3/3" in out and "3 exact" in out


def test_the_load_is_measured_at_both_ends_and_a_resume_keeps_the_worst(tmp_path, monkeypatch):
    loads = iter([1.5, 9.0, 0.5, 0.25])
    monkeypatch.setattr("dartree_exp.records.environment.load_average", lambda: next(loads))
    monkeypatch.setattr("dartree_exp.records.folder.load_average", lambda: next(loads))
    right, begun = turns.decode_turn, []

    def interrupted(*args):
        begun.append(args[1].id)
        if len(begun) == 2:
            raise KeyboardInterrupt
        return right(*args)

    monkeypatch.setattr(turns, "decode_turn", interrupted)
    with pytest.raises(KeyboardInterrupt):
        start(tmp_path)
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    cores = Run(folder).environment["cpu"]["cores"]
    assert Run(folder).environment["load"] == {"start": 1.5, "end": 9.0, "cores": cores}
    assert start(tmp_path).environment["load"] == {"start": 1.5, "end": 9.0, "cores": cores}
    assert next(loads, None) is None


def test_plain_decoding_through_the_loop(tmp_path):
    done = start(tmp_path, "method=ar")
    assert {length for s in done.samples for length in s.acceptance_lengths} == {1}
    assert {s.method for s in done.samples} == {"ar"}


def test_an_interrupted_run_resumes_at_the_first_unfinished_prompt(tmp_path, monkeypatch):
    right = turns.decode_turn
    decoded = []

    def interrupted(arms, prompt, *rest):
        if len(decoded) == 2:
            raise KeyboardInterrupt
        decoded.append(prompt.id)
        return right(arms, prompt, *rest)

    monkeypatch.setattr(turns, "decode_turn", interrupted)
    with pytest.raises(KeyboardInterrupt):
        start(tmp_path)
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert Run(folder).state == "INTERRUPTED" and len(Run(folder).samples) == 2
    monkeypatch.setattr(turns, "decode_turn", lambda *a: decoded.append(a[1].id) or right(*a))
    done = start(tmp_path)
    assert done.state == "DONE"
    assert len(decoded) == len(set(decoded)) == len(done.samples) == 3


def test_one_wrong_output_fails_the_run(tmp_path, monkeypatch):
    right = Target.verify

    def lying(self, *args, **kwargs):
        out = right(self, *args, **kwargs)
        out.logits.neg_()
        return out

    monkeypatch.setattr(Target, "verify", lying)
    with pytest.raises(RunError, match="3 of 3 outputs are wrong"):
        start(tmp_path)
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert Run(folder).state == "FAILED"
    assert {s.verdict for s in Run(folder).samples} == {"wrong"}


def test_nan_logits_are_recorded_and_the_run_goes_on(tmp_path, monkeypatch):
    right = ScriptedDrafter.session
    prompts = []

    class Poisoned:
        def __init__(self, inner):
            self._inner = inner

        def propose(self, *args):
            block = self._inner.propose(*args)
            block.logits[0, 0] = torch.nan
            return block

    def session(self, prompt_ids, sampler=None):
        inner = right(self, prompt_ids, sampler)
        prompts.append(sampler.sample_id)
        return Poisoned(inner) if len(prompts) == 3 else inner  # the first is the warm-up

    monkeypatch.setattr(ScriptedDrafter, "session", session)
    done = start(tmp_path)
    assert done.state == "DONE" and "1 prompts failed" in done.status["message"]
    errors = [s.error for s in done.samples if s.error]
    assert len(errors) == 1 and len(done.samples) == 3
    assert "draft logits" in errors[0]["message"] and prompts[2] in errors[0]["message"]
    assert json.loads((done.path / "summary.json").read_text())["failed"] == 1


def test_a_prompt_beyond_the_drafter_falls_back_and_is_counted(tmp_path, monkeypatch, capsys):
    right = ScriptedDrafter.__init__

    def short(self, *args, **kwargs):
        right(self, *args, **kwargs)
        self.max_positions = 20

    monkeypatch.setattr(ScriptedDrafter, "__init__", short)
    done = start(tmp_path)
    assert all(
        "the drafter has 20" in s.fallback and s.verdict == "exact" and not s.rounds
        for s in done.samples
    )
    summary = json.loads((done.path / "summary.json").read_text())
    assert summary["fallbacks"] == 3 and summary["tau_macro"]["value"] is None
    assert "decoded plainly" in capsys.readouterr().out


def test_a_prompt_beyond_the_target_is_an_error_of_that_prompt(tmp_path, monkeypatch):
    right = Target.__init__

    def short(self, *args, **kwargs):
        right(self, *args, **kwargs)
        self.max_positions = 16

    monkeypatch.setattr(Target, "__init__", short)
    with pytest.raises(RunError, match="none of 3 prompts could be decoded"):
        start(tmp_path)


def test_the_warm_up_takes_the_first_prompt_that_fits(tmp_path, monkeypatch):
    """Positions for short prompts alone: nothing, the warm-up included, sends a longer one through
    the target.
    """
    long, short = " ".join(["word"] * 60), "short"
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(
        "".join(
            json.dumps({"turns": [text], "category": "c"}) + "\n" for text in (long, short, long)
        )
    )
    right, prefill, lengths = Target.__init__, Target.prefill, []

    def limited(self, *args, **kwargs):
        right(self, *args, **kwargs)
        self.max_positions = 40

    def watched(self, ids, *args, **kwargs):
        lengths.append(len(ids))
        return prefill(self, ids, *args, **kwargs)

    monkeypatch.setattr(Target, "__init__", limited)
    monkeypatch.setattr(Target, "prefill", watched)
    done = start(tmp_path / "runs", f"benchmark.path={prompts}")
    assert [s.error is None for s in done.samples] == [False, True, False]
    assert lengths and 61 not in lengths  # the long prompt, chat markers included
    assert set(done.environment["machine"]["verify_ms_by_rows"]) >= {"1", "5"}


def test_a_prompt_that_fits_neither_drafter_nor_target_has_failed_and_is_no_fallback(
    tmp_path, monkeypatch, capsys
):
    target, drafter = Target.__init__, ScriptedDrafter.__init__

    def short(right):
        def made(self, *args, **kwargs):
            right(self, *args, **kwargs)
            self.max_positions = 16

        return made

    monkeypatch.setattr(Target, "__init__", short(target))
    monkeypatch.setattr(ScriptedDrafter, "__init__", short(drafter))
    with pytest.raises(RunError, match="none of 3 prompts could be decoded"):
        start(tmp_path)
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert {(s.error["type"], s.fallback) for s in Run(folder).samples} == {
        ("PromptTooLongError", None)
    }
    assert Run(folder).summary["failed"] == 3 and Run(folder).summary["fallbacks"] == 0
    assert "decoded plainly" not in capsys.readouterr().out


def test_a_shared_baseline_is_decoded_once(tmp_path, monkeypatch):
    calls = []
    right = arms.autoregress
    monkeypatch.setattr(arms, "autoregress", lambda *a: calls.append(1) or right(*a))
    first = start(tmp_path, "baseline=shared", "tree.budget=2")
    before = len(calls)
    second = start(tmp_path, "baseline=shared", "tree.budget=4")
    assert len(calls) == before
    assert [s.ar for s in first.samples] == [s.ar for s in second.samples]
    assert "timed once per prompt for the whole sweep" in (second.path / "table.md").read_text()
    start(tmp_path, "baseline=shared", "decoding.max_new_tokens=9")
    assert len(calls) == before + 3  # other decoding settings share nothing


def test_drawn_outputs_are_not_judged_by_ids(tmp_path, capsys):
    """verify=rejection at T > 0: neither wrong nor exact; speed is per emitted token. At T = 0 the
    ids are judged as always.
    """
    rejection = ("tree=sampled", "tree.budget=6", "verify=rejection")
    done = start(tmp_path, *rejection, "decoding=sample")
    summary = json.loads((done.path / "summary.json").read_text())
    assert done.state == "DONE" and summary["exact"] is True
    assert summary["verdicts"] == {"exact": 0, "near_tie": 0, "wrong": 0, "unjudged": 3}
    assert any(sample.ids != sample.ar_ids for sample in done.samples)
    assert summary["speedup"]["value"] > 0
    assert "3 not judged by ids" in capsys.readouterr().out
    greedy = start(tmp_path, *rejection)
    assert [sample.verdict for sample in greedy.samples] == ["exact"] * 3


def test_a_lossy_verifier_is_flagged_and_its_ids_are_not_compared(tmp_path):
    lossy = start(tmp_path / "a", "verify=typical", "decoding=sample")
    assert lossy.state == "DONE"
    summary = json.loads((lossy.path / "summary.json").read_text())
    assert summary["verdicts"]["unjudged"] == 3 and not summary["exact"]
    assert summary["method"].endswith("+typical")
    exact = start(tmp_path / "b", "decoding=sample")
    assert json.loads((exact.path / "summary.json").read_text())["exact"]
