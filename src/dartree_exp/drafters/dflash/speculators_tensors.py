"""The tensors of the speculators format: output rows of the drafting vocabulary alone, and the
target's tables.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from dartree_exp.drafters.dflash.contents import EMBED, LM_HEAD
from dartree_exp.drafters.tensor_files import OFFSETS, RESTRICTION, drafted_ids
from dartree_exp.drafters.values import CheckpointError

OUTPUT = "markov_head.markov_w2.weight"


def from_speculators(tensors: Mapping[str, Tensor], vocab_size: int) -> dict[str, Tensor]:
    """In our layout: output rows for every target id, without the tables of a drafting vocabulary.

    Raises CheckpointError for marks and offsets that contradict each other.
    """
    found = dict(tensors)
    offsets, marks = found.pop(OFFSETS, None), found.get(RESTRICTION)
    if marks is None or bool(marks.bool().all()):
        found.pop(RESTRICTION, None)
        return found
    ids = marks.nonzero().flatten() if offsets is None else drafted_ids(offsets, marks)
    for name in (EMBED, LM_HEAD):  # DeepSpec's tables have a row for each target id
        found.pop(name, None)
    if OUTPUT in found:
        rows = found[OUTPUT]
        if len(rows) != len(ids):
            raise CheckpointError(f"{OUTPUT} has {len(rows)} rows for {len(ids)} drafted ids")
        found[OUTPUT] = torch.zeros(vocab_size, rows.shape[1], dtype=rows.dtype)
        found[OUTPUT][ids] = rows
    return found


def to_speculators(
    tensors: Mapping[str, Tensor], vocab_ids: Tensor | None, embed: Tensor, lm_head: Tensor
) -> dict[str, Tensor]:
    """The opposite. embed, lm_head: the target's, [V, H]."""
    found = {key: value for key, value in tensors.items() if key not in (EMBED, LM_HEAD)}
    if vocab_ids is not None:
        marks = torch.zeros(len(embed), dtype=torch.bool)
        marks[vocab_ids] = True
        found[RESTRICTION] = marks
        found[OFFSETS] = vocab_ids - torch.arange(len(vocab_ids))
        lm_head = lm_head[vocab_ids]
        if OUTPUT in found:
            found[OUTPUT] = found[OUTPUT][vocab_ids]
    dtype = found["fc.weight"].dtype
    tables = {EMBED: embed.to(dtype), LM_HEAD: lm_head.to(dtype)}
    return {key: value.clone().contiguous() for key, value in (found | tables).items()}
