"""What the contract tests share besides fixtures."""

from dartree_exp.config.schema import METHODS

DRAFTING = tuple(m for m in METHODS if m != "ar")
PROMPT = [4, 9, 33, 17, 9, 60, 3, 21]  # holds the toy's mask id, 3
