"""Drafter and target folders with damaged files: a UserError of one line or a model that works, and
nothing left behind.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from damage import bounded, check, copy, damages, inflict, listing, only_user_errors
from hypothesis import given

from dartree_exp.drafters.dflash.checkpoint import load_drafter, save_drafter, save_head
from dartree_exp.drafters.dflash.config import DFlashConfig
from dartree_exp.drafters.dflash.model import DFlashBackbone
from dartree_exp.drafters.heads.calibration import CALIBRATION, write_temperatures
from dartree_exp.drafters.heads.confidence import ConfidenceHead
from dartree_exp.drafters.heads.markov import MarkovHead
from dartree_exp.models import registry
from dartree_exp.models.toy import toy_target

STUB = SimpleNamespace(
    name="stub",
    num_layers=4,
    vocab_size=40,
    hidden_size=32,
    dtype=torch.float32,
    device=torch.device("cpu"),
)
SIZES = DFlashConfig(32, 24, 2, 4, 2, 8, 40, 6, 39, (0, 2), 4, True, max_position_embeddings=128)


@pytest.fixture(scope="module")
def drafters(place: Path) -> Path:
    """A folder with a backbone and one with a head, a confidence head and temperatures, and one in
    shards.
    """
    from safetensors.torch import load_file, save_file

    torch.manual_seed(0)
    root = place / "drafters"
    backbone = DFlashBackbone(SIZES)
    for weight in backbone.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    STUB.embed_weight, STUB.lm_head_weight = torch.randn(40, 32), torch.randn(40, 32)
    save_drafter(root / "whole", backbone)
    save_head(root / "alone", root / "whole", MarkovHead(32, 40, 6), ConfidenceHead(32, 6))
    write_temperatures(root / "alone" / CALIBRATION, root / "alone", [1.0] * 6, {})
    save_drafter(root / "shards", backbone, vocab_ids=torch.tensor([1, 2, 30]))
    tensors = load_file(root / "shards" / "model.safetensors")
    (root / "shards" / "model.safetensors").unlink()
    names = sorted(tensors)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, part in shards.items():
        save_file({name: tensors[name] for name in part}, root / "shards" / file)
    index = {"weight_map": {name: file for file, part in shards.items() for name in part}}
    (root / "shards" / "model.safetensors.index.json").write_text(json.dumps(index))
    return root


DRAFTER_FILES = {
    "whole": ["whole/config.json", "whole/model.safetensors"],
    "alone": [
        "alone/config.json",
        f"alone/{CALIBRATION}",
        "alone/model.safetensors",
        "whole/config.json",
    ],
    "shards": ["shards/config.json", "shards/model.safetensors.index.json", "shards/a.safetensors"],
}


@pytest.mark.parametrize("kind", DRAFTER_FILES)
def test_drafter_folders(place: Path, drafters: Path, kind: str) -> None:
    counts: dict[str, int] = {}

    @bounded(100)
    @given(damages(DRAFTER_FILES[kind]))
    def read(found: list[tuple[Any, ...]]) -> None:
        scratch = copy(drafters, place / "scratch")
        for damage in found:
            inflict(scratch, damage)
        before = listing(place)
        drafter: Any = only_user_errors(lambda: load_drafter(scratch / kind, STUB), counts)  # type: ignore[arg-type]
        if (
            drafter is not None
            and len(drafter.target_layer_ids) == 2
            and drafter.max_positions > 20
        ):
            drafter.session([]).propose(torch.ones(4, 64), 7, 4)
        assert listing(place) == before

    read()
    check(counts, 25, 5)


@pytest.fixture(scope="module", params=["llama", "qwen3"])
def target_folder(request: pytest.FixtureRequest, place: Path) -> Path:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import PreTrainedTokenizerFast

    folder = place / request.param
    toy_target(request.param, seed=3, layers=2)._model.save_pretrained(folder)
    words = Tokenizer(
        WordLevel(
            {"<unk>": 0, "<end>": 1, "user": 2, "hello": 3, "assistant": 4}, unk_token="<unk>"
        )
    )
    words.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="<unk>", eos_token="<end>"
    )
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m['role'] }} {{ m['content'] }} {% endfor %}"
    )
    tokenizer.save_pretrained(folder)
    return folder


TARGET_FILES = ["config.json", "config.json", "generation_config.json", "tokenizer.json",
                "tokenizer_config.json",
                "chat_template.jinja", "model.safetensors"]  # fmt: skip


def test_target_folders(
    place: Path, target_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    counts: dict[str, int] = {}

    @bounded(50)
    @given(damages(TARGET_FILES))
    def read(found: list[tuple[Any, ...]]) -> None:
        scratch = copy(target_folder, place / "scratch")
        for damage in found:
            inflict(scratch, damage)
        before = listing(place)
        load = lambda: registry.load_folder(scratch, "mine", torch.float32, torch.device("cpu"))  # noqa: E731
        target: Any = only_user_errors(load, counts)
        if target is not None:
            ids = target.tokenizer.encode_chat([{"role": "user", "content": "hello"}])
            cache = only_user_errors(lambda: target.new_cache(len(ids)), counts)
            if cache is not None:
                target.prefill(ids, cache)
        assert listing(place) == before

    read()
    assert "Traceback" not in capfd.readouterr().err
    check(counts, 20, 5)
