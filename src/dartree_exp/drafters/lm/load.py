"""A language model as the drafter: any causal model with the target's tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dartree_exp.drafters.lm.session import LmDrafter
from dartree_exp.drafters.spec import SEEDED, DrafterSettings
from dartree_exp.engines.target import Target
from dartree_exp.errors import ConfigError
from dartree_exp.models.hub import folder_or_snapshot
from dartree_exp.models.registry import (
    HUB_FILES,
    check_folder,
    load_tokenizer,
    load_weights,
    weights_digest,
)
from dartree_exp.models.toy import toy_target

if TYPE_CHECKING:
    from dartree_exp.engines.codec import Codec


def load(settings: DrafterSettings, target: Target) -> LmDrafter:
    """Loads the model as targets are loaded, with the target's dtype, device and engine. It needs
    no chat template.

    Raises ConfigError for a model with another tokenizer, before its weights are read, UserError
    as `load_target` does.
    """
    path, drafts = settings.path, settings.num_drafts
    assert path is not None and drafts is not None  # checked with the configuration
    dtype, device, engine = target.dtype, target.device, target.engine
    if path == SEEDED:  # seed 0 would be the default target itself
        lm = toy_target("llama", dtype, settings.seed + 1, device=device, engine=engine)
        return LmDrafter(lm, target, drafts, settings.name)
    folder = folder_or_snapshot("drafter.path", path, HUB_FILES)
    config, _ = check_folder(folder)
    check_tokenizer(path, load_tokenizer(folder).get_vocab(), target)
    lm = Target(
        load_weights(folder, config, dtype, device),
        name=settings.name,
        tokenizer=target.tokenizer,
        eos_ids=target.eos_ids,
        weights_sha256=lambda: weights_digest(folder),
        engine=engine,
    )
    return LmDrafter(lm, target, drafts, settings.name)


def check_tokenizer(path: str, ours: Mapping[str, int], target: Target) -> None:
    """Raise ConfigError if a token has another id, or none, in one of the two vocabularies."""
    theirs = vocabulary(target.tokenizer)
    if different := {token for token, _ in ours.items() ^ theirs.items()}:
        raise ConfigError(
            f"drafter.path={path}: its tokenizer is not that of the target {target.name} "
            f"({len(different)} tokens differ, such as {min(different)!r}); drafter=lm needs a "
            "model with the same tokenizer"
        )


def vocabulary(codec: Codec) -> Mapping[str, int]:
    """Ids by token; empty for the toy target, whose ids have no tokens."""
    library = getattr(codec, "library", None)
    return {} if library is None else library.get_vocab()
