"""The target's forward against its own matrix products.

    python benchmarks/forward.py [--rows 1,17,65] [--contexts 200] [--attentions library,...]
        [--repeats 20] [--dtype bf16] [--threads 2] [--json FILE] [key=value ...]

For each engine and attention: milliseconds of one forward of n rows of a tree (for one row, of a
plain step) after `context` cached rows, and of the matrix products alone. The products are one pass
through all linear layers and the head with n rows, on the target's own weights and in the engine's
own layout; nothing can be faster than that without other products. All are timed in turn. Shown are
medians and quartiles over the repeats, also of the ratio within one repeat.
"""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from itertools import chain, product
from typing import Any

import torch
from measuring import cell, command, configured, finish, in_turn, options, quartiles

from dartree_exp.config.schema import Config
from dartree_exp.engines.forward import Product
from dartree_exp.engines.packed import PackedForward
from dartree_exp.engines.spec import ENGINES
from dartree_exp.engines.target import Target
from dartree_exp.errors import UserError
from dartree_exp.models.registry import load_target
from dartree_exp.records.environment import describe_environment
from dartree_exp.trees.masks import position_ids
from dartree_exp.verify.rows import path_tree

ATTENTIONS = ("library", "row_invariant")
PATH = 17  # most nodes on one path of the tree


def forward(target: Target, context: int, rows: int) -> Callable[[], object]:
    """A forward of `rows` rows of a tree after `context` cached rows, or of a plain step."""
    cache = target.new_cache(context + rows)
    target.prefill([i % target.vocab_size for i in range(context)], cache)
    tree, _ = path_tree(list(range(min(rows, PATH))), rows, target.vocab_size, target.device)
    positions, mask = position_ids(tree, context), target.mask(tree.parents, context)

    def run() -> None:
        if rows == 1:
            target.step(0, cache)
        else:
            target.verify(tree.tokens, positions, mask, cache)
        cache.keep(context)

    return run


def linear_layers(target: Target) -> list[Product]:
    """All linear layers and the head, as the target's engine computes them."""
    forward = target.forward
    if isinstance(forward, PackedForward):
        layers = [(p.qkv, p.out, p.gate_up, p.down) for p in forward._layers]
        return [*chain.from_iterable(layers), forward._head]
    modules = [m for m in target._model.modules() if isinstance(m, torch.nn.Linear)]
    return [Product(module.in_features, module) for module in modules]


def products(target: Target, rows: int) -> Callable[[], object]:
    """One pass of `rows` rows through all linear layers and the head."""
    layers = linear_layers(target)
    inputs = {
        width: torch.randn(rows, width, device=target.device).to(target.dtype)
        for width in {layer.columns for layer in layers}
    }

    def run() -> None:
        for layer in layers:
            layer.of(inputs[layer.columns])

    return run


def milliseconds(run: Callable[[], object], device: torch.device) -> float:
    begin = time.perf_counter()
    run()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return 1e3 * (time.perf_counter() - begin)


def measure(
    config: Config, targets: dict[str, Target], arguments: Namespace
) -> list[dict[str, Any]]:
    """The rows of the table. targets: by engine."""
    keys = list(product(targets, arguments.contexts, arguments.attentions, arguments.rows))
    runs: dict[tuple[Any, ...], tuple[Callable[[], object], Callable[[], object]]] = {}
    for key in keys:
        engine, context, attention, rows = key
        targets[engine].row_invariant = attention == "row_invariant"
        runs[key] = forward(targets[engine], context, rows), products(targets[engine], rows)
    times: dict[tuple[Any, ...], list[tuple[float, float]]] = {key: [] for key in keys}
    for repeat in range(arguments.repeats + 1):  # the first is a warm-up
        for key in in_turn(keys, repeat):
            target = targets[key[0]]
            target.row_invariant = key[2] == "row_invariant"
            pair = [milliseconds(run, target.device) for run in runs[key]]
            if repeat:
                times[key].append((pair[0], pair[1]))
    return [
        {
            **dict(zip(("engine", "context", "attention", "rows"), key, strict=True)),
            "forward_ms": quartiles(whole for whole, _ in own),
            "products_ms": quartiles(part for _, part in own),
            "ratio": quartiles(whole / part for whole, part in own),
        }
        for key, own in times.items()
    ]


def counts(text: str) -> list[int]:
    """Comma-separated positive integers."""
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = [0]
    if min(found) < 1:
        raise UserError(f"{text}: must be positive integers, separated by commas")
    return found


@torch.inference_mode()
def main(words: Sequence[str] | None = None) -> None:
    parser = options(__doc__, repeats=20)
    parser.add_argument("--rows", default="1,17,65")
    parser.add_argument("--contexts", default="200", help="cached rows")
    parser.add_argument("--attentions", default=",".join(ATTENTIONS))
    parser.add_argument("--engines", help="default: all")
    arguments = parser.parse_intermixed_args(words)
    arguments.rows, arguments.contexts = counts(arguments.rows), counts(arguments.contexts)
    arguments.attentions = arguments.attentions.split(",")
    if unknown := set(arguments.attentions) - set(ATTENTIONS):
        raise UserError(f"--attentions {unknown.pop()}: not one of {', '.join(ATTENTIONS)}")
    engines = arguments.engines.split(",") if arguments.engines else list(ENGINES)
    configs = {name: configured(arguments, f"engine.name={name}") for name in engines}
    targets = {name: load_target(c.model, c.engine) for name, c in configs.items()}
    config, target = configs[engines[0]], targets[engines[0]]
    environment = describe_environment(
        device=str(target.device),
        dtype=str(target.dtype).removeprefix("torch."),
        threads=torch.get_num_threads(),
        weights={"target": target.weights_sha256},
    )
    results = measure(config, targets, arguments)
    print(
        f"{'engine':8} {'attention':14} {'context':>8} {'rows':>5} {'forward, ms':>23} "
        f"{'products, ms':>23} {'forward / products':>20}"
    )
    for row in results:
        print(
            f"{row['engine']:8} {row['attention']:14} {row['context']:8} {row['rows']:5} "
            f"{cell(row['forward_ms'], 1):>23} {cell(row['products_ms'], 1):>23} "
            f"{cell(row['ratio']):>20}"
        )
    settings = {"repeats": arguments.repeats, "model": target.name}
    finish({"environment": environment, "settings": settings, "forward": results}, arguments.json)


if __name__ == "__main__":
    sys.exit(command("forward", main))
