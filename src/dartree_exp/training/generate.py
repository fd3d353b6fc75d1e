"""Training text from the target itself: `python -m dartree_exp.training.generate --prompts P.jsonl
--out TEXT.jsonl`.

Greedy continuations, batched over prompts of equal length. A batch is appended at once, and prompts
already in the output are skipped, so an interrupted run continues; a line cut off by a kill is
dropped first. Beside the text a record says what it was made from and which prompts were kept out.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch

from dartree_exp.engines.batched import greedy
from dartree_exp.records.files import repair_lines
from dartree_exp.records.schema import RecordError
from dartree_exp.training.command import Parser, output_file, positive, run
from dartree_exp.training.errors import InputError
from dartree_exp.training.prompts import TrainingPrompt, load_prompts, load_texts, without
from dartree_exp.training.provenance import begin_text, file_record, finish_text, target_record
from dartree_exp.training.target import open_target


def finished(out: Path) -> set[str]:
    """Ids already in the output; an unfinished last line is cut off."""
    try:
        return {line["id"] for line in repair_lines(out)}
    except RecordError as error:
        raise InputError(str(error)) from error
    except KeyError as error:
        raise InputError(f"{out}: a line has no {error}") from error


def plan(
    prompts: list[tuple[TrainingPrompt, list[int]]], batch: int
) -> list[list[tuple[TrainingPrompt, list[int]]]]:
    """Batches of equal prompt length, at most `batch` prompts each, shortest first."""
    by_length: dict[int, list[tuple[TrainingPrompt, list[int]]]] = {}
    for item in prompts:
        by_length.setdefault(len(item[1]), []).append(item)
    return [
        items[i : i + batch]
        for _, items in sorted(by_length.items())
        for i in range(0, len(items), batch)
    ]


def main(argv: list[str] | None = None) -> int:
    parser = Parser(
        "generate", __doc__, "--prompts prompts.jsonl --exclude mini.jsonl --out text.jsonl"
    )
    parser.add_argument(
        "--prompts",
        type=Path,
        required=True,
        help="JSON lines with id, domain (math, code, chat), prompt",
    )
    parser.add_argument(
        "--out", type=output_file, required=True, help="the text, continued where it exists"
    )
    parser.add_argument(
        "--exclude",
        type=Path,
        nargs="*",
        default=[],
        help="JSON lines with `prompt` or `turns`: such prompts are left out",
    )
    parser.shared("target", "threads")
    parser.add_argument("--cap", type=positive, default=192, help="new tokens per prompt")
    parser.add_argument("--batch", type=positive, default=64, help="prompts decoded together")
    args = parser.parse_args(argv)
    excluded = {path: load_texts(path) for path in args.exclude}
    prompts = load_prompts(args.prompts)
    wanted = without(prompts, {text for texts in excluded.values() for text in texts})
    target = open_target(args.target, args.threads)
    settings = {
        "target": target_record(target),
        "cap": args.cap,
        "excluded": [
            {**file_record(path), "count": len(texts)} for path, texts in excluded.items()
        ],
    }
    source = {
        **file_record(args.prompts),
        "count": len(prompts),
        "kept_out": len(prompts) - len(wanted),
    }
    done = finished(args.out)
    todo = [p for p in wanted if p.id not in done]
    render = target.tokenizer.encode_chat
    rendered = [(p, render([{"role": "user", "content": p.prompt}])) for p in todo]
    batches = plan(rendered, args.batch)
    longest = max((len(ids) for batch in batches for _, ids in batch), default=0)
    if longest + args.cap > target.max_positions:
        raise InputError(
            f"--cap {args.cap}: the longest prompt has {longest} tokens and the target takes "
            f"{target.max_positions} in all"
        )
    record = begin_text(args.out, settings, source)
    began, tokens, count = time.perf_counter(), 0, 0
    for batch in batches:
        answers = greedy(target, torch.tensor([ids for _, ids in batch]), args.cap, target.eos_ids)
        lines = [
            json.dumps(
                {
                    "id": p.id,
                    "domain": p.domain,
                    "prompt": p.prompt,
                    "prompt_ids": ids,
                    "output_ids": answer,
                }
            )
            for (p, ids), answer in zip(batch, answers, strict=True)
        ]
        with args.out.open("a", encoding="utf-8") as out:
            out.write("".join(line + "\n" for line in lines))
        tokens, count = tokens + sum(map(len, answers)), count + len(batch)
        rate = tokens / (time.perf_counter() - began)
        left = (len(todo) - count) * tokens / count / rate
        print(
            f"{count}/{len(todo)} prompts, {tokens} tokens, {rate:.0f} tokens/s, {left:.0f} s left",
            flush=True,
        )
    if record is not None:
        finish_text(args.out, record)
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
