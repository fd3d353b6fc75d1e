"""One run: every prompt decoded by plain decoding and by the method, interleaved, judged,
recorded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from rich.console import Console

from dartree_exp.assemble import clock_factory, load_parts, make_baseline, make_rule, make_sampler
from dartree_exp.config.schema import Config
from dartree_exp.console.terminate import deferred
from dartree_exp.decode import Decoded, Method, autoregress, speculate
from dartree_exp.engines.target import Target
from dartree_exp.errors import RunError
from dartree_exp.inputs.digests import input_digests
from dartree_exp.metrics.measures import is_degenerate
from dartree_exp.metrics.summary import summarise
from dartree_exp.prompts import Prompt, load_prompts
from dartree_exp.records.baseline import SharedBaseline
from dartree_exp.records.folder import RunFolder
from dartree_exp.records.schema import RoundRecord, SampleRecord
from dartree_exp.records.trees import TreeRecord, branches, tree_record
from dartree_exp.report.live import LiveLine
from dartree_exp.report.tables import run_tables
from dartree_exp.runs.proof import fp32_proof
from dartree_exp.runs.warm_up import environment, warm_up
from dartree_exp.trackers import make_tracker
from dartree_exp.verify.lossless import Verdict, judge
from dartree_exp.verify.sampling import Sampler
from dartree_exp.verify.stopping import StopRule
from dartree_exp.verify.walk import NonFiniteLogitsError

CONTEXT_TOKENS = 32  # of the answer, kept before the root of a recorded tree


class PromptTooLongError(ValueError):
    """Prompt and answer do not fit the target's positions."""


@dataclass(frozen=True)
class Arms:
    """What decodes a prompt: the target and the method, under one configuration."""

    config: Config
    target: Target
    method: Method
    rule: StopRule
    clock: Callable[[], Any]
    shared: SharedBaseline | None = None
    tolerance: float = 0.0  # of near ties, in logits

    def plain(self, ids: list[int], sampler: Sampler) -> Decoded:
        """Plain decoding, or its stored answer where the sweep shares one."""
        if self.shared is None:
            return autoregress(self.target, ids, sampler, self.rule, self.clock())
        digest = prompt_sha256(ids)
        stored = self.shared.get(sampler.sample_id, digest)
        if stored is None:
            decoded = autoregress(self.target, ids, sampler, self.rule, self.clock())
            stored = {"ids": decoded.ids, "finish": decoded.finish, "time": decoded.time}
            stored = self.shared.put(sampler.sample_id, digest, stored)
        return Decoded(stored["ids"], stored["finish"], [], stored["time"])

    def drafted(self, ids: list[int], sampler: Sampler) -> Decoded:
        return speculate(self.target, self.method, ids, sampler, self.rule, self.clock())


def prompt_sha256(ids: list[int]) -> str:
    """Hex digest of the rendered prompt: its ids as little-endian int64."""
    return hashlib.sha256(np.asarray(ids, dtype="<i8").tobytes()).hexdigest()


def prepare(config: Config) -> tuple[list[Prompt], Arms]:
    """Prompts first (cheap, may be missing), then the models."""
    prompts = load_prompts(config.benchmark)
    target, method = load_parts(config)
    rule, clock = make_rule(config.decoding, target), clock_factory(config, target)
    return prompts, Arms(config, target, method, rule, clock)


def decode_turn(
    arms: Arms, prompt: Prompt, turn: int, ids: list[int], ar_first: bool, repeat: int = 0
) -> tuple[SampleRecord, Decoded]:
    """Decode one turn by both arms and judge the method's ids; what the logits or the length forbid
    becomes a record.
    """
    sampler = make_sampler(arms.config.decoding, f"{prompt.id}/{turn}")
    plain, drafted, verdict, error = Decoded(), Decoded(), Verdict(None), None
    fallback = arms.method.fallback(len(ids), arms.rule.max_new_tokens)
    try:
        check_length(arms, ids)
        if ar_first or fallback:
            plain = arms.plain(ids, sampler)
        drafted = plain if fallback else arms.drafted(ids, sampler)
        if not (ar_first or fallback):
            plain = arms.plain(ids, sampler)
        verdict = judge(
            arms.target, ids, drafted.ids, plain.ids, sampler, arms.rule, arms.tolerance
        )
    except (NonFiniteLogitsError, PromptTooLongError) as caught:
        error, drafted = {"type": type(caught).__name__, "message": str(caught)}, Decoded()
        # plain decoding gave no answer either: the prompt failed, and counts as that alone
        fallback = None
    ar = (
        {
            "emitted": len(plain.ids),
            "prefill": plain.time["prefill"],
            "decode": plain.time["decode"],
        }
        if plain.time
        else None
    )
    record = SampleRecord(
        id=prompt.id,
        category=prompt.category,
        turn=turn,
        prompt_sha256=prompt_sha256(ids),
        prompt_tokens=len(ids),
        method=str(arms.config.method),
        ids=drafted.ids,
        text=arms.target.tokenizer.decode(drafted.ids),
        finish=drafted.finish,
        ar_ids=plain.ids,
        verdict=verdict.verdict,
        verdict_detail=verdict.detail,
        emitted=len(drafted.ids),
        rounds=len(drafted.rounds),
        acceptance_lengths=[r.tokens_advanced for r in drafted.rounds],
        emitted_per_round_counts=[r.emitted for r in drafted.rounds],
        time=drafted.time,
        ar=ar,
        fallback=fallback,
        error=error,
        degenerate=is_degenerate(drafted.ids),
        enable_thinking=arms.config.decoding.enable_thinking,
        repeat=repeat,
    )
    return record, drafted


