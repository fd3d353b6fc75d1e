"""Reader and writer of drafter checkpoints: `config.json` and safetensors, nothing else.

Layouts: z-lab DFlash and Domino; DeepSpec's DSpark and DFlash, which also store the target's
embedding and lm_head; and our own folder with only a head. Another addition of ours: a bool tensor
`t2d` [V], with `draft_vocab_size` in `config.json`, marks the target ids in the drafting softmax.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dartree_exp.drafters.dflash.backbone_ref import BackboneRef, reference_in
from dartree_exp.drafters.dflash.config import (
    DEEPSPEC,
    DFLASH,
    CheckpointError,
    DFlashConfig,
    read_config,
    read_json,
)
from dartree_exp.drafters.dflash.contents import (
    EMBED,
    LM_HEAD,
    Parts,
    fresh,
    prefixed,
    shapes_of,
    tensors_of,
    whole,
)
from dartree_exp.drafters.dflash.fit import check_tables
from dartree_exp.drafters.dflash.model import DFlashBackbone
from dartree_exp.drafters.dflash.session import DFlashDrafter
from dartree_exp.drafters.dflash.speculators import is_speculators, to_speculators
from dartree_exp.drafters.dflash.speculators_tensors import from_speculators
from dartree_exp.drafters.dflash.speculators_tensors import to_speculators as speculators_tensors
from dartree_exp.drafters.heads.calibration import read_temperatures
from dartree_exp.drafters.heads.confidence import ConfidenceHead, bind_confidence
from dartree_exp.drafters.heads.edges import NOT_FITTED, Fitted, read_edges
from dartree_exp.drafters.heads.head import Head
from dartree_exp.drafters.heads.length import LengthHead
from dartree_exp.drafters.tensor_files import (
    OFFSETS,
    RESTRICTION,
    check_tensors,
    read_tensors,
    weight_files,
    write_tensors,
)
from dartree_exp.models.weight_files import non_finite

if TYPE_CHECKING:
    from dartree_exp.engines.target import Target


@dataclass(frozen=True)
class Checkpoint:
    """A drafter as stored. vocab_ids: int64 [Vd], ascending; None: drafting is not restricted.

    tables: the checkpoint's copies of the target's embedding and lm_head [V, H] by name, if any.
    """

    config: DFlashConfig
    backbone: DFlashBackbone
    head: Head | None
    vocab_ids: Tensor | None
    weight_files: tuple[Path, ...]
    confidence: ConfidenceHead | None = None
    tables: dict[str, Tensor] = field(default_factory=dict)
    fitted: Fitted = NOT_FITTED
    length: LengthHead | None = None

    @property
    def parts(self) -> Parts:
        return Parts(self.backbone, self.head, self.confidence, self.length)


def load_drafter(
    folder: str | Path,
    target: Target,
    *,
    use_head: bool = True,
    dtype: torch.dtype | None = None,
    name: str | None = None,
    block_size: int | None = None,
) -> DFlashDrafter:
    """A drafter ready for `target`, on its device. dtype: of backbone and head, None = the
    target's.

    block_size: slots of a block, None = as trained. use_head: False: without the correction head,
    which is plain DFlash with the same number of drafts. Raises CheckpointError for a checkpoint
    that is incomplete, has an unknown layout or was trained for another target.
    """
    stored = read_checkpoint(
        folder, use_head=use_head, dtype=dtype or target.dtype, device=target.device
    )
    for _, module in stored.parts.prefixed():
        module.requires_grad_(False)
    try:
        if block_size is not None:
            stored.backbone.config = replace(stored.backbone.config, block_size=block_size)
        drafter = DFlashDrafter(
            name or Path(folder).name,
            target,
            stored.backbone,
            stored.head,
            stored.vocab_ids,
            stored.weight_files,
            stored.confidence,
            stored.length,
        )
        drafter.edge_pairs, drafter.coupled_pairs = stored.fitted
        check_tables(stored.tables, {EMBED: target.embed_weight, LM_HEAD: target.lm_head_weight})
        return drafter
    except CheckpointError as error:
        raise CheckpointError(f"drafter {folder}: {error}") from error


def read_checkpoint(
    folder: str | Path,
    *,
    use_head: bool = True,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
) -> Checkpoint:
    """Read a checkpoint folder without a target. dtype: None keeps the stored one. Raises
    CheckpointError.
    """
    folder = Path(folder)
    config = read_config(folder)
    tensors, files = _stored(folder, config)
    tables = {name: tensors.pop(name) for name in (EMBED, LM_HEAD) if name in tensors}
    restriction = tensors.pop(RESTRICTION, None)
    vocab_ids = None if restriction is None else restriction.nonzero().flatten()
    if vocab_ids is not None and vocab_ids.numel() != config.draft_vocab_size:
        raise CheckpointError(
            f"drafter {folder}: {RESTRICTION} marks {vocab_ids.numel()} ids, draft_vocab_size = "
            f"{config.draft_vocab_size}"
        )
    parts = fresh(config)
    for prefix, module in parts.prefixed():
        state = {
            key: tensors[prefix + key].to(device=device, dtype=dtype) for key in module.state_dict()
        }
        for key, value in state.items():
            if non_finite(value) is not None:  # the stored value was finite
                raise CheckpointError(
                    f"drafter {folder}: tensor {prefix + key} is too large for {value.dtype}"
                )
        module.load_state_dict(state, assign=True)
    confidence = bind_confidence(parts.confidence, parts.head)
    if confidence is not None:
        confidence.temperatures = read_temperatures(folder, config.num_drafts)
    head, confidence = (parts.head, confidence) if use_head else (None, None)
    made = parts.backbone, head, vocab_ids, tuple(files), confidence, tables
    return Checkpoint(config, *made, read_edges(folder), parts.length)


def save_drafter(
    folder: str | Path,
    backbone: DFlashBackbone,
    head: Head | None = None,
    vocab_ids: Tensor | None = None,
    *,
    confidence: ConfidenceHead | None = None,
    length: LengthHead | None = None,
    tables: tuple[Tensor, Tensor] | None = None,
    dtype: torch.dtype | None = None,
) -> None:
    """Write a checkpoint folder; the weights file is written atomically. dtype: None keeps the
    modules'.

    A Markov head, or anything with `tables`, is written in DeepSpec's layout, the rest in z-lab's.
    The heads and the restriction in `config.json` are those given here, not those of
    `backbone.config`.

    vocab_ids: int64 [Vd], the target ids in the drafting softmax. tables: the target's embedding
    and lm_head [V, H], which DeepSpec's evaluator expects in the checkpoint; not with a GRU head,
    which that layout does not have. Raises CheckpointError.
    """
    folder = Path(folder)
    sizes = None if head is None else head.config(confidence)
    deepspec = sizes is not None and sizes.deepspec
    if tables is not None and sizes is not None and not deepspec:
        raise CheckpointError(f"drafter {folder}: DeepSpec's layout has no {sizes.kind} head")
    config = replace(
        backbone.config,
        head=sizes,
        draft_vocab_size=None if vocab_ids is None else vocab_ids.unique().numel(),
        layout=DEEPSPEC if tables is not None or deepspec else DFLASH,
        length_width=None if length is None else length.width,
    )
    parts = Parts(backbone, head, confidence, length)
    tensors = parts.tensors() | (
        {} if tables is None else dict(zip((EMBED, LM_HEAD), tables, strict=True))
    )
    # Cloned: the tables of a tied target are one tensor, and safetensors refuses shared memory.
    tensors = {
        key: value.detach().to("cpu", dtype).clone().contiguous() for key, value in tensors.items()
    }
    if vocab_ids is not None:
        tensors[RESTRICTION] = torch.zeros(config.vocab_size, dtype=torch.bool)
        tensors[RESTRICTION][vocab_ids.cpu()] = True
    check_tensors(folder, tensors, whole(config, parts, tables=tables is not None))
    write_tensors(folder, tensors)
    _write_config(folder, config.to_json(), tensors["fc.weight"].dtype)


def save_speculators(
    folder: str | Path,
    stored: Checkpoint,
    target: str,
    architecture: str,
    tables: tuple[Tensor, Tensor],
) -> None:
    """Write a checkpoint in the speculators format. target, architecture: name and class of the
    target. tables: its embedding and lm_head [V, H]. Raises CheckpointError.
    """
    folder = Path(folder)
    try:
        values = to_speculators(stored.config, target, architecture)
    except CheckpointError as error:
        raise CheckpointError(f"drafter {folder}: {error}") from error
    tensors = speculators_tensors(stored.parts.tensors(), stored.vocab_ids, *tables)
    write_tensors(folder, tensors)
    _write_config(folder, values, tensors["fc.weight"].dtype)


def save_head(
    folder: str | Path,
    backbone: str | Path,
    head: Head,
    confidence: ConfidenceHead | None = None,
    *,
    dtype: torch.dtype | None = None,
) -> None:
    """Write a folder with only a head. backbone: the sibling folder with its backbone.

    Raises CheckpointError if that is not a sibling or the head does not fit.
    """
    folder, place = Path(folder), Path(backbone)
    sizes = head.config(confidence)
    if not sizes.alone:
        raise CheckpointError(f"drafter {folder}: a {sizes.kind} head cannot have its own folder")
    reference = BackboneRef.to(place)
    if folder.resolve().parent != place.resolve().parent:
        raise CheckpointError(f"drafter {folder}: must be next to its backbone {place}")
    stored = tensors_of(prefixed(head, confidence))
    tensors = {key: value.detach().to("cpu", dtype).contiguous() for key, value in stored.items()}
    fitting = fresh(replace(read_config(place), head=sizes))
    check_tensors(
        folder, tensors, shapes_of(tensors_of(prefixed(fitting.head, fitting.confidence)))
    )
    write_tensors(folder, tensors)
    own = {"architectures": [DEEPSPEC], "backbone": reference.to_json(), **sizes.to_json()}
    _write_config(folder, own, next(iter(tensors.values())).dtype)


def _stored(folder: Path, config: DFlashConfig) -> tuple[dict[str, Tensor], list[Path]]:
    """The checked tensors of a folder with its backbone's, and their files."""
    raw = read_json(folder)
    reference = reference_in(raw)
    files, parts = weight_files(folder), fresh(config)
    tensors = read_tensors(folder, marks=(RESTRICTION, OFFSETS))
    if is_speculators(raw):
        try:
            tensors = from_speculators(tensors, config.vocab_size)
        except CheckpointError as error:
            raise CheckpointError(f"drafter {folder}: {error}") from error
    if reference is None:
        may_have = config.layout == DEEPSPEC or is_speculators(raw)
        tables = may_have and (EMBED in tensors or LM_HEAD in tensors)
        check_tensors(folder, tensors, whole(config, parts, tables=tables))
        return tensors, files
    check_tensors(folder, tensors, shapes_of(tensors_of(prefixed(parts.head, parts.confidence))))
    try:
        place = reference.check(folder)
    except CheckpointError as error:
        raise CheckpointError(f"drafter {folder}: {error}") from error
    shared, more = _stored(place, read_config(place))
    return shared | tensors, [*more, *files]


def _write_config(folder: Path, values: dict[str, Any], dtype: torch.dtype) -> None:
    text = values | {"dtype": str(dtype).removeprefix("torch.")}
    (folder / "config.json").write_text(
        json.dumps(text, indent=1, sort_keys=True) + "\n", encoding="utf-8"
    )
