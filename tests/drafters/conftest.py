"""A small random checkpoint and the target it fits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from drafter_support import StubTarget
from torch import Tensor

from dartree_exp.drafters.dflash.checkpoint import save_drafter, save_head
from dartree_exp.drafters.dflash.config import DFlashConfig
from dartree_exp.drafters.dflash.model import DFlashBackbone
from dartree_exp.drafters.heads.confidence import ConfidenceHead
from dartree_exp.drafters.heads.config import GRUHeadConfig
from dartree_exp.drafters.heads.head import Head, make_head
from markov_heads import MARKOV_HEADS


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def make_stub() -> type[StubTarget]:
    return StubTarget


@pytest.fixture
def small_config() -> Callable[..., DFlashConfig]:
    def make(**changes: Any) -> DFlashConfig:
        values: dict[str, Any] = {
            "hidden_size": 32,
            "intermediate_size": 24,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "vocab_size": 40,
            "block_size": 6,
            "mask_token_id": 39,
            "target_layer_ids": (0, 2),
            "num_target_layers": 4,
            "shift_label": True,
            "max_position_embeddings": 128,
            "head": GRUHeadConfig(
                10, 14, pure_draft_prefix_len=changes.pop("pure_draft_prefix_len", 1)
            ),
        }
        return DFlashConfig(**(values | changes))

    return make


@pytest.fixture
def make_parts(
    small_config: Callable[..., DFlashConfig],
) -> Callable[..., tuple[DFlashBackbone, Head | None, StubTarget]]:
    """A random backbone, its head (if the config has one) and a target they fit, all from
    seed 0.
    """

    def make(
        dtype: torch.dtype = torch.float32, **changes: Any
    ) -> tuple[DFlashBackbone, Head | None, StubTarget]:
        config = small_config(**changes)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            backbone = DFlashBackbone(config).to(dtype)
            head = make_head(config.head, config.hidden_size, config.vocab_size)
            for name, weight in backbone.named_parameters():
                torch.nn.init.normal_(weight, mean=float("norm" in name), std=0.3)
            if head is not None:
                head = head.to(dtype)
                for weight in head.parameters():
                    torch.nn.init.normal_(weight, std=0.5)
            table = torch.randn(config.vocab_size, config.hidden_size, dtype=dtype)
            lm_head = torch.randn(config.vocab_size, config.hidden_size, dtype=dtype)
        return backbone, head, StubTarget(table, lm_head, config.num_target_layers)

    return make


@pytest.fixture
def head_alone(make_parts: Callable, tmp_path: Path) -> Callable[..., tuple[Path, Path, Any]]:
    """(folder with only a head, folder of its backbone, which has a GRU head, target)."""

    def make(head_type: str = "vanilla", vocab_ids: Tensor | None = None) -> tuple[Path, Path, Any]:
        backbone, gru, target = make_parts()
        save_drafter(tmp_path / "shared", backbone, gru, vocab_ids)
        torch.manual_seed(1)
        head = MARKOV_HEADS[head_type](32, 40, 6)
        save_head(tmp_path / "alone", tmp_path / "shared", head, ConfidenceHead(32, 6))
        return tmp_path / "alone", tmp_path / "shared", target

    return make


@pytest.fixture
def saved(make_parts: Callable, tmp_path: Path) -> Callable[..., tuple[Path, Any]]:
    """A saved random checkpoint and the target it fits."""

    def make(vocab_ids: torch.Tensor | None = None, **changes: Any) -> tuple[Path, Any]:
        backbone, head, target = make_parts(**changes)
        folder = tmp_path / "drafter"
        save_drafter(folder, backbone, head, vocab_ids)
        return folder, target

    return make
