"""Decoding the turns of a prompt."""

from __future__ import annotations

from collections.abc import Iterator

from dartree_exp.assemble import make_sampler
from dartree_exp.decode import Decoded
from dartree_exp.errors import RunError
from dartree_exp.prompts import Prompt
from dartree_exp.records.folder import RunFolder
from dartree_exp.records.schema import SampleRecord
from dartree_exp.runs.arms import Arms, prompt_sha256
from dartree_exp.runs.records import sample_record


def decode_prompt(
    arms: Arms, prompt: Prompt, folder: RunFolder, ar_first: bool, repeat: int = 0
) -> Iterator[tuple[SampleRecord, Decoded]]:
    """Decode the turns of a prompt that are not on disk yet. The history is plain decoding's
    answer, the same for every method.
    """
    done = {
        sample.turn: sample
        for sample in folder.samples()
        if (sample.id, sample.repeat) == (prompt.id, repeat)
    }
    messages: list[dict[str, str]] = []
    for turn, text in enumerate(prompt.turns):
        messages.append({"role": "user", "content": text})
        sample = done.get(turn)
        ids = arms.encode(messages)
        if sample is not None and sample.prompt_sha256 != prompt_sha256(ids):
            raise RunError(
                f"{folder.path}: {prompt.id} turn {turn} was decoded from another prompt; "
                "force=true runs again"
            )
        if sample is None:
            sample, decoded = decode_turn(arms, prompt, turn, ids, ar_first, repeat)
            yield sample, decoded
        messages.append(
            {"role": "assistant", "content": arms.target.tokenizer.decode(sample.ar_ids)}
        )


def decode_turn(
    arms: Arms, prompt: Prompt, turn: int, ids: list[int], ar_first: bool, repeat: int = 0
) -> tuple[SampleRecord, Decoded]:
    """Decode one turn by both arms. NaN logits or a prompt that is too long become an error
    record.
    """
    sampler = make_sampler(arms.config.decoding, f"{prompt.id}/{turn}")
    answers = arms.answer(ids, sampler, ar_first)
    return sample_record(arms, prompt, turn, ids, answers, repeat), answers.drafted
