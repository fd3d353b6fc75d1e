"""`proof=fp32`: the first prompts of a run are also decoded in float32, where only plain decoding's
ids pass.

This proves a method lossless if a run in bf16 cannot, because its rows round differently in a tree.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from dartree_exp.assemble import make_sampler
from dartree_exp.config.schema import Config
from dartree_exp.prompts import Prompt
from dartree_exp.runs.arms import Arms


def fp32_proof(config: Config, prompts: Iterable[Prompt]) -> dict[str, Any]:
    """{"dtype", "exact", "of"}: how many first turns of at most `proof_prompts` prompts have the
    ids of plain decoding.

    Loads target and drafter in float32. Skips prompts that do not fit the target or the drafter.
    """
    engine = replace(config.engine, dtype="fp32", attention="library")
    arms = Arms.load(replace(config, engine=engine))
    exact = of = 0
    for prompt, ids in arms.fitting(prompts):
        if of == config.proof_prompts:
            break
        if arms.fallback(ids):
            continue
        sampler = make_sampler(config.decoding, f"{prompt.id}/0")
        same = arms.plain(ids, sampler).ids == arms.drafted(ids, sampler).ids
        exact, of = exact + same, of + 1
    return {"dtype": "float32", "exact": exact, "of": of}
