"""The `config.json` of the speculators format, in terms of the released layouts. Does not import
torch.

A DFlash or DSpark speculator nests the draft layers' Qwen3 configuration and counts layers by their
inputs: `aux_hidden_state_layer_ids` = target layer ids + 1. vLLM serves such a folder without
further options.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dartree_exp.drafters.dflash.layouts import DEEPSPEC, DFLASH
from dartree_exp.drafters.values import CheckpointError, flag, integers, section, shown

if TYPE_CHECKING:
    from dartree_exp.drafters.dflash.config import DFlashConfig

KIND = "speculators_model_type"
ARCHITECTURES = {"dflash": "DFlashSpeculator", "dspark": "DSparkSpeculator"}
_HEAD = (
    "markov_rank",
    "markov_head_type",
    "enable_confidence_head",
    "confidence_head_with_markov",
)
_SIZES = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "max_position_embeddings",
    "rms_norm_eps",
)


def is_speculators(raw: dict[str, Any]) -> bool:
    return KIND in raw


def released(raw: dict[str, Any]) -> dict[str, Any]:
    """The same configuration in z-lab's or DeepSpec's layout. Raises CheckpointError, also where
    slot layout or mask are not stated: neither has a safe default.
    """
    kind = raw[KIND]
    if kind not in ARCHITECTURES:
        raise CheckpointError(
            f"{KIND} = {shown(kind)}: allowed here are {', '.join(ARCHITECTURES)}"
        )
    for key, meaning in (
        ("sample_from_anchor", "true: slot k predicts root + k + 1; false: root + k"),
        ("sliding_window_non_causal", "true: a slot sees its whole block; false: earlier slots"),
    ):
        if raw.get(key) is None:
            raise CheckpointError(f"{key}: not stated in config.json; add it ({meaning})")
    layers = section(raw, "transformer_layer_config")
    ids = integers("aux_hidden_state_layer_ids", raw.get("aux_hidden_state_layer_ids"))
    own = {
        "mask_token_id": raw.get("mask_token_id"),
        "target_layer_ids": [i - 1 for i in ids],
        "causal": not flag("sliding_window_non_causal", raw["sliding_window_non_causal"]),
    }
    top = {
        **{key: value for key, value in layers.items() if key != "architectures"},
        "architectures": [DFLASH if kind == "dflash" else DEEPSPEC],
        "block_size": raw.get("block_size"),
        "sample_from_anchor": raw["sample_from_anchor"],
        "num_target_layers": raw.get("num_target_layers"),
    }
    if raw.get("draft_vocab_size") not in (None, layers.get("vocab_size")):
        top["draft_vocab_size"] = raw["draft_vocab_size"]
    if kind == "dflash":
        return top | {"dflash_config": own}
    return top | own | {key: raw[key] for key in _HEAD if key in raw}


def to_speculators(config: DFlashConfig, target: str, architecture: str) -> dict[str, Any]:
    """The `config.json` of a drafter. target, architecture: name and class of the target.

    Raises CheckpointError for a head that the format does not have.
    """
    head = config.head
    if head is not None and not head.deepspec:
        raise CheckpointError(f"the speculators format has no {head.kind} head")
    if config.length_width is not None:
        raise CheckpointError("the speculators format has no length head")
    plain = config.to_json()
    algorithm = "dflash" if head is None else "dspark"
    layers = {key: plain[key] for key in _SIZES} | {
        "model_type": "qwen3",
        "hidden_act": plain["hidden_act"],
        "attention_bias": plain["attention_bias"],
        "layer_types": plain["layer_types"],
        "rope_parameters": plain["rope_parameters"],
        "tie_word_embeddings": False,
    }
    proposal = {
        "proposal_type": "greedy",
        "speculative_tokens": config.num_drafts,
        "verifier_accept_k": 1,
        "accept_tolerance": 0.0,
    }
    found: dict[str, Any] = {
        KIND: algorithm,
        "architectures": [ARCHITECTURES[algorithm]],
        "speculators_config": {
            "algorithm": algorithm,
            "proposal_methods": [proposal],
            "default_proposal_method": "greedy",
            "verifier": {"name_or_path": target, "architectures": [architecture]},
        },
        "transformer_layer_config": layers,
        "draft_vocab_size": config.draft_vocab_size or config.vocab_size,
        "target_hidden_size": config.hidden_size,
        "block_size": config.block_size,
        "mask_token_id": config.mask_token_id,
        "aux_hidden_state_layer_ids": [i + 1 for i in config.target_layer_ids],
        "sample_from_anchor": config.shift_label,
        "sliding_window_non_causal": not config.causal,
        "num_target_layers": config.num_target_layers,
    }
    return found | ({} if head is None else head.to_json())
