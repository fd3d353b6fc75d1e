"""Final hidden states of captured text, for objectives that read the target's distribution: `python
-m dartree_exp.training.finals`.

They are computed from the captured output of the deepest tapped layer, so only the layers above it
run. One file per shard, written whole; existing ones are skipped, so an interrupted run continues.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from torch import Tensor

from dartree_exp.engines.batched import finished
from dartree_exp.engines.target import Target
from dartree_exp.models.registry import cpu_has_bf16
from dartree_exp.training.capture import batches_by_length, parse_part
from dartree_exp.training.command import Parser, positive, run
from dartree_exp.training.errors import InputError
from dartree_exp.training.provenance import features_record, refuse_changes
from dartree_exp.training.shards import (
    Shard,
    finals_path,
    read_shard,
    shard_path,
    shards_from,
    write_finals,
)
from dartree_exp.training.target import open_target


def finals_of(target: Target, shard: Shard, taps: tuple[int, ...], batch_tokens: int) -> Tensor:
    """bfloat16 [T, H] of a shard's tokens, in order."""
    deepest = max(taps)
    width = target.hidden_size
    first = taps.index(deepest) * width
    lengths = shard.lengths.tolist()
    starts = [0, *shard.lengths.cumsum(0).tolist()]
    out = torch.empty(len(shard.ids), width, dtype=torch.bfloat16)
    for batch in batches_by_length(lengths, batch_tokens):
        hidden = torch.zeros(len(batch), lengths[batch[0]], width)
        for row, i in enumerate(batch):
            part = shard.features[starts[i] : starts[i + 1], first : first + width]
            hidden[row, : lengths[i]] = part
        final = finished(target, hidden.to(target.dtype), deepest, cpu_has_bf16())
        for row, i in enumerate(batch):
            out[starts[i] : starts[i + 1]] = final[row, : lengths[i]]
    return out


def captured_shards(features: Path) -> list[int]:
    """Numbers of the shards from 0 on, without a gap."""
    if not (count := shards_from(features, 0)):
        raise InputError(f"{features}: holds no shard; run dartree_exp.training.capture")
    return list(range(count))


def main(argv: list[str] | None = None) -> int:
    parser = Parser("finals", __doc__, "--features features")
    parser.shared("target", "threads")
    parser.add_argument(
        "--features", type=Path, required=True, help="folder that training.capture wrote"
    )
    parser.add_argument(
        "--batch-tokens", type=positive, default=2000, help="tokens per forward pass"
    )
    parser.add_argument(
        "--part",
        type=parse_part,
        default="0/1",
        metavar="I/N",
        help="only every n-th shard, from the i-th, so that several processes share the work",
    )
    args = parser.parse_args(argv)
    record = features_record(args.features)
    target = open_target(args.target, args.threads)
    captured = {"target": record["target"]["weights_sha256"]}
    refuse_changes(args.features, captured, {"target": target.weights_sha256})
    taps = tuple(record["taps"])
    index, count = args.part
    todo = [
        number
        for number in captured_shards(args.features)
        if number % count == index and not finals_path(args.features, number).exists()
    ]
    began, tokens = time.perf_counter(), 0
    for number in todo:
        shard = read_shard(shard_path(args.features, number), taps)
        finals = finals_of(target, shard, taps, args.batch_tokens)
        write_finals(finals_path(args.features, number), finals)
        tokens += len(finals)
        rate = tokens / (time.perf_counter() - began)
        print(f"shard {number}: {tokens} tokens, {rate:.0f} tokens/s", flush=True)
    print(f"{len(todo)} shards, {tokens} tokens")
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
