"""The loops that benchmarks/peers.py compares ours with: transformers' own, and an adapter's."""

from __future__ import annotations

import importlib.util
import sys
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from dartree_exp.config.schema import Config
from dartree_exp.errors import UserError
from dartree_exp.models.registry import check_folder, load_target, load_weights

Foreign = Callable[[Any, Any, list[int], int], list[int]]


def load_adapter(file: Path, folder: Path | None) -> Foreign:
    """The function `decode` of a file; `folder` is put on sys.path first. Raises UserError."""
    if folder is not None:
        if not folder.is_dir():
            raise UserError(f"--path {folder}: no such folder")
        sys.path.insert(0, str(folder.resolve()))
    if not file.is_file():
        raise UserError(f"--adapter {file}: no such file")
    spec = importlib.util.spec_from_file_location(f"adapter_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise UserError(f"--adapter {file}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UserError(f"--adapter {file}: {type(error).__name__}: {error}") from error
    decode: Foreign | None = getattr(module, "decode", None)
    if not callable(decode):
        raise UserError(
            f"--adapter {file}: has no function decode(model, tokenizer, prompt_ids, "
            "max_new_tokens)"
        )
    return decode


def library_peers(
    config: Config, names: list[str], arguments: Namespace, foreign: Foreign | None
) -> dict[str, tuple[str, Any]]:
    """Title and loop of each peer that runs on the library's model; {} if none is wanted.

    Loads the model of `config` in the library's own classes and attention, apart from ours. Raises
    UserError for an assistant or a number of layers that cannot be used.
    """
    from transformers import GenerationConfig

    wanted = set(names) & {"generate", "lookup", "assisted", "adapter"}
    if not wanted:
        return {}
    engine = replace(config.engine, name="eager", attention="library")
    target = load_target(config.model, engine)
    model: Any = target._model
    ends = list(target.eos_ids)
    model.generation_config = GenerationConfig(
        do_sample=False, use_cache=True, eos_token_id=ends, pad_token_id=ends[0]
    )
    cap = config.decoding.max_new_tokens

    def generate(ids: list[int], sample: str, **more: Any) -> list[int]:
        prompt = torch.tensor([ids], device=target.device)
        output = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=cap, **more
        )
        answer: list[int] = output[0, len(ids) :].tolist()
        return answer

    peers: dict[str, tuple[str, Any]] = {
        "generate": ("generate", generate),
        "lookup": (
            f"generate, prompt lookup of {arguments.lookup}",
            partial(generate, prompt_lookup_num_tokens=arguments.lookup),
        ),
    }
    if "assisted" in wanted:
        title, drafting = assisting(model, arguments, config)
        peers["assisted"] = (f"generate, assisted by {title}", partial(generate, **drafting))
    if foreign is not None:
        tokenizer = getattr(target.tokenizer, "library", target.tokenizer)
        peers["adapter"] = (
            arguments.adapter.stem,
            lambda ids, sample: checked(foreign(model, tokenizer, list(ids), cap)),
        )
    return peers


def checked(answer: object) -> list[int]:
    """An adapter's answer; raises UserError if it is not a list of ids."""
    if not isinstance(answer, list) or not all(type(token) is int for token in answer):
        raise UserError(f"--adapter: decode must return a list of int, got {answer!r:.60}")
    return answer


def assisting(model: Any, arguments: Namespace, config: Config) -> tuple[str, dict[str, Any]]:
    """What drafts in assisted generation: its title and the options of `generate`."""
    if arguments.assistant is None:
        layers = model.config.num_hidden_layers
        if not 0 < arguments.early_exit < layers:
            raise UserError(f"--early-exit {arguments.early_exit}: allowed: 1..{layers - 1}")
        title = f"its first {arguments.early_exit} layers"
        return title, {"assistant_early_exit": arguments.early_exit}
    if not arguments.assistant.is_dir():
        raise UserError(f"--assistant {arguments.assistant}: no such folder")
    described, _ = check_folder(arguments.assistant)
    if described["vocab_size"] != model.config.vocab_size:
        raise UserError(
            f"--assistant {arguments.assistant}: {described['vocab_size']} token ids, the target "
            f"has {model.config.vocab_size}; a model with the target's tokenizer is needed"
        )
    assistant = load_weights(arguments.assistant, described, model.dtype, model.device)
    return arguments.assistant.name, {"assistant_model": assistant}
