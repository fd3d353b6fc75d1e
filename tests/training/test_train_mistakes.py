"""`python -m dartree_exp.train`: help, composed settings, and one line for every mistake."""

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from training_support import overrides, run

from dartree_exp.config.knobs import knobs
from dartree_exp.config.training import TrainConfig
from dartree_exp.records.folder import RunFolder
from dartree_exp.records.reader import Run
from dartree_exp.train import main
from dartree_exp.training import command
from dartree_exp.training.state import load_state
from tiny_folder import write_prompts


@pytest.fixture(scope="module")
def work(tiny, tmp_path_factory):
    """A run, and damaged versions of what a training reads."""
    root = tmp_path_factory.mktemp("work")
    run(tiny, root / "training" / "run", steps=2)
    for name in ("cut", "noise"):
        shutil.copytree(root / "training" / "run", root / name)
    checkpoint = root / "cut" / "checkpoint.safetensors"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-50])
    (root / "noise" / "checkpoint.safetensors").write_bytes(b"not a checkpoint")
    (root / "large.jsonl").write_text(tiny.data.read_text() + "\n")
    shutil.copytree(tiny.features, root / "features_cut")
    shard = root / "features_cut" / "shard_0001.safetensors"
    shard.write_bytes(shard.read_bytes()[:-9])
    for name, shards in {"held_only": "0", "unheld": "1", "bare": "01"}.items():
        (root / name).mkdir()
        for number in shards:
            shutil.copy(tiny.features / f"shard_000{number}.safetensors", root / name)
        if name != "bare":
            shutil.copy(tiny.features / "about.json", root / name)
    (root / "empty").mkdir()
    return SimpleNamespace(root=root)


MISTAKES = [
    (["training.gama=2"], "training.gama=2: no such key; did you mean training.gamma?"),
    (["+training.x=2"], "+training.x=2: no such key"),
    (["tree=pruned"], "tree=pruned: no such key"),
    (
        ["training=heads"],
        "eagle, head, joint, medusa, on_policy; did you mean",
    ),
    (
        ["training.head=gruu"],
        "must be one of gru, markov, markov_gated, markov_rnn, swiglu, latent; did you mean",
    ),
    (["training.lr=nan"], "training.lr=nan: must be a number > 0"),
    (["training.ema=2"], "training.ema=2.0: must be a number >= 0 and <= 1"),
    (["training.vocab=many"], "training.vocab=many: must be an integer >= 1"),
    (["training.steps=0"], "training.steps=0: must be an integer >= 1"),
    (["training.minutes=1"], "training.steps=1, training.minutes=1.0: set exactly one of them"),
    (
        ["training.steps=null"],
        "training.steps=null, training.minutes=null: set exactly one of them",
    ),
    (["training.short_block=9"], "training.short_block=9: must be at most training.block=4"),
    (["training.pure_prefix=4"], "training.pure_prefix=4: must be less than training.block=4"),
    (["training=head"], "training.init=null: a head is trained on a backbone"),
    (["data=null"], "data=null: give the text"),
    (["features={root}/nowhere"], "nowhere: does not exist; give the folder that"),
    (["training.init={root}/nowhere"], "nowhere: no such folder"),
    (["name=a/b"], "name=a/b: must be a plain folder name"),
    (["output="], "output=: must name a folder"),
    (["-m"], "unrecognized arguments: -m"),
    (["--cfg", "all"], "invalid choice: 'all'"),
    (["model.path={root}/nowhere"], "nowhere"),
    (["features={root}/held_only"], "no captured sample to train on"),
    (["features={root}/unheld"], "shard_0000.safetensors: does not exist"),
    (["features={root}/bare"], "bare: has no about.json; run dartree_exp.training.capture"),
    (["features={root}/features_cut"], "shard_0001.safetensors: not a whole feature shard"),
    (["data={root}/large.jsonl"], "was begun with other settings: text"),
    (["training.vocab=4000"], "training.vocab=4000: the text has only 30 distinct ids"),
    (["training.mask_token_id=40"], "training.mask_token_id=40: the target has 40 ids"),
    (["training.init={root}/cut"], "not a whole checkpoint"),
    (["training.init={root}/noise"], "not a whole checkpoint"),
    (["training.init={root}/empty"], "neither a run with a checkpoint nor an exported drafter"),
]


