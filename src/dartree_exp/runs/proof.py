"""`proof=fp32`: the first prompts of a run decoded once more in float32, where only plain
decoding's very ids pass.

A bf16 run whose rows round differently in a tree cannot show that its method is lossless; this
shows it beside the table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from dartree_exp.assemble import clock_factory, load_parts, make_rule, make_sampler
from dartree_exp.config.schema import Config
from dartree_exp.decode import autoregress, speculate
from dartree_exp.prompts import Prompt


def fp32_proof(config: Config, prompts: Iterable[Prompt]) -> dict[str, Any]:
    """{"dtype", "exact", "of"}: first turns of at most `proof_prompts` prompts whose ids equal
    plain decoding's.

    Loads target and drafter in float32. A prompt that does not fit the target or the drafter is
    passed over.
    """
    engine = replace(config.engine, dtype="fp32", attention="library")
    target, method = load_parts(replace(config, engine=engine))
    rule, clock = make_rule(config.decoding, target), clock_factory(config, target)
    exact = of = 0
    for prompt in prompts:
        if of == config.proof_prompts:
            break
        message = {"role": "user", "content": prompt.turns[0]}
        ids = target.tokenizer.encode_chat([message], config.decoding.enable_thinking)
        too_long = len(ids) + rule.max_new_tokens > target.max_positions
        if too_long or method.fallback(len(ids), rule.max_new_tokens):
            continue
        sampler = make_sampler(config.decoding, f"{prompt.id}/0")
        plain = autoregress(target, ids, sampler, rule, clock())
        drafted = speculate(target, method, ids, sampler, rule, clock())
        exact, of = exact + (plain.ids == drafted.ids), of + 1
    return {"dtype": "float32", "exact": exact, "of": of}
