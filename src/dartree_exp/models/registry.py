"""From configuration to a loaded target: embedded, toy, local folder or hub name."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from dartree_exp.errors import UserError
from dartree_exp.models.cache import check_rewindable
from dartree_exp.models.codec import ChatCodec
from dartree_exp.models.target import Target
from dartree_exp.models.toy import toy_target

if TYPE_CHECKING:
    from dartree_exp.config.schema import EngineConfig, ModelConfig

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32, "fp64": torch.float64}
TOY = "toy"

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "*.txt"]


def load_target(model: ModelConfig, engine: EngineConfig) -> Target:
    """Load the target that the configuration names, on the engine's device and dtype.

    `model.path` null: the toy target or an embedded one, fetched once by `model.name`. Otherwise a local folder, or a
    hub name. Sets torch's thread count if `engine.threads` is given.
    Raises UserError for anything the user can put right: unknown name, no such folder, no safetensors, incomplete
    weights, unsupported architecture, hub not reachable, no GPU.
    """
    if engine.threads is not None:
        torch.set_num_threads(engine.threads)
    device = resolve_device(engine.device)
    dtype = resolve_dtype(engine.dtype, device)
    if model.path is not None:
        return load_folder(_locate(model.path), model.name, dtype, device)
    if model.name == TOY:
        return toy_target(model.family or "llama", dtype, model.seed, device=device)

    from dartree_exp.models import fetch

    if model.name not in fetch.SOURCES:
        known = ", ".join([TOY, *sorted(fetch.SOURCES)])
        raise UserError(
            f"model.name={model.name}: not an embedded target ({known}); give model.path=<folder or hub name>"
        )
    return load_folder(fetch.ensure(model.name), model.name, dtype, device)


def load_folder(folder: Path, name: str, dtype: torch.dtype, device: torch.device) -> Target:
    """Load a Hugging Face folder (config.json, *.safetensors, tokenizer with a chat template) as a target.

    Raises UserError as `load_target` does.
    """
    from transformers import AutoTokenizer

    model = load_model(folder, dtype, device)
    if not any((folder / file).is_file() for file in ("tokenizer.json", "tokenizer_config.json")):
        raise UserError(f"{folder} has no tokenizer (tokenizer.json)")
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    return Target(
        model,
        name=name,
        tokenizer=ChatCodec(tokenizer),
        eos_ids=_eos_ids(model),
        weights_sha256=lambda: weights_digest(folder),
    )


def load_model(folder: Path, dtype: torch.dtype, device: torch.device | str = "cpu") -> Any:
    """The `*ForCausalLM` of a folder; the architecture is checked before any weight is read.

    Never runs code from the folder and never reads pickles. Raises UserError (missing or damaged files, tensors that
    are missing, left over or of another shape) or UnsupportedTargetError.
    """
    from safetensors import SafetensorError
    from transformers import LlamaForCausalLM, Qwen3ForCausalLM

    path = folder / "config.json"
    if not path.is_file():
        raise UserError(f"{folder} has no config.json: not a model folder")
    try:
        config = json.loads(path.read_text())
    except ValueError as error:
        raise UserError(f"{path} is not JSON: {error}") from error
    check_rewindable(SimpleNamespace(**config))
    if not any(folder.glob("*.safetensors")):
        raise UserError(f"{folder} has no *.safetensors; other weight formats are not read")

    family: Any = {"llama": LlamaForCausalLM, "qwen3": Qwen3ForCausalLM}[config["model_type"]]
    try:
        with _quiet():
            model, report = family.from_pretrained(
                folder,
                dtype=dtype,
                attn_implementation="sdpa",
                use_safetensors=True,
                local_files_only=True,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # so that they reach the report; they are refused below
            )
    except SafetensorError as error:
        raise UserError(f"a weight file of {folder} is damaged: {error}") from error
    except (OSError, RuntimeError) as error:
        raise UserError(f"{folder} could not be loaded: {error}") from error
    for problem in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if names := sorted(str(n) for n in report[problem]):
            shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
            raise UserError(f"{folder}: {problem.replace('_keys', '')} tensors: {shown}")
    return model.to(device)


def resolve_device(device: str) -> torch.device:
    """`auto`: a GPU where there is one. Raises UserError for `cuda` without a GPU."""
    available = torch.cuda.is_available()
    if device == "cuda" and not available:
        raise UserError("engine.device=cuda: torch sees no GPU; use engine.device=cpu")
    return torch.device("cuda" if available and device in ("auto", "cuda") else "cpu")


def resolve_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """`auto`: bf16 on a GPU and on CPUs with AMX or AVX512-BF16, where it is computed natively; else fp32."""
    if dtype != "auto":
        return DTYPES[dtype]
    return torch.bfloat16 if device.type == "cuda" or cpu_has_bf16() else torch.float32


def cpu_has_bf16() -> bool:
    """Whether this CPU multiplies bf16 matrices in hardware."""
    flags = torch.cpu.get_capabilities()
    return bool(flags.get("amx_bf16") or flags.get("avx512_bf16"))


def weights_digest(folder: Path) -> str:
    """sha256 of the weights: of the file where there is one, else of the lines "<sha256>  <name>" in order of name."""
    digests = []
    for file in sorted(folder.glob("*.safetensors")):
        with file.open("rb") as handle:
            digests.append((hashlib.file_digest(handle, "sha256").hexdigest(), file.name))
    if len(digests) == 1:
        return digests[0][0]
    return hashlib.sha256("".join(f"{digest}  {name}\n" for digest, name in digests).encode()).hexdigest()


@contextmanager
def _quiet() -> Iterator[None]:
    """No weight-loading bar and no report of the library's own: what is wrong becomes our error, with the names."""
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


def _eos_ids(model: Any) -> tuple[int, ...]:
    """All end ids of the generation config (a chat model often has several), else of the model's config."""
    for source in (model.generation_config, model.config):
        ids = getattr(source, "eos_token_id", None)
        if ids is not None:
            return tuple(ids) if isinstance(ids, (list, tuple)) else (ids,)
    return ()


def _locate(path: str) -> Path:
    """A local folder, or the local copy of a hub name's files."""
    folder = Path(path).expanduser()
    if folder.is_dir():
        return folder
    if not _HUB_NAME.fullmatch(path):
        raise UserError(f"model.path={path}: no such folder, and not a hub name (owner/name)")

    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(path, allow_patterns=_HUB_FILES))
    except OSError as error:  # every error of the hub client: offline, not found, gated, interrupted
        raise UserError(
            f"model.path={path}: no such folder, and the hub gave no copy ({type(error).__name__}); download it where "
            "the hub is reachable and give the folder"
        ) from error
