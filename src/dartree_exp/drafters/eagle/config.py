"""The checked `config.json` of EAGLE drafters. Does not import torch.

Released layouts: EAGLE-1/2, a Llama configuration with one layer; official EAGLE-3, the same with
`draft_vocab_size`; EAGLE-3 in the speculators format, with the layer's configuration in
`transformer_layer_config`. EAGLE-1 and EAGLE-2 have the same weights.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from dartree_exp.drafters.dflash.layouts import refuse_unsupported, rope_theta
from dartree_exp.drafters.values import (
    SIZES,
    CheckpointError,
    check_heads,
    check_size,
    flag,
    integers,
    positive,
    read_checked,
    section,
    shown,
)

EAGLE2, EAGLE3, SPECULATORS = "EAGLE-2", "EAGLE-3", "EAGLE-3 (speculators)"


@dataclass(frozen=True)
class EagleConfig:
    """Shape and conventions of one drafter.

    layout: EAGLE2, EAGLE3 or SPECULATORS. draft_vocab_size: EAGLE-3's own vocabulary, without maps
    if it is the target's. target_hidden_size: the target's width, if not `hidden_size`. aux_ids:
    decoder layers of the target whose inputs are read (i: the output of layer i - 1; 0: the
    embeddings); None: EAGLE-3's (2, L // 2, L - 3). norm_before_residual: the residual stream takes
    the normed feature. qk_norm: queries and keys have an RMS norm for each head (Qwen3).
    """

    layout: str
    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    rope_theta: float
    rms_norm_eps: float
    max_position_embeddings: int
    draft_vocab_size: int | None = None
    target_hidden_size: int | None = None
    aux_ids: tuple[int, ...] | None = None
    norm_before_residual: bool = False
    fc_bias: bool = False
    qkv_bias: bool = False
    qk_norm: bool = False

    head = None  # no correction head

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in SIZES and value is not None:
                check_size(field.name, value)
        positive("rms_norm_eps", self.rms_norm_eps)
        check_heads(self.num_attention_heads, self.num_key_value_heads, self.head_dim)
        if (self.draft_vocab_size or 0) > self.vocab_size:
            raise CheckpointError(
                f"draft_vocab_size = {self.draft_vocab_size}: must be in 1..{self.vocab_size}"
            )

    @property
    def third(self) -> bool:
        """EAGLE-3 in either layout."""
        return self.layout != EAGLE2

    @property
    def feature_size(self) -> int:
        """H of the target."""
        return self.target_hidden_size or self.hidden_size

    @property
    def restricted(self) -> bool:
        """Whether there are maps between the draft vocabulary and the target's."""
        return self.draft_vocab_size not in (None, self.vocab_size)

    def taps(self, num_layers: int) -> tuple[int, ...]:
        """The target's layers whose outputs are read; () for EAGLE-2, which reads the final hidden
        state. Raises CheckpointError for layers that the target does not have.
        """
        if not self.third:
            return ()
        ids = self.aux_ids or (2, num_layers // 2, num_layers - 3)
        # The input of a layer is the output of the one before. The last layer is refused: its
        # output is normed in some lists of hidden states and not in others.
        if not all(0 <= i < num_layers for i in ids):
            raise CheckpointError(
                f"eagle_aux_hidden_state_layer_ids = {list(ids)}: inputs of layers "
                f"0..{num_layers - 1} for a target of {num_layers} layers"
            )
        return tuple(i - 1 for i in ids)

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> EagleConfig:
        """Parse a `config.json`. Raises CheckpointError for missing or unsupported values."""
        kind = raw.get("speculators_model_type")
        if kind not in (None, "eagle3"):
            raise CheckpointError(f"speculators_model_type = {shown(kind)}: must be eagle3")
        layer = section(raw, "transformer_layer_config") if kind else raw
        third = kind is not None or raw.get("draft_vocab_size") is not None
        refuse_unsupported(layer, {})
        if raw.get("norm_before_fc"):
            raise CheckpointError("norm_before_fc = true: only false is supported")

        def need(key: str) -> Any:
            if layer.get(key) is None:
                hint = " (speculators leaves out defaults of the library)" if kind else ""
                raise CheckpointError(f"{key}: missing from config.json; write it out{hint}")
            return layer[key]

        if (layers := need("num_hidden_layers")) != 1:
            raise CheckpointError(f"num_hidden_layers = {shown(layers)}: EAGLE has 1 layer")
        hidden, heads = need("hidden_size"), need("num_attention_heads")
        for key, size in (("hidden_size", hidden), ("num_attention_heads", heads)):
            check_size(key, size)  # before they are used in computations
        ids = raw.get("eagle_aux_hidden_state_layer_ids")
        given = layer.get("num_key_value_heads"), layer.get("head_dim")
        return cls(
            layout=SPECULATORS if kind else EAGLE3 if third else EAGLE2,
            hidden_size=hidden,
            intermediate_size=need("intermediate_size"),
            num_attention_heads=heads,
            num_key_value_heads=heads if given[0] is None else given[0],
            head_dim=hidden // heads if given[1] is None else given[1],
            vocab_size=need("vocab_size"),
            rope_theta=rope_theta(layer),
            rms_norm_eps=need("rms_norm_eps"),
            max_position_embeddings=need("max_position_embeddings"),
            draft_vocab_size=raw.get("draft_vocab_size"),
            target_hidden_size=raw.get("target_hidden_size"),
            aux_ids=None if ids is None else integers("eagle_aux_hidden_state_layer_ids", ids),
            norm_before_residual=flag("norm_before_residual", raw.get("norm_before_residual")),
            fc_bias=not third and flag("bias", raw.get("bias", True)),
            qkv_bias=flag("qkv_bias", layer.get("qkv_bias")),
            qk_norm=bool(kind) and layer.get("model_type") == "qwen3",
        )

    def to_json(self) -> dict[str, Any]:
        """The `config.json` of the official layouts. Raises CheckpointError for what they lack."""
        if self.norm_before_residual or self.qk_norm:
            raise CheckpointError("norm_before_residual and qk_norm: not in the official layout")
        found: dict[str, Any] = {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_act": "silu",
            "num_hidden_layers": 1,
            "tie_word_embeddings": False,
        }
        own = ("layout", "aux_ids", "fc_bias", "norm_before_residual", "qk_norm")
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        found |= {key: value for key, value in values.items() if key not in own and value}
        if self.aux_ids is not None:
            found["eagle_aux_hidden_state_layer_ids"] = list(self.aux_ids)
        return found if self.third else found | {"bias": self.fc_bias}


def read_config(folder: Path, third: bool) -> EagleConfig:
    """The `config.json` of a checkpoint folder. third: EAGLE-3 is expected, else EAGLE-2. Raises
    CheckpointError with the folder and the reason.
    """
    config = read_checked(folder, EagleConfig.from_json)
    if config.third != third:
        family = "eagle" if config.third else "eagle2"
        raise CheckpointError(
            f"drafter {folder}: the layout is {config.layout}; use drafter.family={family}"
        )
    return config


def read_eagle3(folder: Path) -> EagleConfig:
    return read_config(folder, third=True)


def read_eagle2(folder: Path) -> EagleConfig:
    return read_config(folder, third=False)