@pytest.mark.parametrize(("extra", "said"), MISTAKES, ids=lambda x: x if isinstance(x, str) else "")
def test_a_mistake_is_one_line(extra, said, tiny, work, tmp_path, capsys):
    words = [text.format(root=work.root) for text in extra]
    typed = [*overrides(tiny, tmp_path / "training" / "new", steps=1), *words]
    assert command.run(main, typed) == 2
    line = capsys.readouterr().err
    assert said in line and line.count("\n") == 1 and "Traceback" not in line
    assert not list(tmp_path.rglob("*.safetensors"))


def test_the_run_folder_is_locked(tiny, tmp_path, capsys):
    folder = tmp_path / "training" / "run"
    with RunFolder.open(folder, "", "x"):
        assert main([*overrides(tiny, folder, steps=1), "force=true"]) == 3
    assert "is in use by process" in capsys.readouterr().err


def test_help_and_settings_come_without_torch():
    code = "import sys; from dartree_exp.train import main; main({}); assert 'torch' not in "
    code += "sys.modules"
    shown = {}
    for flags in (["--help"], ["--cfg", "job", "training=head"]):
        done = subprocess.run(
            [sys.executable, "-c", code.format(flags)], capture_output=True, text=True, check=True
        )
        shown[flags[0]] = done.stdout
    for key, _, _ in knobs(TrainConfig):
        assert f"  {key}" in shown["--help"]
    assert "stage: head" in shown["--cfg"] and "torchrun" in shown["--help"]


def test_a_full_disk_is_one_line(tiny, tmp_path):
    """A limit on the size of files stands in for the disk."""
    typed = overrides(tiny, tmp_path / "training" / "run", steps=1)
    done = subprocess.run(
        [sys.executable, "-m", "dartree_exp.train", *typed],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and "File too large" in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert not list(tmp_path.rglob("*.safetensors")) and not list(tmp_path.rglob("*.part"))


def test_a_killed_training_of_the_toy_goes_on(tmp_path):
    """The whole way on the command line: text, features, a run killed with -9, its resumption."""

    def command_line(module, *words):
        return [sys.executable, "-m", f"dartree_exp.{module}", *map(str, words)]

    write_prompts(tmp_path / "prompts.jsonl", 14)
    text, features = tmp_path / "text.jsonl", tmp_path / "features"
    made = [
        command_line(
            "training.generate", "--prompts", tmp_path / "prompts.jsonl", "--target", "toy",
            "--cap", 24, "--out", text,
        ),
        command_line(
            "training.capture", "--data", text, "--target", "toy", "--taps", 0, 1, "--holdout", 2,
            "--out", features,
        ),
    ]  # fmt: skip
    for words in made:
        subprocess.run(words, check=True, capture_output=True)
    folder = tmp_path / "multirun" / "training" / "run"
    training = command_line(
        "train", "model=toy", f"data={text}", f"features={features}", "name=run",
        f"output={tmp_path / 'multirun'}", "training.vocab=40", "training.mask_token_id=3",
        "training.block=6", "training.short_block=6", "training.steps=150", "training.samples=2",
        "training.anchors=4", "training.save_every=0.05",
    )  # fmt: skip
    process = subprocess.Popen(training, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while not (folder / "checkpoint.safetensors").exists():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert Run(folder).state == "INTERRUPTED" and 0 < load_state(folder)[1]["step"] < 150
    subprocess.run(training, check=True, capture_output=True)
    assert Run(folder).state == "DONE" and load_state(folder)[1]["step"] == 150
    assert len(Run(folder).status["resumed"]) == 1
