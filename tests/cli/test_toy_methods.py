"""`model=toy` runs every method through the command line: real backbone and heads, weights from a
seed, no download.
"""

import json
from pathlib import Path

import pytest
import torch

from dartree_exp.__main__ import main
from dartree_exp.config import compose
from dartree_exp.config.methods import known_methods
from dartree_exp.drafters import load_drafter
from dartree_exp.drafters.dflash.model import DFlashBackbone
from dartree_exp.drafters.dflash.session import DFlashDrafter
from dartree_exp.drafters.heads.gru import GRUHead
from dartree_exp.drafters.heads.latent import LatentHead
from dartree_exp.drafters.heads.markov import GatedMarkovHead, MarkovHead, RecurrentMarkovHead
from dartree_exp.drafters.heads.spec import HEAD_CHOICES
from dartree_exp.drafters.heads.swiglu import SwiGLUHead
from dartree_exp.models.toy import toy_target
from dartree_exp.records.reader import find_runs

SMALL = [
    "model=toy",
    "engine.dtype=fp32",
    "engine.threads=1",
    "benchmark.limit=1",
    "decoding.max_new_tokens=8",
]
CLASSES = {
    "gru": GRUHead,
    "markov": MarkovHead,
    "markov_gated": GatedMarkovHead,
    "markov_rnn": RecurrentMarkovHead,
    "swiglu": SwiGLUHead,
    "latent": LatentHead,
}


def run(arguments: list[str]) -> int:
    try:
        return main(arguments)
    except SystemExit as stop:  # a single run ends the process
        return int(stop.code or 0)


@pytest.mark.parametrize("method", known_methods())
def test_every_method_runs_on_the_toy(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run([f"+method={method}", *SMALL]) == 0
    [made] = find_runs(tmp_path)
    assert (made.state, [s.verdict for s in made.samples]) == ("DONE", ["exact"])
    assert json.loads((made.path / "summary.json").read_text())["method"] == method


@pytest.mark.parametrize("drafter", ["dspark", "dspark_gated", "dspark_rnn"])
def test_the_confidence_budget_runs_on_the_toy(
    drafter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert (
        run(
            [
                f"drafter={drafter}",
                "tree=chain",
                "budget=confidence",
                "budget.threshold=0.5",
                *SMALL,
            ]
        )
        == 0
    )
    assert [made.state for made in find_runs(tmp_path)] == ["DONE"]


def toy(head: str, seed: int = 0, dtype: torch.dtype = torch.float32) -> DFlashDrafter:
    config = compose(
        [
            "model=toy",
            f"drafter={'dflash' if head == 'none' else 'domino'}",
            "tree.scoring=marginal",
        ]
    )
    config.drafter.head, config.drafter.seed = head, seed
    drafter = load_drafter(config.drafter, toy_target(dtype=dtype))
    assert isinstance(drafter, DFlashDrafter)
    return drafter


def weights(drafter: DFlashDrafter) -> torch.Tensor:
    return torch.cat([weight.flatten() for weight in drafter.backbone.state_dict().values()])


@pytest.mark.parametrize("head", HEAD_CHOICES)
def test_its_parts_are_the_real_ones_and_depend_on_the_seed_alone(head: str) -> None:
    drafter = toy(head)
    assert type(drafter.backbone) is DFlashBackbone
    assert drafter.head is None if head == "none" else type(drafter.head) is CLASSES[head]
    assert (drafter.confidence is not None) == head.startswith("markov")
    assert torch.equal(weights(drafter), weights(toy(head)))
    assert torch.equal(
        weights(drafter), weights(toy("gru"))
    )  # a change of the head changes nothing else
    assert not torch.equal(weights(drafter), weights(toy(head, seed=1)))
    assert torch.equal(weights(drafter), weights(toy(head, dtype=torch.float64)).float())


def test_the_head_corrects() -> None:
    for head, kind in CLASSES.items():
        correction = toy(head).head
        output = correction.readout() if head == "latent" else correction.output
        assert isinstance(correction, kind) and output.abs().sum() > 0
