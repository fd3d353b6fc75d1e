"""From configuration to a loaded target: embedded, toy, local folder or hub name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import torch

from dartree_exp.engines.forward import HALF
from dartree_exp.engines.target import Target
from dartree_exp.errors import UserError
from dartree_exp.models.codec import ChatCodec
from dartree_exp.models.digests import digest_of_files
from dartree_exp.models.folder import EMBED, check_sizes, read_config, read_eos
from dartree_exp.models.hub import folder_or_snapshot
from dartree_exp.models.toy import toy_target
from dartree_exp.models.weight_files import INDEX, headers, non_finite, weight_files
from dartree_exp.records.reading import read_object, read_text

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerBase, Qwen3ForCausalLM

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32, "fp64": torch.float64}
TOY = "toy"
T = TypeVar("T")
ALL_THREADS = torch.get_num_threads()
"""torch's default, before any run has changed it."""

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
)
HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "*.txt"]


class ModelSettings(Protocol):
    """The keys of the group `model` that choose a target."""

    name: str
    path: str | None
    family: str | None
    seed: int


class EngineSettings(Protocol):
    """The keys of the group `engine` that are used to load a target."""

    dtype: str
    device: str
    threads: int | None
    attention: str
    name: str | None


def load_target(model: ModelSettings, engine: EngineSettings) -> Target:
    """Load the configured target with the engine's device and dtype.

    `model.path`: a local folder or a hub name; null: the toy target, or an embedded one, fetched
    once by `model.name`. Sets torch's thread count (`engine.threads`, null: all) and the attention
    (`engine.attention`). Raises UserError: unknown name, no such folder, no safetensors, incomplete
    weights, unsupported architecture, hub not reachable, no GPU.
    """
    torch.set_num_threads(ALL_THREADS if engine.threads is None else engine.threads)
    device = resolve_device(engine.device)
    dtype = resolve_dtype(engine.dtype, device)
    target = _load(model, dtype, device, engine.name)
    target.row_invariant = engine.attention == "row_invariant" or (
        engine.attention == "auto" and dtype in HALF and device.type == "cpu"
    )
    return target


def _load(
    model: ModelSettings, dtype: torch.dtype, device: torch.device, engine: str | None
) -> Target:
    if model.path is not None:
        folder = folder_or_snapshot("model.path", model.path, HUB_FILES)
        return load_folder(folder, model.name, dtype, device, engine)
    if model.name == TOY:
        return toy_target(model.family or "llama", dtype, model.seed, device=device, engine=engine)

    from dartree_exp.models import fetch

    if model.name not in fetch.SOURCES:
        known = ", ".join([TOY, *sorted(fetch.SOURCES)])
        raise UserError(
            f"model.name={model.name}: not an embedded target ({known}); set model.path=<folder "
            "or hub name>"
        )
    return load_folder(fetch.ensure(model.name), model.name, dtype, device, engine)


def load_folder(
    folder: Path,
    name: str,
    dtype: torch.dtype,
    device: torch.device,
    engine: str | None = "eager",
) -> Target:
    """Load a Hugging Face folder (config.json, *.safetensors, tokenizer with a chat template).

    The small files are checked before the weights are read. Raises UserError as `load_target` does.
    """
    config, rows = check_folder(folder)
    codec = load_codec(folder, rows)
    eos_ids = read_eos(folder, config, rows)
    own = codec.eos_id
    if own is not None and own not in eos_ids:
        print(f"dartree_exp: note: {folder}: {_more_eos(codec, own, eos_ids)}", file=sys.stderr)
        eos_ids = (*eos_ids, own)
    model = load_weights(folder, config, dtype, device)
    return Target(
        model,
        name=name,
        tokenizer=codec,
        eos_ids=eos_ids,
        weights_sha256=lambda: weights_digest(folder),
        engine=engine,
    )


def check_folder(folder: Path) -> tuple[dict[str, Any], int]:
    """The config, checked against the headers of the weight files, and the rows of the embedding.

    The check limits the memory needed to build the model. Raises UserError or
    UnsupportedTargetError.
    """
    config = read_config(folder)
    if not any(folder.glob("*.safetensors")) and not (folder / INDEX).is_file():
        raise UserError(f"{folder} has no *.safetensors; other weight formats are not supported")
    stored = headers(weight_files(folder))
    check_sizes(folder, config, stored)
    return config, stored[EMBED].shape[0]


