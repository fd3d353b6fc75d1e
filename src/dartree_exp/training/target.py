"""The target as training reads it, float32 on the CPU, and what text and taps must fit of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dartree_exp.config.schema import ModelConfig
from dartree_exp.engines.target import Target
from dartree_exp.records.reading import user_path
from dartree_exp.training.corpus import Sample
from dartree_exp.training.errors import InputError


def open_target(given: str | None, threads: int = 1) -> Target:
    """The target of `--target`. Raises UserError."""
    from dartree_exp.config import compose

    if given in (None, "toy"):
        return load(compose([] if given is None else ["model=toy"]).model, threads)
    assert given is not None
    folder = user_path(given)
    if not folder.is_dir():
        raise InputError(f"--target {given}: no such folder; give a folder, or toy")
    model = replace(compose().model, name=folder.resolve().name, path=str(folder))
    return load(model, threads)


def load(model: ModelConfig, threads: int, decodes: bool = False) -> Target:
    """The target that the group `model` names, on the CPU. decodes: with the engine and dtype of a
    run, not to read batches of sequences. Raises UserError.
    """
    from dartree_exp.config import compose
    from dartree_exp.models.registry import load_target

    settings = ["engine.device=cpu", f"engine.threads={threads}"]
    if not decodes:  # batches of sequences are read by the library's modules
        settings += ["engine=eager", "engine.dtype=fp32", "engine.attention=library"]
    return load_target(model, compose(settings).engine)


def check_samples(samples: list[Sample], target: Target, text: Path) -> None:
    """Raises InputError for ids that the target does not have and for samples that are too long for
    it.
    """
    for sample in samples:
        if max(sample.ids) >= target.vocab_size:
            raise InputError(
                f"{text}: sample {sample.id!r} has id {max(sample.ids)}; the target has "
                f"{target.vocab_size}"
            )
        if len(sample.ids) > target.max_positions:
            raise InputError(
                f"{text}: sample {sample.id!r} has {len(sample.ids)} tokens; the target takes "
                f"{target.max_positions}"
            )


def check_taps(taps: tuple[int, ...], target: Target) -> None:
    """Raises InputError for layers the target lacks; the last one's output is not used as a
    feature.
    """
    last = target.num_layers - 2
    if not taps or len(set(taps)) < len(taps) or not all(0 <= tap <= last for tap in taps):
        raise InputError(
            f"taps = {' '.join(map(str, taps))}: must be distinct layers in 0..{last} of this "
            "target"
        )
