"""Capture hidden-state features of generated text to disk: `python -m
dartree_exp.training.capture`.

The size is estimated and the free space checked before the first write; shards are atomic and
existing ones are skipped, so an interrupted capture continues where it stopped. Several processes
share the work with `--part i/n`. Samples are in the shuffled training order (held-out samples form
shard 0), so training can start on the first shards.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Iterator

import torch
from torch import Tensor

from dartree_exp.engines.batched import tapped
from dartree_exp.engines.target import Target
from dartree_exp.models.registry import cpu_has_bf16
from dartree_exp.training.command import Parser, natural, output, positive, run
from dartree_exp.training.corpus import Sample, load_samples, split_holdout
from dartree_exp.training.provenance import begin_features, target_record
from dartree_exp.training.shards import shard_path, write_shard
from dartree_exp.training.target import check_samples, check_taps, open_target

FREE_MARGIN = 2 * 1024**3  # bytes left for everything else on the disk


def plan_shards(
    samples: list[Sample], per_domain: int, shard_size: int, seed: int
) -> list[list[Sample]]:
    """Shard 0 = the held-out samples, then the training samples in their shuffled order."""
    train, held = split_holdout(samples, per_domain, seed)
    return [held] + [train[i : i + shard_size] for i in range(0, len(train), shard_size)]


def estimated_bytes(groups: list[list[Sample]], width: int) -> int:
    """Bytes of all shards: bfloat16 features and int32 ids; `width` = taps * hidden."""
    return sum(len(s.ids) for group in groups for s in group) * (2 * width + 4)


def batches_by_length(lengths: list[int], batch_tokens: int) -> Iterator[list[int]]:
    """Indices of sequences of near-equal length, the longest first, with at most this many tokens
    in a padded batch, and at least one sequence.
    """
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    while order:
        size = max(1, batch_tokens // lengths[order[0]])
        yield order[:size]
        order = order[size:]


def capture_group(
    target: Target, taps: tuple[int, ...], samples: list[Sample], batch_tokens: int
) -> Tensor:
    """bfloat16 features [T, n * hidden] of the samples in order; batches join samples of near-equal
    length.
    """
    half = cpu_has_bf16()
    lengths = [len(s.ids) for s in samples]
    starts = [0]
    for length in lengths:
        starts.append(starts[-1] + length)
    out = torch.empty(starts[-1], len(taps) * target.hidden_size, dtype=torch.bfloat16)
    for batch in batches_by_length(lengths, batch_tokens):
        ids = torch.zeros(len(batch), lengths[batch[0]], dtype=torch.int64)
        for row, i in enumerate(batch):
            ids[row, : lengths[i]] = torch.tensor(samples[i].ids)
        features = tapped(target, ids, taps, half)
        for row, i in enumerate(batch):
            out[starts[i] : starts[i + 1]] = features[row, : lengths[i]]
    return out


def parse_part(text: str) -> tuple[int, int]:
    """i/n with 0 <= i < n."""
    try:
        index, count = (int(x) for x in text.split("/"))
    except ValueError:
        index, count = -1, 0
    if not 0 <= index < count:
        raise argparse.ArgumentTypeError(f"{text!r} is not i/n with 0 <= i < n")
    return index, count


def main(argv: list[str] | None = None) -> int:
    parser = Parser("capture", __doc__, "--data text.jsonl --holdout 8 --out features")
    parser.shared("data", "target", "holdout", "seed", "threads")
    parser.add_argument("--out", type=output, required=True, help="folder for the shards")
    parser.add_argument(
        "--taps",
        type=natural,
        nargs="+",
        default=[1, 8, 15, 22, 27],
        help="decoder layers whose output is kept",
    )
    parser.add_argument("--shard-size", type=positive, default=128, help="samples per shard")
    parser.add_argument(
        "--batch-tokens", type=positive, default=1000, help="tokens per forward pass"
    )
    parser.add_argument(
        "--part",
        type=parse_part,
        default="0/1",
        metavar="I/N",
        help="capture every n-th shard, from the i-th, so that several processes share the work",
    )
    parser.add_argument("--limit", type=positive, help="stop after this many shards in all")
    args = parser.parse_args(argv)
    taps = tuple(args.taps)
    samples = load_samples(args.data)
    target = open_target(args.target, args.threads)
    check_taps(taps, target)
    check_samples(samples, target, args.data)
    groups = plan_shards(samples, args.holdout, args.shard_size, args.seed)[: args.limit]
    args.out.mkdir(parents=True, exist_ok=True)
    todo = [i for i in range(len(groups)) if not shard_path(args.out, i).exists()]
    need = estimated_bytes([groups[i] for i in todo], len(taps) * target.hidden_size)
    free = shutil.disk_usage(args.out).free
    print(
        f"{len(todo)} of {len(groups)} shards to capture: {need / 1e9:.1f} GB, {free / 1e9:.1f} GB "
        "free",
        flush=True,
    )
    if need + FREE_MARGIN > free:
        print(
            f"not enough space in {args.out}: {need / 1e9:.1f} GB needed; --limit captures a part",
            file=sys.stderr,
        )
        return 1
    settings = {
        "target": target_record(target),
        "taps": args.taps,
        "holdout": args.holdout,
        "seed": args.seed,
    }
    begin_features(args.out, args.data, {**settings, "shard_size": args.shard_size})
    index, count = args.part
    began, tokens = time.perf_counter(), 0
    for number in [i for i in todo if i % count == index]:
        features = capture_group(target, taps, groups[number], args.batch_tokens)
        write_shard(shard_path(args.out, number), groups[number], features, taps)
        tokens += len(features)
        rate = tokens / (time.perf_counter() - began)
        print(f"shard {number}/{len(groups) - 1}: {tokens} tokens, {rate:.0f} tokens/s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
