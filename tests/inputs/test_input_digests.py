"""The files of a configuration count by content: each kind changes its own digest and no other."""

import hashlib
import json
import subprocess
import sys

import pytest

from dartree_exp.config import compose
from dartree_exp.inputs.digests import input_digests

TARGET = (
    "model.safetensors",
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "chat_template.jinja",
    "README.md",
)


@pytest.fixture
def settings(tmp_path):
    """Overrides for a saved target, a backbone, a head that refers to it, and prompts."""
    target, backbone, head = (tmp_path / name for name in ("target", "backbone", "head"))
    for folder in (target, backbone, head):
        folder.mkdir()
    for name in TARGET:
        (target / name).write_text(f"{name} of the target")
    (backbone / "model.safetensors").write_text("backbone")
    (backbone / "config.json").write_text("{}")
    (head / "model.safetensors").write_text("head")
    reference = {"folder": "backbone", "sha256": hashlib.sha256(b"backbone").hexdigest()}
    (head / "config.json").write_text(json.dumps({"backbone": reference}))
    (tmp_path / "prompts.jsonl").write_text('{"turns": ["x"]}\n')
    return [
        f"model.path={target}",
        "drafter=dspark",
        f"drafter.path={head}",
        "budget=confidence",
        "tree.budget=8",
        f"benchmark.path={tmp_path / 'prompts.jsonl'}",
    ]


@pytest.mark.parametrize(
    ("file", "roles"),
    [
        ("target/model.safetensors", {"target"}),
        ("target/model-2.safetensors", {"target"}),
        ("target/config.json", {"target settings"}),
        ("target/generation_config.json", {"target settings"}),
        ("target/tokenizer.json", {"target settings"}),
        ("target/chat_template.jinja", {"target settings"}),
        ("target/README.md", set()),
        ("backbone/model.safetensors", {"drafter"}),
        ("head/model.safetensors", {"drafter"}),
        ("backbone/config.json", {"drafter settings"}),
        ("head/calibration.json", {"calibration"}),
        ("prompts.jsonl", {"prompts"}),
    ],
)
def test_each_file_counts_in_its_own_digest(settings, tmp_path, file, roles):
    before = input_digests(compose(settings))
    assert set(before) == {
        "target",
        "target settings",
        "drafter",
        "drafter settings",
        "calibration",
        "prompts",
    }
    (tmp_path / file).write_text('{"other": 1}\n')
    after = input_digests(compose(settings))
    assert {role for role in before if before[role] != after[role]} == roles


def test_a_calibration_that_no_budget_reads_does_not_count(settings, tmp_path):
    config = compose([*settings, "budget=fixed"])
    before = input_digests(config)
    (tmp_path / "head" / "calibration.json").write_text("{}")
    assert input_digests(config) == before and "calibration" not in before


def test_a_budget_that_reads_chances_depends_on_the_calibration_of_edges(settings, tmp_path):
    config = compose([*settings, "budget=cost_aware"])
    before = input_digests(config)["calibration"]
    (tmp_path / "head" / "calibration.json").write_text("{}")
    assert input_digests(config)["calibration"] == before
    (tmp_path / "head" / "edges.json").write_text("{}")
    assert input_digests(config)["calibration"] != before


def test_plain_decoding_depends_on_no_drafter(settings):
    assert set(input_digests(compose([*settings, "method=ar"]))) == {
        "target",
        "target settings",
        "prompts",
    }


def test_what_is_not_at_hand_or_damaged_has_no_digest(settings, tmp_path, monkeypatch):
    monkeypatch.setenv("DARTREE_CACHE", str(tmp_path / "empty"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert set(input_digests(compose(["model=toy", "drafter=random"]))) == {"prompts"}
    assert "target" not in input_digests(compose([]))  # embedded, not fetched yet
    assert "target" not in input_digests(compose([*settings, "model.path=owner/never-downloaded"]))
    (tmp_path / "head" / "config.json").write_text("[")
    assert not {"drafter", "drafter settings"} & set(input_digests(compose(settings)))


def test_digests_come_without_torch():
    code = (
        "import sys\nfrom dartree_exp.config import compose\n"
        "from dartree_exp.inputs.digests import input_digests\n"
        "made = compose(['drafter=dspark', 'budget=confidence', 'tree.budget=8'])\n"
        "print(sorted(input_digests(made)))\n"
        "print([name for name in ('torch', 'transformers') if name in sys.modules])\n"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert "drafter" in out[0] and out[1] == "[]"
