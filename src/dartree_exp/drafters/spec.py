"""Families of drafters. Does not import torch. Correction heads are in `heads/spec.py`."""

from __future__ import annotations

from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any, Protocol

from dartree_exp.parts import Parts, Spec

SEEDED = "toy://"
"""The `drafter.path` of a drafter with random weights for model=toy."""


class DrafterSettings(Protocol):
    """The group `drafter` of a configuration."""

    name: str
    family: str
    path: str | None
    head: str
    num_drafts: int | None
    longest: int
    shortest: int
    seed: int
    causal: bool
    block_size: int | None
    children: int
    probes: int


EVERY_DRAFTER = ("name", "family", "path", "head", "seed")
"""Knobs of the group `drafter` that are read for every family."""


@dataclass(frozen=True, kw_only=True)
class DrafterSpec(Spec):
    """A family. `target(settings, target)` makes the drafter.

    reads: knobs of the group that not every family reads. scores: it brings its scorer, so
    `tree.scoring` is `own`. config: `module:function` that reads the configuration of a checkpoint
    folder (with its `head`) without torch; None if `drafter.path` is no such folder. loads: it
    needs a `drafter.path`. heads, lengths: its checkpoints may have a correction head, a length
    head. kinds: the values of `drafter.name`; () if any name is allowed. samples: its drafts can be
    drawn (tree=sampled). trained: what a card calls weights of this family that `training` made;
    None: they are not trained here.
    """

    scores: bool = False
    config: str | None = None
    loads: bool = True
    heads: bool = False
    lengths: bool = False
    kinds: tuple[str, ...] = ()
    samples: bool = True
    trained: str | None = None

    def read_config(self, folder: Any) -> Any:
        """The configuration of a checkpoint folder."""
        assert self.config is not None
        return resolve_name(self.config)(folder)


FAMILIES = Parts(
    "drafter.family",
    DrafterSpec(
        name="dflash",
        target="dartree_exp.drafters.dflash.load:load",
        config="dartree_exp.drafters.dflash.config:read_config",
        heads=True,
        lengths=True,
        reads=("causal", "block_size"),
        trained="Block-diffusion backbone (DFlash)",
        meaning="block-diffusion backbone, with or without a correction head",
    ),
    DrafterSpec(
        name="eagle",
        target="dartree_exp.drafters.eagle.checkpoint:load_eagle3",
        config="dartree_exp.drafters.eagle.config:read_eagle3",
        scores=True,
        reads=("num_drafts",),
        trained="EAGLE-3 drafter",
        meaning="EAGLE-3: one autoregressive layer on three layers of the target",
    ),
    DrafterSpec(
        name="eagle2",
        target="dartree_exp.drafters.eagle.checkpoint:load_eagle2",
        config="dartree_exp.drafters.eagle.config:read_eagle2",
        scores=True,
        reads=("num_drafts",),
        meaning="EAGLE-1 and EAGLE-2: one autoregressive layer on the target's final hidden state",
    ),
    DrafterSpec(
        name="medusa",
        target="dartree_exp.drafters.medusa.checkpoint:load",
        config="dartree_exp.drafters.medusa.config:read_config",
        trained="Medusa heads",
        meaning="heads on the target's final hidden state, one for each depth",
    ),
    DrafterSpec(
        name="ptd",
        target="dartree_exp.drafters.ptd.session:PTDDrafter.from_settings",
        scores=True,
        loads=False,
        reads=("num_drafts", "children", "probes"),
        samples=False,
        meaning="the target guesses in rows of its own forwards, without training (PTD)",
    ),
    DrafterSpec(
        name="lm",
        target="dartree_exp.drafters.lm.load:load",
        reads=("num_drafts",),
        scores=True,
        meaning="a smaller language model with the same tokenizer",
    ),
    DrafterSpec(
        name="ngram",
        target="dartree_exp.drafters.ngram.session:NgramDrafter.from_settings",
        loads=False,
        reads=("num_drafts", "longest", "shortest"),
        scores=True,
        samples=False,
        meaning="prompt lookup: what followed the last tokens where they occurred before",
    ),
    DrafterSpec(
        name="scripted",
        target="dartree_exp.drafters.scripted.session:ScriptedDrafter.from_settings",
        kinds=("oracle", "random", "adversarial"),
        loads=False,
        reads=("num_drafts",),
        meaning="drafters for tests, without weights",
    ),
)
