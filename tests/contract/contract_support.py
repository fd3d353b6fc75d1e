"""What the contract tests share besides fixtures."""

from dartree_exp.config.schema import METHODS

DRAFTING = tuple(m for m in METHODS if m != "ar")
MARKOV = ("vanilla", "gated", "rnn")
# Every builder on every head of DSpark's: `method@head` for `make_case`.
ON_MARKOV = tuple(f"{m}@{h}" for m in ("dspark", "dominotree", "dartree_fixed", "dartree_pruned") for h in MARKOV)
PROMPT = [4, 9, 33, 17, 9, 60, 3, 21]  # holds the toy's mask id, 3