def check_length(arms: Arms, ids: list[int]) -> None:
    """Raise PromptTooLongError where prompt and answer do not fit the target's positions."""
    need, have = len(ids) + arms.rule.max_new_tokens, arms.target.max_positions
    if need > have:
        raise PromptTooLongError(
            f"prompt of {len(ids)} ids and decoding.max_new_tokens={arms.rule.max_new_tokens} need "
            f"{need} positions, "
            f"the target has {have}"
        )


def round_records(sample: SampleRecord, decoded: Decoded) -> Iterator[RoundRecord]:
    """One line per round of a sample."""
    for r in decoded.rounds:
        places, offered = branches(r.tree.parents.tolist(), r.tree.scores.tolist(), r.accepted)
        ranks = None if r.tree.ranks is None else r.tree.ranks[r.accepted[1:]].tolist()
        yield RoundRecord(
            id=sample.id,
            turn=sample.turn,
            round=r.index,
            start=r.start,
            root=int(r.tree.tokens[0]),
            accepted=r.accepted[1:],
            accepted_tokens=r.accepted_tokens,
            accepted_ranks=ranks,
            bonus=r.bonus,
            tree_size=r.tree.num_nodes,
            supertree_size=r.tree.supertree_size,
            tree_depth=int(r.tree.depths.max()),
            tokens_advanced=r.tokens_advanced,
            emitted=r.emitted,
            time=r.time,
            accepted_places=places,
            path_children=offered,
            repeat=sample.repeat,
        )


def tree_records(
    sample: SampleRecord, decoded: Decoded, decode: Callable[[list[int]], str]
) -> Iterator[TreeRecord]:
    """The draft tree of every round of a sample, for the viewer. decode: ids -> text."""
    for r in decoded.rounds:
        before = r.start - sample.prompt_tokens  # of the answer's ids, the root left out
        yield tree_record(
            sample, r, decode, context=sample.ids[max(0, before - CONTEXT_TOKENS) : before]
        )


def run(config: Config, folder: RunFolder) -> None:
    """Decode what the folder does not hold yet, then summarise all of it.

    Raises:
        RunError: a verdict is `wrong`, or no prompt could be decoded at all. The records stay.
    """
    prompts, arms = prepare(config)
    folder.identify(input_digests(config))
    turns = config.repeats * sum(len(prompt.turns) for prompt in prompts)
    folder.expect(turns)
    shared = (
        make_baseline(config, arms.target, folder.path.parent)
        if config.baseline == "shared"
        else None
    )

    def settle_threads(measured: int) -> int:
        """One number in a run, resumed or not, and in runs that share a baseline."""
        if (held := folder.threads_of_samples()) is not None:
            return held
        return measured if shared is None else shared.agree("threads", measured)

    first = next(fitting(arms, prompts), None)
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


def decode_prompt(
    arms: Arms, prompt: Prompt, folder: RunFolder, ar_first: bool, repeat: int = 0
) -> Iterator[tuple[SampleRecord, Decoded]]:
    """The turns of a prompt that are not on disk yet; history is plain decoding's answer, the same
    for every method.
    """
    done = {
        sample.turn: sample
        for sample in folder.samples()
        if (sample.id, sample.repeat) == (prompt.id, repeat)
    }
    codec = arms.target.tokenizer
    messages: list[dict[str, str]] = []
    for turn, text in enumerate(prompt.turns):
        messages.append({"role": "user", "content": text})
        sample = done.get(turn)
        ids = codec.encode_chat(messages, arms.config.decoding.enable_thinking)
        if sample is not None and sample.prompt_sha256 != prompt_sha256(ids):
            raise RunError(
                f"{folder.path}: {prompt.id} turn {turn} was decoded from another prompt; "
                "force=true runs again"
            )
        if sample is None:
            sample, decoded = decode_turn(arms, prompt, turn, ids, ar_first, repeat)
            yield sample, decoded
        messages.append({"role": "assistant", "content": codec.decode(sample.ar_ids)})


def fitting(arms: Arms, prompts: Iterable[Prompt]) -> Iterator[list[int]]:
    """Ids of the first turn of each prompt that passes the length check."""
    for prompt in prompts:
        message = {"role": "user", "content": prompt.turns[0]}
        ids = arms.target.tokenizer.encode_chat([message], arms.config.decoding.enable_thinking)
        with suppress(PromptTooLongError):
            check_length(arms, ids)
            yield ids
