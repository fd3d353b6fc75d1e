"""Damage in a drafter's folder: wrong types, impossible values, circular references, names that
would run code, NaN.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from dartree_exp.drafters.dflash.checkpoint import load_drafter, read_checkpoint, save_drafter
from dartree_exp.drafters.dflash.config import CheckpointError, read_config
from dartree_exp.drafters.heads.calibration import CALIBRATION, write_temperatures
from dartree_exp.drafters.locate import locate
from dartree_exp.drafters.tensor_files import read_tensors

ODD: list[Any] = ["text", -1, 0, 10**30, 2.5, float("nan"), True, [], [[1]], {}, {"a": 1}, None]


def refused(folder: Path, message: str = "", read: Callable[[Path], Any] = read_checkpoint) -> None:
    with pytest.raises(CheckpointError, match=message) as caught:
        read(folder)
    assert "\n" not in str(caught.value)


def edit(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    raw = json.loads(path.read_text())
    change(raw)
    path.write_text(json.dumps(raw))


@pytest.mark.parametrize("part", ["shared", "alone"])
def test_every_key_with_every_odd_value_is_read_or_refused_in_one_line(
    head_alone: Callable, part: str
):
    alone, shared, _ = head_alone()
    folder = alone if part == "alone" else shared
    text = (folder / "config.json").read_text()
    raw = json.loads(text)
    places = [(key, None) for key in (*raw, "rope_parameters", "rope_scaling")]
    places += [
        (key, inner) for key, value in raw.items() if isinstance(value, dict) for inner in value
    ]
    refusals = 0
    for key, inner in places:
        for value in ODD:
            changed = json.loads(text)
            if inner is None:
                changed[key] = value
            else:
                changed[key][inner] = value
            (folder / "config.json").write_text(json.dumps(changed))
            try:
                read_config(folder)
            except CheckpointError as error:
                refusals += 1
                assert "\n" not in str(error) and len(str(error)) < 1000
    assert refusals > 4 * len(places)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda c: c.update(architectures="DFlashDraftModel"),
            "architectures = 'DFlashDraftModel': must be a list of strings",
        ),
        (lambda c: c.update(dflash_config=[1]), r"dflash_config = \[1\]: must be an object"),
        (
            lambda c: c.update(layer_types=[["full_attention"]]),
            "layer_types = .*: must be a list of strings",
        ),
        (lambda c: c.update(num_attention_heads=0), "num_attention_heads = 0: must be at least 1"),
        (lambda c: c.update(num_key_value_heads=0), "num_key_value_heads = 0: must be at least 1"),
        (
            lambda c: c.update(num_hidden_layers=10**9),
            "num_hidden_layers = 1000000000: must be at most",
        ),
        (lambda c: c.update(rope_theta="x"), "rope_theta = 'x': must be a positive number"),
        (lambda c: c.update(rope_theta=10**400), "rope_theta = 1000.*: must be a positive number"),
        (
            lambda c: c.update(rms_norm_eps=float("nan")),
            "rms_norm_eps = nan: must be a positive number",
        ),
        (lambda c: c.update(rope_scaling=[1]), r"rope_scaling = \[1\]: must be an object"),
        (lambda c: c.update(sample_from_anchor=1), "sample_from_anchor = 1: must be true or false"),
        (lambda c: c.update(draft_vocab_size="9"), "draft_vocab_size = '9': must be an integer"),
        (
            lambda c: c.update(quantization_config={"bits": 4}),
            "quantised weights are not supported",
        ),
        (
            lambda c: c["dflash_config"].update(target_layer_ids=5),
            "target_layer_ids = 5: must be a list of integers",
        ),
        (lambda c: c["dflash_config"].update(target_layer_ids=["0"]), "must be a list of integers"),
        (
            lambda c: c["dflash_config"].update(projector_type=["domino"]),
            r"projector_type = \['domino'\]",
        ),
        (lambda c: c["dflash_config"].update(emb_dim="x"), "emb_dim = 'x': must be an integer"),
        (
            lambda c: c["dflash_config"].update(gru_hidden_dim=-4),
            "gru_hidden_dim = -4: must be at least 1",
        ),
        (
            lambda c: c["dflash_config"].update(pure_draft_prefix_len="1"),
            "pure_draft_prefix_len = '1': must be an integer",
        ),
    ],
)
def test_wrong_types_and_absurd_values_are_named(
    head_alone: Callable, change: Callable, message: str
):
    _, shared, _ = head_alone()
    edit(shared / "config.json", change)
    refused(shared, message)
    refused(shared, message, read_config)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(markov_rank="6"), "markov_rank = '6': must be an integer"),
        (lambda c: c.update(markov_rank=True), "markov_rank = True: must be an integer"),
        (lambda c: c.update(markov_rank=10**12), "markov_rank = 1000000000000: must be at most"),
        (lambda c: c.update(markov_head_type=["rnn"]), r"markov_head_type = \['rnn'\]"),
        (
            lambda c: c.update(enable_confidence_head="no"),
            "enable_confidence_head = 'no': must be true or false",
        ),
        (
            lambda c: c["backbone"].update(folder="alone"),
            r"backbone\.folder = alone: is this folder itself",
        ),
    ],
)
def test_wrong_types_in_a_folder_with_only_a_head_are_named(
    head_alone: Callable, change: Callable, message: str
):
    alone, _, _ = head_alone()
    edit(alone / "config.json", change)
    refused(alone, message)


def test_heads_that_refer_to_each_other_are_refused(head_alone: Callable):
    alone, shared, _ = head_alone()
    other = shared.parent / "other"
    other.mkdir()
    for file in alone.iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    edit(alone / "config.json", lambda c: c["backbone"].update(folder="other"))
    edit(other / "config.json", lambda c: c["backbone"].update(folder="alone"))
    for folder in (alone, other):
        refused(folder, r"backbone\.folder = (other|alone): has only a head, not a backbone")


@pytest.mark.parametrize(
    "content",
    [b"{", b"[]", b"\xff", b"[" * 100_000, b"version https://git-lfs.github.com/spec/v1\n"],
)
@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json", CALIBRATION])
def test_files_that_are_no_json_object_are_named(head_alone: Callable, content: bytes, name: str):
    alone, shared, _ = head_alone()
    folder = alone if name == CALIBRATION else shared
    if name.startswith("model"):
        (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(content)
    refused(folder, name.replace(".", r"\."))


@pytest.mark.parametrize(
    "values", [["1"] * 6, [10**400] * 6, [1e-60] * 6, [[1.0]] * 6, [True] * 6, 1.0, {"a": 1}]
)
def test_temperatures_that_are_no_positive_numbers(head_alone: Callable, values: Any):
    alone, _, _ = head_alone()
    write_temperatures(alone / CALIBRATION, alone, [1.0] * 6, {})
    edit(alone / CALIBRATION, lambda c: c.update(temperatures=values))
    refused(alone, r"temperatures( = |.*must be 6 positive numbers)")


def test_a_git_lfs_pointer_has_advice(head_alone: Callable):
    _, shared, _ = head_alone()
    (shared / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")
    refused(shared, r"model\.safetensors is a Git LFS pointer.*git lfs pull")


def test_nan_is_found_in_every_tensor(head_alone: Callable, make_parts: Callable, tmp_path: Path):
    """Backbone, GRU head, Markov head, confidence head and the target's tables: each tensor is
    refused by name.
    """
    alone, shared, _ = head_alone()
    backbone, _, target = make_parts(head=None)
    save_drafter(tmp_path / "tables", backbone, tables=(target.embed_weight, target.lm_head_weight))
    seen = []
    for folder in (alone, shared, tmp_path / "tables"):
        file = folder / "model.safetensors"
        whole = load_file(file)
        for number, name in enumerate(sorted(whole)):
            bad = {key: value.clone() for key, value in whole.items()}
            bad[name].view(-1)[-1] = (torch.nan, torch.inf, -torch.inf)[number % 3]
            save_file(bad, file, metadata={"format": "pt"})
            word = "NaN" if number % 3 == 0 else "infinity"
            refused(
                folder,
                rf"tensor {name.replace('.', chr(92) + '.')} of model\.safetensors holds {word}",
                read_tensors,
            )
            seen.append(name)
        save_file(whole, file, metadata={"format": "pt"})
    for part in (
        "fc.weight",
        "layers.1.mlp.up_proj.weight",
        "prefix_gru.weight_ih_l0",
        "markov_head.markov_w2.weight",
    ):
        assert part in seen
    assert {"confidence_head.proj.weight", "embed_tokens.weight", "lm_head.weight"} <= set(seen)


def test_a_nan_head_is_refused_at_loading(head_alone: Callable):
    alone, _, target = head_alone()
    weights = load_file(alone / "model.safetensors")
    weights["markov_head.markov_w1.weight"][0, 0] = torch.nan
    save_file(weights, alone / "model.safetensors")
    refused(
        alone,
        r"markov_w1\.weight of model\.safetensors holds NaN",
        lambda folder: load_drafter(folder, target),
    )


def test_a_weight_that_overflows_the_targets_dtype_is_refused(head_alone: Callable):
    _, shared, _ = head_alone()
    weights = load_file(shared / "model.safetensors")
    weights["fc.weight"] = weights["fc.weight"].double()
    weights["fc.weight"][0, 0] = 1e300
    save_file(weights, shared / "model.safetensors")
    read_checkpoint(shared)
    refused(
        shared,
        r"fc\.weight is too large for torch\.float32",
        lambda f: read_checkpoint(f, dtype=torch.float32),
    )


def test_a_weight_of_another_dtype_is_refused(head_alone: Callable):
    _, shared, _ = head_alone()
    weights = load_file(shared / "model.safetensors")
    weights["fc.weight"] = weights["fc.weight"].to(torch.float8_e4m3fn)
    save_file(weights, shared / "model.safetensors")
    refused(shared, r"tensor fc\.weight of model\.safetensors has dtype F8_E4M3")


def test_a_package_is_found_without_running_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    inner = tmp_path / "trap" / "inner"
    (inner / "weights").mkdir(parents=True)
    for folder in (inner, inner.parent):
        (folder / "__init__.py").write_text("raise SystemExit('code of the package was run')\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert (
        locate("pkg://trap.inner/weights")
        == locate("pkg://trap/inner/weights")
        == inner / "weights"
    )
    assert "trap" not in sys.modules
    with pytest.raises(CheckpointError, match="no such folder in the installed package"):
        locate("pkg://trap/nothing")


@pytest.mark.parametrize(
    "name",
    ["", "/x", "no_such_package/x", ".drafters/x", "a b/x", "os/x", "__main__/x", "dartree_exp/.."],
)
def test_names_that_are_no_package_are_one_line(name: str):
    with pytest.raises(CheckpointError, match=r"drafter\.path = pkg://"):
        locate(f"pkg://{name}")


@pytest.mark.parametrize("path", ["~no_such_user_at_all/x/y", "x" * 5000, "a\0b", "../nothing"])
def test_invalid_paths_are_one_line(path: str):
    with pytest.raises(CheckpointError, match="no such folder, and not a hub name"):
        locate(path)
