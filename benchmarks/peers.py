"""Our decoding against other loops on the same model, in one process.

    python benchmarks/peers.py [--limit 9] [--tokens 96] [--repeats 3] [--dtype bf16] [--threads 2]
        [--lookup 10] [--early-exit 8 | --assistant FOLDER] [--path FOLDER] [--adapter FILE.py]
        [--temperature 0] [--json FILE] [key=value ...]

The peers:
  generate  transformers' greedy `generate` with its cache
  lookup    its prompt lookup (`prompt_lookup_num_tokens`)
  assisted  its assisted generation by a smaller model with the same vocabulary, or, without
            --assistant, by the target's own first layers (`assistant_early_exit`), for which the
            target was not trained
  ar        our lean plain decoding
  method    our method; `key=value` are settings of a run, default DARTree pruned
  adapter   a loop of somebody else (benchmarks/adapters/example.py shows how)

All decode the same prompt ids, with the same weights, dtype, threads and cap, prompt by prompt, and
another peer goes first each time. A time is the whole call, prefill included; of the repeats the
median counts. Ratios are paired by prompt, with 95 % bootstrap intervals over prompts. Each text is
compared with that of the first peer; where they part, the gap between the two tokens' logits is
printed: in bf16 the order of additions decides near ties. Above temperature 0 the peers of
transformers draw other noise than we do, so only `ar` and `method` are run.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from measuring import cell, command, configured, finish, in_turn, options, prepared
from peer_loops import library_peers, load_adapter

from dartree_exp.assemble import make_sampler
from dartree_exp.errors import UserError
from dartree_exp.metrics.measures import ratio
from dartree_exp.metrics.stats import Estimate, bootstrap

OURS = ("ar", "method")
PEERS = ("generate", "lookup", "assisted", *OURS, "adapter")

Decode = Callable[[list[int], str], list[int]]  # prompt ids, sample id -> ids of the answer


@dataclass
class Timed:
    """What one peer did, by prompt: seconds of each repeat, and the ids of the last one."""

    seconds: list[list[float]] = field(default_factory=list)
    ids: list[list[int]] = field(default_factory=list)


def measure(
    peers: dict[str, Decode], prompts: list[tuple[str, list[int]]], repeats: int
) -> dict[str, Timed]:
    """Decode every prompt by every peer, in turn. prompts: sample id and prompt ids."""
    names = list(peers)
    timed = {name: Timed([[] for _ in prompts], [[] for _ in prompts]) for name in names}
    for name in names:
        peers[name](prompts[0][1], prompts[0][0])  # a warm-up
    for repeat in range(repeats):
        for index, (sample, ids) in enumerate(prompts):
            for name in in_turn(names, index + repeat):
                begin = time.perf_counter()
                answer = peers[name](ids, sample)
                timed[name].seconds[index].append(time.perf_counter() - begin)
                timed[name].ids[index] = answer
    return timed


def over(base: Timed, own: Timed, places: list[int]) -> Estimate:
    """Seconds per token of `base` over those of `own`, with an interval over the prompts."""
    table = [
        [part for t in (base, own) for part in (median(t.seconds[i]), len(t.ids[i]))]
        for i in places
    ]
    return bootstrap(
        np.array(table, float),
        lambda s: ratio(ratio(s[..., 0], s[..., 1]), ratio(s[..., 2], s[..., 3])),
    )


def speed(own: Timed) -> Estimate:
    """Tokens per second, prefill included."""
    table = [[len(i), median(s)] for i, s in zip(own.ids, own.seconds, strict=True)]
    return bootstrap(np.array(table, float), lambda s: ratio(s[..., 0], s[..., 1]))


def parting(target: Any, prompt: list[int], one: list[int], other: list[int]) -> dict[str, Any]:
    """Where two answers part: the index of the first token that differs, and the gap between the
    logits of both tokens there (None if one answer has ended).
    """
    pairs = enumerate(zip(one, other, strict=False))
    index = next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))
    gap = None
    if index < min(len(one), len(other)):
        read = prompt + one[:index]
        logits = target.prefill(read, target.new_cache(len(read))).logits[-1].float()
        gap = float((logits[one[index]] - logits[other[index]]).abs())
    return {"token": index, "gap": gap}


def chosen(arguments: Any) -> list[str]:
    """The peers to run, in order; raises UserError for one that cannot be."""
    default = [name for name in PEERS if name != "adapter" or arguments.adapter]
    if arguments.temperature > 0:
        default = list(OURS)
    names = arguments.peers.split(",") if arguments.peers else default
    for name in names:
        if name not in PEERS:
            raise UserError(f"--peers {name}: not one of {', '.join(PEERS)}")
        if arguments.temperature > 0 and name not in OURS:
            raise UserError(
                f"--temperature {arguments.temperature}: peer {name!r} draws other noise than we "
                f"do; allowed: {', '.join(OURS)}"
            )
    if "adapter" in names and arguments.adapter is None:
        raise UserError("--peers adapter: --adapter FILE.py is missing")
    return names


def main(words: Sequence[str] | None = None) -> None:
    parser = options(__doc__, limit=9, tokens=96, repeats=3)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--peers", help=f"default: {','.join(PEERS)}")
    parser.add_argument("--lookup", type=int, default=10, help="drafts of prompt lookup")
    parser.add_argument("--early-exit", type=int, default=8, help="layers that draft in `assisted`")
    parser.add_argument("--assistant", type=Path, help="folder of a smaller model")
    parser.add_argument("--path", type=Path, help="folder put on sys.path for the adapter")
    parser.add_argument("--adapter", type=Path, help="file that defines `decode`")
    arguments = parser.parse_intermixed_args(words)
    names = chosen(arguments)
    foreign = load_adapter(arguments.adapter, arguments.path) if "adapter" in names else None
    config = configured(arguments, f"decoding.temperature={arguments.temperature}")
    # The library's model first: loading sets the number of threads, which the warm-up then chooses.
    library = library_peers(config, names, arguments, foreign)
    arms, prompts, environment = prepared(config)
    budget = config.tree.budget
    peers: dict[str, tuple[str, Decode]] = {
        **library,
        "ar": ("lean AR", lambda ids, s: arms.plain(ids, make_sampler(config.decoding, s)).ids),
        "method": (
            f"{config.method}, B = {budget}",
            lambda ids, s: arms.drafted(ids, make_sampler(config.decoding, s)).ids,
        ),
    }
    samples = [(f"{prompt.id}/0", ids) for prompt, ids in prompts]
    with torch.no_grad():
        timed = measure({name: peers[name][1] for name in names}, samples, arguments.repeats)
    record: dict[str, Any] = {
        "environment": environment,
        "settings": {
            **{key: getattr(arguments, key) for key in ("limit", "tokens", "repeats")},
            "temperature": arguments.temperature,
            "overrides": arguments.settings,
            "prompts": [sample for sample, _ in samples],
            "prompt_tokens": [len(ids) for _, ids in samples],
        },
        "base": names[0],
        "peers": {},
    }
    groups: dict[str, list[int]] = {"all": list(range(len(prompts)))}
    for index, (prompt, _) in enumerate(prompts):
        groups.setdefault(prompt.category, []).append(index)
    base = timed[names[0]]
    for name in names:
        own = timed[name]
        pairs = zip(samples, base.ids, own.ids, strict=True)
        record["peers"][name] = {
            "title": peers[name][0],
            "tokens_per_second": speed(own).to_dict(),
            "ratio": {key: over(base, own, places).to_dict() for key, places in groups.items()},
            "ratio_to_ar": over(timed["ar"], own, groups["all"]).to_dict()
            if "ar" in timed
            else None,
            "differences": [
                {"prompt": sample, **parting(arms.target, ids, one, other)}
                for (sample, ids), one, other in pairs
                if one != other
            ],
            "seconds": own.seconds,
            "tokens": [len(ids) for ids in own.ids],
            "same_as_ar": sum(a == b for a, b in zip(timed["ar"].ids, own.ids, strict=True))
            if "ar" in timed
            else None,
        }
    show(record)
    finish(record, arguments.json)


def show(record: dict[str, Any]) -> None:
    """Print the table, and where texts differ."""
    peers, base = record["peers"], record["base"]
    groups = list(peers[base]["ratio"])
    print(
        f"{len(record['settings']['prompts'])} prompts, at most {record['settings']['tokens']} "
        f"tokens, {record['settings']['repeats']} repeats, T = {record['settings']['temperature']}"
        "; whole calls, prefill included\n"
    )
    head = [f"over {base}" if group == "all" else group for group in groups]
    width = max(len(peer["title"]) for peer in peers.values())
    print(f"{'':{width}} {'tokens/s':>20} " + " ".join(f"{name:>20}" for name in head), end="")
    print("   same ids, as lean AR")
    for peer in peers.values():
        cells = [cell(peer["tokens_per_second"], 1), *(cell(peer["ratio"][g]) for g in groups)]
        same = len(peer["tokens"]) - len(peer["differences"])
        print(f"{peer['title']:{width}} " + " ".join(f"{text:>20}" for text in cells), end="")
        as_ar = "" if peer["same_as_ar"] is None else f", {peer['same_as_ar']}"
        print(f"   {same}{as_ar} of {len(peer['tokens'])}")
    for peer in peers.values():
        for part in peer["differences"]:
            gap = "one text ended" if part["gap"] is None else f"logits {part['gap']:.3g} apart"
            print(f"{peer['title']}: {part['prompt']} differs at token {part['token']} ({gap})")


if __name__ == "__main__":
    sys.exit(command("peers", main))