def load_codec(folder: Path, rows: int) -> ChatCodec:
    """The tokenizer of a folder, tried on one message. rows: of the embedding. Raises UserError."""
    codec = ChatCodec(load_tokenizer(folder), str(folder), rows)
    ids = codec.encode_chat([{"role": "user", "content": "Hello"}])
    library_call(f"the tokenizer files of {folder} cannot be used", lambda: codec.decode(ids))
    return codec


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """The library's tokenizer of a folder. Raises UserError."""
    from transformers import AutoTokenizer

    if not any((folder / file).is_file() for file in _TOKENIZER_FILES[:2]):
        raise UserError(f"{folder} has no tokenizer (tokenizer.json)")
    for name in _TOKENIZER_FILES:
        if (folder / name).is_file():
            read_object(folder / name)
    if (folder / "chat_template.jinja").is_file():
        read_text(folder / "chat_template.jinja")
    with _quiet():
        return library_call(
            f"the tokenizer files of {folder} cannot be used",
            lambda: AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            ),
        )


def load_weights(
    folder: Path, config: dict[str, Any], dtype: torch.dtype, device: torch.device | str = "cpu"
) -> LlamaForCausalLM | Qwen3ForCausalLM:
    """The model of a folder that passed `check_folder`.

    Never runs code from the folder and never reads pickles. Raises UserError for tensors that are
    missing, unexpected, of the wrong shape or not finite.
    """
    from transformers import LlamaForCausalLM, Qwen3ForCausalLM

    family: Any = {"llama": LlamaForCausalLM, "qwen3": Qwen3ForCausalLM}[config["model_type"]]
    with _quiet():
        model, report = library_call(
            f"{folder} could not be loaded",
            lambda: family.from_pretrained(
                folder,
                dtype=dtype,
                attn_implementation="sdpa",
                use_safetensors=True,
                local_files_only=True,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # reported, and refused below
            ),
        )
    for problem in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if names := sorted(str(n) for n in report[problem]):
            shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
            raise UserError(f"{folder}: {problem.replace('_keys', '')} tensors: {shown}")
    model = model.to(device)
    for name, weight in model.named_parameters():
        if (what := non_finite(weight)) is not None:
            raise UserError(f"{folder}: tensor {name} holds {what}")
    return model


def library_call(what: str, call: Callable[[], T]) -> T:
    """The result of `call`, or UserError with the first line of any error from the library.

    Catches BaseException, because a panic of the tokenizers library is not an Exception.
    """
    try:
        return call()
    except (UserError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        reason = next(iter(str(error).strip().splitlines()), "")
        raise UserError(
            f"{what}: {type(error).__name__}{': ' if reason else ''}{reason}"
        ) from error


def resolve_device(device: str) -> torch.device:
    """`auto`: a GPU if there is one. Raises UserError for `cuda` without a GPU."""
    available = torch.cuda.is_available()
    if device == "cuda" and not available:
        raise UserError("engine.device=cuda: torch sees no GPU; use engine.device=cpu")
    return torch.device("cuda" if available and device in ("auto", "cuda") else "cpu")


def resolve_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """`auto`: bf16 on a GPU and on CPUs with AMX or AVX512-BF16, else fp32."""
    if dtype != "auto":
        return DTYPES[dtype]
    return torch.bfloat16 if device.type == "cuda" or cpu_has_bf16() else torch.float32


def cpu_has_bf16() -> bool:
    """Whether this CPU multiplies bf16 matrices in hardware."""
    flags = torch.cpu.get_capabilities()
    return bool(flags.get("amx_bf16") or flags.get("avx512_bf16"))


def weights_digest(folder: Path) -> str:
    """sha256 of the weights: of a single file, else of the lines "<sha256>  <name>", by name."""
    return digest_of_files(sorted(folder.glob("*.safetensors")))


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the library's progress bar and report; errors are raised by our own code."""
    from transformers.utils import logging

    bar, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()


def _more_eos(codec: ChatCodec, own: int, eos_ids: Sequence[int]) -> str:
    token = codec.library.convert_ids_to_tokens(own)
    others = ", ".join(repr(codec.library.convert_ids_to_tokens(i)) for i in eos_ids) or "none"
    return (
        f"the end token is {token!r} in the tokenizer and {others} in the generation config; both "
        "end an answer"
    )
