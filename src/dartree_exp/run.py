"""One run: every prompt is decoded plainly and by the method, in turn, judged and recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from rich.console import Console

from dartree_exp.config.schema import Config
from dartree_exp.console.terminate import deferred
from dartree_exp.errors import RunError
from dartree_exp.inputs.digests import input_digests
from dartree_exp.metrics.summary import summarise
from dartree_exp.prompts import Prompt, load_prompts
from dartree_exp.records.folder import RunFolder
from dartree_exp.records.schema import SampleRecord
from dartree_exp.report.live import LiveLine
from dartree_exp.report.tables import run_tables
from dartree_exp.runs.arms import Arms
from dartree_exp.runs.environment import settle
from dartree_exp.runs.proof import fp32_proof
from dartree_exp.runs.records import round_records, tree_records
from dartree_exp.runs.turns import decode_prompt
from dartree_exp.trackers import make_tracker
from dartree_exp.trackers.tracker import Tracker


def run(config: Config, folder: RunFolder) -> None:
    """Decode the prompts that are not in the folder yet, then summarise all of them.

    Raises:
        RunError: a verdict is `wrong`, or no prompt could be decoded. The records are kept.
    """
    prompts = load_prompts(config.benchmark)  # first, because it is fast and may fail
    arms = Arms.load(config)
    folder.identify(input_digests(config))
    folder.expect(config.repeats * sum(len(prompt.turns) for prompt in prompts))
    arms = settle(arms, prompts, folder)
    tracker, console = make_tracker(config, folder.path), Console()
    summary: dict[str, Any] | None = None
    try:
        decode_all(arms, prompts, folder, tracker, console)
        folder.note_load()
        summary = summarise(folder.samples(), str(config.method))
        if config.proof == "fp32":
            summary["proof"] = fp32_proof(config, prompts)
        folder.write_summary(summary)
    finally:
        tracker.finish(summary)
    run_tables(folder.path, console)
    conclude(summary, folder)


def decode_all(
    arms: Arms, prompts: Sequence[Prompt], folder: RunFolder, tracker: Tracker, console: Console
) -> None:
    """Decode every turn that is not in the folder, and record it before the next one begins.

    Each repeat is a whole pass over the prompts, so the repeats of one prompt are far apart in
    time. The first arm alternates from prompt to prompt and from pass to pass.
    """
    config, decode = arms.config, arms.target.tokenizer.decode
    turns = config.repeats * sum(len(prompt.turns) for prompt in prompts)
    viewed = len(prompts) if config.record.trees == "all" else int(config.record.trees)
    with (
        LiveLine(turns, console, folder.samples(), str(config.method)) as live,
        deferred() as stop_if_asked,
    ):
        for repeat, (index, prompt) in product(range(config.repeats), enumerate(prompts)):
            stop_if_asked()
            ar_first = (index + repeat) % 2 == 0
            for sample, decoded in decode_prompt(arms, prompt, folder, ar_first, repeat):
                rounds = list(round_records(sample, decoded))
                with_trees = repeat == 0 and index < viewed
                trees = tree_records(sample, decoded, decode) if with_trees else ()
                folder.append(sample, rounds, trees)
                tracker.log_sample(sample, rounds)
                live.update(sample)
                for note in notable(sample):
                    live.say(note)
                stop_if_asked()


def conclude(summary: dict[str, Any], folder: RunFolder) -> None:
    """Mark the run DONE. Raises RunError for a `wrong` verdict, a failed proof, or if no prompt
    could be decoded.
    """
    wrong, failed = summary["verdicts"]["wrong"], summary["failed"]
    if wrong:
        raise RunError(
            f"{wrong} of {summary['turns']} outputs are wrong (see verdict_detail in samples.jsonl)"
        )
    proof = summary.get("proof")
    if proof and not proof["of"]:
        raise RunError("proof=fp32: no prompt fits target and drafter, so nothing was proved")
    if proof and proof["exact"] < proof["of"]:
        raise RunError(
            f"proof=fp32: {proof['of'] - proof['exact']} of {proof['of']} outputs differ from "
            "plain decoding"
        )
    if failed and not summary["turns"]:
        raise RunError(f"none of {failed} prompts could be decoded: {folder.samples()[0].error}")
    folder.done(f"{failed} prompts failed (see samples.jsonl)" if failed else "")


def notable(sample: SampleRecord) -> Iterator[str]:
    """Lines to print for a sample: an error, a fallback to plain decoding, ids that differ from
    plain decoding's.
    """
    name = f"{sample.id} turn {sample.turn}"
    if sample.error is not None:
        yield f"{name}: {sample.error['message']}"
    if sample.fallback is not None:
        yield f"{name}: decoded plainly: {sample.fallback}"
    if sample.verdict in ("near_tie", "wrong"):
        yield (
            f"{name}: {sample.verdict.replace('_', ' ')} at token "
            f"{(sample.verdict_detail or {}).get('index')}"
        )
