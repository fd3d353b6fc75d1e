"""Train a drafter on captured features: `python -m dartree_exp.training.train --out RUN`.

The backbone is trained on the base loss alone (that is DFlash). `--stage head --init RUN` trains a
correction head on the frozen backbone: Domino's with `--head gru`, DSpark's with `--head markov`,
`markov_gated` or `markov_rnn`. `--stage joint` trains both with the base-to-final curriculum. The
learning rate follows the share of the run's budget that is used up, in minutes of wall clock
(`--minutes`) or in steps (`--steps`). Checkpoints are atomic and hold everything; running the same
command again continues. `--workers n` = n data-parallel processes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist

from dartree_exp.errors import RunError, UserError
from dartree_exp.training.command import MISTAKE, Parser, duration, output, positive, run
from dartree_exp.training.corpus import frequent_ids, load_samples, split_holdout
from dartree_exp.training.errors import InputError
from dartree_exp.training.provenance import (
    features_record,
    file_record,
    refuse_changes,
    target_record,
)
from dartree_exp.training.settings import TrainSettings, add_arguments, from_arguments
from dartree_exp.training.target import target_folder
from dartree_exp.training.trainer import Trainer


def build_parser() -> argparse.ArgumentParser:
    parser = Parser("train", __doc__)
    parser.add_argument(
        "--data", type=Path, required=True, help="the generated text that was captured"
    )
    parser.add_argument("--features", type=Path, required=True, help="folder of feature shards")
    parser.add_argument(
        "--out", type=output, required=True, help="run folder: checkpoint, curve.jsonl"
    )
    parser.add_argument(
        "--init",
        type=Path,
        help="run folder (averaged weights) or exported folder (backbone) to start from",
    )
    parser.add_argument("--target", type=Path, help="target folder (default: the embedded target)")
    parser.add_argument(
        "--holdout", type=positive, default=8, help="held-out samples per domain, as captured"
    )
    budget = parser.add_mutually_exclusive_group(required=True)
    budget.add_argument(
        "--minutes", type=duration, help="wall clock of training, resumed runs included"
    )
    budget.add_argument("--steps", type=positive)
    parser.add_argument(
        "--workers", type=positive, default=1, help="data-parallel processes, one thread each"
    )
    parser.add_argument("--validate-every", type=positive, default=100, help="steps")
    parser.add_argument("--save-every", type=duration, default=120, help="seconds")
    parser.add_argument(
        "--stop-after",
        type=positive,
        help="leave after this many steps of this process (tests, trials)",
    )
    add_arguments(parser)
    return parser


def worker(
    rank: int, args: argparse.Namespace, settings: TrainSettings, ids: list[int], meeting: str
) -> None:
    """One process of a run."""
    torch.set_num_threads(1)
    if args.workers > 1:
        dist.init_process_group(
            "gloo", init_method=f"file://{meeting}", rank=rank, world_size=args.workers
        )
    trainer = Trainer(args, settings, ids, rank)
    trainer.resume_or_start()
    began = last_save = time.perf_counter()
    done, spent = 0, trainer.seconds
    while trainer.progress(args) < 1 and done != args.stop_after:
        trainer.step()
        done += 1
        # The budget is shared: every process must see the same progress, or they would part at the
        # end.
        trainer.seconds = trainer.agree(spent + time.perf_counter() - began)
        if trainer.number % args.validate_every == 0:
            trainer.validate()
        if rank == 0 and time.perf_counter() - last_save > args.save_every:
            trainer.save()
            last_save = time.perf_counter()
    if rank == 0:
        if trainer.number % args.validate_every:
            trainer.validate()
        trainer.save()
    if args.workers > 1:
        dist.barrier()
        dist.destroy_process_group()


def guarded(
    rank: int, args: argparse.Namespace, settings: TrainSettings, ids: list[int], folder: str
) -> None:
    """`worker` in a process of its own: a mistake goes into the file `said`, where the first
    process to meet one writes.
    """
    try:
        worker(rank, args, settings, ids, os.path.join(folder, "meeting"))
    except (UserError, OSError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        with (
            contextlib.suppress(FileExistsError),
            open(os.path.join(folder, "said"), "x", encoding="utf-8") as said,
        ):
            json.dump([str(error), cause.errno if isinstance(cause, OSError) else None], said)
        sys.exit(MISTAKE)


def main(argv: list[str] | None = None) -> int:
    args = build_parser().parse_args(argv)
    settings = from_arguments(args)
    args.target = target_folder(args.target)
    args.record = features_record(args.features)
    seed = settings.seed
    if args.record is not None:
        wanted = {
            "text": file_record(args.data),
            "target": target_record(args.target),
            "holdout": args.holdout,
        }
        refuse_changes(args.features, args.record, wanted)
        seed = args.record["seed"]  # of the hold-out that was captured
    train_samples, _ = split_holdout(load_samples(args.data), args.holdout, seed)
    ids = frequent_ids(train_samples, settings.vocab)
    args.out.mkdir(parents=True, exist_ok=True)
    if args.workers == 1:
        worker(0, args, settings, ids, "")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        try:
            torch.multiprocessing.spawn(
                guarded, (args, settings, ids, folder), nprocs=args.workers, join=True
            )
        except torch.multiprocessing.ProcessExitedException as error:
            said = Path(folder, "said")
            if not said.exists():
                raise RunError(
                    f"a worker process died without a message ({error}); run the same command "
                    "again to resume"
                ) from error
            message, number = json.loads(said.read_text(encoding="utf-8"))
            raise InputError(message) from (OSError(number, "") if number else error)
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
