"""One run: every prompt decoded by plain decoding and by the method, interleaved, judged,
recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

from rich.console import Console

from dartree_exp.config.schema import Config
from dartree_exp.console.terminate import deferred
from dartree_exp.errors import RunError
from dartree_exp.inputs.digests import input_digests
from dartree_exp.metrics.summary import summarise
from dartree_exp.prompts import load_prompts
from dartree_exp.records.folder import RunFolder
from dartree_exp.records.schema import SampleRecord
from dartree_exp.report.live import LiveLine
from dartree_exp.report.tables import run_tables
from dartree_exp.runs.arms import Arms, shared_baseline
from dartree_exp.runs.environment import environment
from dartree_exp.runs.proof import fp32_proof
from dartree_exp.runs.records import round_records, tree_records
from dartree_exp.runs.turns import decode_prompt
from dartree_exp.runs.warm_up import warm_up
from dartree_exp.trackers import make_tracker


def run(config: Config, folder: RunFolder) -> None:
    """Decode what the folder does not hold yet, then summarise all of it.

    Raises:
        RunError: a verdict is `wrong`, or no prompt could be decoded at all. The records stay.
    """
    prompts = load_prompts(config.benchmark)  # first: cheap, and may be missing
    arms = Arms.load(config)
    folder.identify(input_digests(config))
    turns = config.repeats * sum(len(prompt.turns) for prompt in prompts)
    folder.expect(turns)
    shared = shared_baseline(arms, folder.path.parent) if config.baseline == "shared" else None

    def settle_threads(measured: int) -> int:
        """One number in a run, resumed or not, and in runs that share a baseline."""
        if (held := folder.threads_of_samples()) is not None:
            return held
        return measured if shared is None else shared.agree("threads", measured)

    _, first = next(arms.fitting(prompts), (None, None))
    machine = warm_up(arms.target, arms.method, config, arms.clock, first, settle_threads)
    if shared is not None:
        shared = shared.under(threads=machine.threads, row_invariant=machine.row_invariant)
    arms = replace(arms, shared=shared, tolerance=machine.tolerance)
    folder.write_environment(environment(arms.target, arms.method, machine))
    method, console = str(config.method), Console()
    tracker = make_tracker(config, folder.path)
    summary: dict[str, Any] | None = None
    try:
        with (
            LiveLine(turns, console, folder.samples(), method) as live,
            deferred() as stop_if_asked,
        ):
            # Passes are whole, so that the repeats of one prompt lie far apart in time.
            for repeat, (index, prompt) in product(range(config.repeats), enumerate(prompts)):
                viewed = repeat == 0 and (
                    config.record.trees == "all" or index < int(config.record.trees)
                )
                stop_if_asked()
                for sample, decoded in decode_prompt(
                    arms, prompt, folder, (index + repeat) % 2 == 0, repeat
                ):
                    rounds = list(round_records(sample, decoded))
                    trees = (
                        tree_records(sample, decoded, arms.target.tokenizer.decode)
                        if viewed
                        else ()
                    )
                    folder.append(sample, rounds, trees)
                    tracker.log_sample(sample, rounds)
                    live.update(sample)
                    for note in notable(sample):
                        live.say(note)
                    stop_if_asked()
        folder.note_load()
        summary = summarise(folder.samples(), method)
        if config.proof == "fp32":
            summary["proof"] = fp32_proof(config, prompts)
        folder.write_summary(summary)
    finally:
        tracker.finish(summary)
    run_tables(folder.path, console)
    conclude(summary, folder)


def conclude(summary: dict[str, Any], folder: RunFolder) -> None:
    """DONE, or RunError: one `wrong` verdict spoils a run, since a wrong output makes its speed
    meaningless.
    """
    wrong, failed = summary["verdicts"]["wrong"], summary["failed"]
    if wrong:
        raise RunError(
            f"{wrong} of {summary['turns']} outputs are wrong (verdict_detail in samples.jsonl "
            "says why)"
        )
    proof = summary.get("proof")
    if proof and not proof["of"]:
        raise RunError("proof=fp32: no prompt fits target and drafter, so nothing was proved")
    if proof and proof["exact"] < proof["of"]:
        raise RunError(
            f"proof=fp32: {proof['of'] - proof['exact']} of {proof['of']} outputs are not plain "
            "decoding's ids"
        )
    if failed and not summary["turns"]:
        raise RunError(f"none of {failed} prompts could be decoded: {folder.samples()[0].error}")
    folder.done(f"{failed} prompts failed (see samples.jsonl)" if failed else "")


def notable(sample: SampleRecord) -> Iterator[str]:
    """What must not pass silently: an error, a fallback to plain decoding, ids that are not plain
    decoding's.
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
