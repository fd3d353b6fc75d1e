"""Correction heads: their names and how a checkpoint names them. Does not import torch."""

from __future__ import annotations

from collections import ChainMap
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

from dartree_exp.parts import Parts, Spec

NO_HEAD = "none"
PRIORS = ("slot", "root")
"""What a latent head's prior reads: the hidden state of the slot of depth 1, or the embedding of
the root.
"""


@dataclass(frozen=True, kw_only=True)
class HeadSpec(Spec):
    """A head. `target.from_config(config, hidden_size, vocab_size, output_size)` makes it.

    config: `module:Class` of its sizes, a `heads.config.HeadConfig`, imported without torch.
    drafter: the option of `conf/drafter` that has it. projectors: its values of `projector_type` in
    a `config.json`, None for a checkpoint without that key. released: its `markov_head_type`, for
    projectors with several heads. confident: its checkpoints may have a confidence head.
    last_token: its states depend only on the token read last. mixture: it gives a distribution for
    each latent category, which only a scorer of mixtures reads.
    """

    config: str
    drafter: str
    projectors: tuple[str | None, ...]
    released: str | None = None
    confident: bool = False
    last_token: bool = False
    mixture: bool = False

    def load_config(self) -> Any:
        """The class of its sizes."""
        return resolve_name(self.config)


_CONFIGS = "dartree_exp.drafters.heads.config"


def _markov(
    name: str, drafter: str, target: str, released: str, meaning: str, last_token: bool = True
) -> HeadSpec:
    return HeadSpec(
        name=name,
        drafter=drafter,
        target=f"dartree_exp.drafters.heads.markov:{target}",
        config=f"{_CONFIGS}:MarkovHeadConfig",
        projectors=(None, "dspark"),
        released=released,
        confident=True,
        last_token=last_token,
        meaning=f"{meaning} correction head (DSpark)",
    )


HEADS = Parts(
    "drafter.head",
    HeadSpec(
        name="gru",
        drafter="domino",
        target="dartree_exp.drafters.heads.gru:GRUHead",
        config=f"{_CONFIGS}:GRUHeadConfig",
        projectors=("domino", "causal_v5"),  # `causal_v5` was its name before Domino's release
        meaning="GRU correction head (Domino)",
    ),
    _markov("markov", "dspark", "MarkovHead", "vanilla", "Markov"),
    _markov("markov_gated", "dspark_gated", "GatedMarkovHead", "gated", "gated Markov"),
    _markov("markov_rnn", "dspark_rnn", "RecurrentMarkovHead", "rnn", "recurrent Markov", False),
    HeadSpec(
        name="swiglu",
        drafter="treeflash",
        target="dartree_exp.drafters.heads.swiglu:SwiGLUHead",
        config=f"{_CONFIGS}:SwiGLUHeadConfig",
        projectors=("treeflash",),
        last_token=True,
        meaning="SwiGLU correction of the slot by the token before (TreeFlash)",
    ),
    HeadSpec(
        name="latent",
        drafter="dblast",
        target="dartree_exp.drafters.heads.latent:LatentHead",
        config=f"{_CONFIGS}:LatentHeadConfig",
        projectors=("dblast",),
        mixture=True,
        meaning="low-rank mixture over a latent category of the block (DBLast)",
    ),
)
HEAD_CHOICES = ChainMap[str, Any](HEADS, {NO_HEAD: None})
"""The values of `drafter.head`, `none` first."""


def drafters_with(confident: bool = False) -> str:
    """The drafters with a head, or with one whose checkpoints may have a confidence head."""
    return ", ".join(spec.drafter for spec in HEADS.values() if spec.confident or not confident)
