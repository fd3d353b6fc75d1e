"""Prompts to generate training text from: JSON lines with `id`, `domain` and `prompt` (the user's
turn).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from dartree_exp.training.corpus import read_lines
from dartree_exp.training.errors import InputError, first_line

DOMAINS = ("math", "code", "chat")


@dataclass(frozen=True)
class TrainingPrompt:
    """A user turn of one of the three domains."""

    id: str
    domain: str
    prompt: str


def load_prompts(path: Path) -> list[TrainingPrompt]:
    """All prompts of a file, in order.

    Raises:
        InputError: a line that is not such an object, an unknown domain, an empty prompt or a
            repeated id; with its number.
    """
    prompts, seen = [], set()
    for number, line in read_lines(path):
        try:
            row = json.loads(line)
            prompt = TrainingPrompt(row["id"], row["domain"], row["prompt"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(
                f"{path}, line {number}: not a prompt ({first_line(error)})"
            ) from error
        if not isinstance(prompt.id, str) or not isinstance(prompt.prompt, str):
            raise InputError(f"{path}, line {number}: id and prompt must be text")
        if prompt.domain not in DOMAINS:
            raise InputError(
                f"{path}, line {number}: domain {prompt.domain!r}; allowed: {', '.join(DOMAINS)}"
            )
        if not prompt.prompt.strip() or prompt.id in seen:
            raise InputError(f"{path}, line {number}: empty prompt or repeated id {prompt.id!r}")
        seen.add(prompt.id)
        prompts.append(prompt)
    return prompts


def load_texts(path: Path) -> list[str]:
    """The prompts of a file whose lines have `prompt`, a string, or `turns`, a list of strings (a
    benchmark's rows).

    Raises:
        InputError: a line with neither; with its number.
    """
    texts: list[str] = []
    for number, line in read_lines(path):
        try:
            row = json.loads(line)
            found = [row["prompt"]] if "prompt" in row else row["turns"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(
                f"{path}, line {number}: has neither `prompt` nor `turns` ({first_line(error)})"
            ) from error
        if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
            raise InputError(
                f"{path}, line {number}: `prompt` must be a string, `turns` a list of strings"
            )
        texts += found
    return texts


def without(prompts: list[TrainingPrompt], excluded: set[str]) -> list[TrainingPrompt]:
    """The prompts whose text, spaces and case aside, is none of `excluded` (benchmark prompts stay
    out of training).
    """
    banned = {fold(text) for text in excluded}
    return [p for p in prompts if fold(p.prompt) not in banned]


def fold(text: str) -> str:
    """Lower case, runs of white space as one space."""
    return " ".join(text.lower().split())
