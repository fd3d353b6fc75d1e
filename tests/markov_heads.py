"""DSpark's Markov heads by their `markov_head_type` in released checkpoints."""

from dartree_exp.drafters.heads.spec import HEADS

MARKOV_HEADS = {spec.released: spec.load() for spec in HEADS.values() if spec.released is not None}
