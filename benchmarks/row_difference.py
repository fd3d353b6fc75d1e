"""The difference between the logits of a tree row and of a one-token step, by dtype and attention.

    python benchmarks/row_difference.py [fp32] [bf16] [prompts=6] [tokens=64]
        [attention=library|row_invariant]

The target decodes `tokens` tokens one at a time, then reads the same tokens in one forward of
`tokens` rows (a chain as tree). For each dtype it prints the largest and the mean absolute
difference over all rows and token ids, and over each row's best 10 ids, where near ties occur. The
warm-up measures a run's own tolerance (`verify/rows.py`).
"""

import sys

import torch

from dartree_exp.config import compose
from dartree_exp.models.registry import load_target
from dartree_exp.prompts import load_prompts
from dartree_exp.trees.masks import position_ids
from dartree_exp.verify.rows import path_tree


@torch.inference_mode()
def differences(
    dtype: str, attention: str, prompts: int, tokens: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Absolute differences [rows, V] of all rows, and those of each row's best 10 ids."""
    config = compose(
        [f"engine.dtype={dtype}", f"engine.attention={attention}", f"benchmark.limit={prompts}"]
    )
    target = load_target(config.model, config.engine)
    everything, best = [], []
    for prompt in load_prompts(config.benchmark):
        ids = target.tokenizer.encode_chat([{"role": "user", "content": prompt.turns[0]}])
        cache = target.new_cache(len(ids) + tokens + 1)
        path, steps = [int(target.prefill(ids, cache).logits[-1].argmax())], []
        for _ in range(tokens):
            steps.append(target.step(path[-1], cache).float())
            path.append(int(steps[-1].argmax()))
        chain, _ = path_tree(path[:-1], tokens, target.vocab_size, target.device)
        cache.keep(len(ids))
        mask = target.mask(chain.parents, len(ids))
        rows = target.verify(
            chain.tokens, position_ids(chain, len(ids)), mask, cache
        ).logits.float()
        gap = (rows - torch.stack(steps)).abs()
        everything.append(gap)
        best.append(gap.gather(1, torch.stack(steps).topk(10).indices))
    return torch.cat(everything), torch.cat(best)


def main() -> None:
    options = dict(a.split("=") for a in sys.argv[1:] if "=" in a)
    prompts, tokens = int(options.get("prompts", 6)), int(options.get("tokens", 64))
    attention = options.get("attention", "library")
    for dtype in [a for a in sys.argv[1:] if "=" not in a] or ["fp32", "bf16"]:
        everything, best = differences(dtype, attention, prompts, tokens)
        print(
            f"{dtype}, {attention}: {len(everything)} rows, all ids: max {everything.max():.3g} "
            f"mean {everything.mean():.3g}; best 10 ids: max {best.max():.3g} mean "
            f"{best.mean():.3g}"
        )


if __name__ == "__main__":
    main()
