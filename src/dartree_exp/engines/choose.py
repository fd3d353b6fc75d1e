"""Which engine computes a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dartree_exp.errors import UserError

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, Qwen3ForCausalLM


def choose(name: str | None, model: LlamaForCausalLM | Qwen3ForCausalLM) -> str:
    """The engine's name. None: `packed` on a CPU if it computes this model, else `eager`.

    Raises UserError for `packed` on a model that it does not compute.
    """
    from dartree_exp.engines.packed import PackedForward

    refusal = PackedForward.refusal(model)
    if name is None:
        return "packed" if refusal is None and model.device.type == "cpu" else "eager"
    if name == "packed" and refusal is not None:
        raise UserError(f"engine.name=packed: {refusal}; use eager")
    return name
