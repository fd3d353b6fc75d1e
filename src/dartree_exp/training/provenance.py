"""Records of how text, features and weights came to be, written when it happened and carried along
to the card.

`generate` writes one beside its text, `capture` puts it with its own into the folder of features,
`train` into every checkpoint. A card says what these records say; what has no record it calls not
recorded. Files are named without their folders.
"""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path
from typing import Any

from dartree_exp.engines.target import Target
from dartree_exp.errors import UserError
from dartree_exp.models.fetch import SOURCES, cache_folder, sha256_of
from dartree_exp.records.environment import cpu_description, git_commit
from dartree_exp.records.files import write_json
from dartree_exp.records.reading import read_object
from dartree_exp.training.errors import InputError

FEATURES_RECORD = "about.json"


def target_record(target: Target) -> dict[str, Any]:
    """`name`, `weights_sha256` and, for the embedded target, `source`: the file its weights are
    converted from.
    """
    from dartree_exp.models.registry import weights_digest

    record = {"name": target.name, "weights_sha256": target.weights_sha256}
    source, folder = SOURCES.get(target.name), cache_folder() / target.name
    if source and folder.is_dir() and weights_digest(folder) == target.weights_sha256:
        record["source"] = (
            f"{source.gguf_name} of {source.package}=={source.version}, sha256 {source.sha256}"
        )
    return record


def machine() -> dict[str, Any]:
    """The processor and its usable cores, and the version of the code."""
    return {"cpu": cpu_description(), "code": git_commit(Path(__file__).parents[1])}


def with_machine(machines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """`machines` and this one, where the last was another."""
    mine = machine()
    return machines if machines and machines[-1] == mine else [*machines, mine]


def file_record(path: Path) -> dict[str, Any]:
    return {"file": path.name, "sha256": sha256_of(path)}


def content_sha256(path: Path) -> str:
    """sha256 of a text, of what is inside where it is gzipped."""
    if path.suffix != ".gz":
        return sha256_of(path)
    digest = hashlib.sha256()
    with gzip.open(path, "rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


def text_record_path(text: Path) -> Path:
    """The record of a text: `x.jsonl` and `x.jsonl.gz` share `x.jsonl.about.json`."""
    plain = text.with_suffix("") if text.suffix == ".gz" else text
    return plain.with_name(plain.name + ".about.json")


def begin_text(
    text: Path, settings: dict[str, Any], prompts: dict[str, Any]
) -> dict[str, Any] | None:
    """The record of a text that is about to be written or continued; None where its first lines
    have no record.

    settings: what must be the same for all lines. prompts: this call's prompts, added to the
    record's. Raises UserError where the text was begun with other settings.
    """
    path = text_record_path(text)
    if not text.exists() or not text.stat().st_size:
        record = {**settings, "prompts": [], "machines": []}
    elif not path.exists():
        return None
    else:
        record = read_object(path)
        refuse_changes(text, record, settings)
    record["prompts"] = [p for p in record["prompts"] if p["sha256"] != prompts["sha256"]] + [
        prompts
    ]
    record["machines"] = with_machine(record["machines"])
    record.pop("content_sha256", None)
    write_json(path, record)
    return record


def finish_text(text: Path, record: dict[str, Any]) -> None:
    """Bind the record to the text as it is now."""
    write_json(text_record_path(text), {**record, "content_sha256": content_sha256(text)})


def text_record(text: Path) -> dict[str, Any] | None:
    """The record of a text; None where there is none or it is of another content, such as an
    unfinished one.
    """
    path = text_record_path(text)
    if not path.exists():
        return None
    record = read_object(path)
    return record if record.get("content_sha256") == content_sha256(text) else None


def begin_features(folder: Path, text: Path, settings: dict[str, Any]) -> None:
    """Write the record of a folder of features, or check that a folder with one is continued as it
    was begun.

    Folders from before there were records stay without one. Raises UserError where text or settings
    are others.
    """
    path = folder / FEATURES_RECORD
    wanted = {"text": file_record(text), **settings}
    if path.exists():
        refuse_changes(folder, read_object(path), wanted)
    elif not any(folder.glob("shard_*.safetensors")):
        write_json(path, {**wanted, "generation": text_record(text)})


def features_record(folder: Path) -> dict[str, Any]:
    """What `capture` recorded. Raises UserError."""
    path = folder / FEATURES_RECORD
    if not path.exists():
        raise InputError(f"{folder}: has no {FEATURES_RECORD}; run dartree_exp.training.capture")
    record = read_object(path)
    if missing := {"text", "target", "taps", "holdout", "seed"} - record.keys():
        raise InputError(f"{path}: lacks {', '.join(sorted(missing))}; capture into a new folder")
    return record


def refuse_changes(
    what: Path, record: dict[str, Any], settings: dict[str, Any], advice: str = ""
) -> None:
    """Raises UserError that names the settings which `record` has otherwise."""
    changed = [key for key in settings if record.get(key) != settings[key]]
    if changed:
        shown = ", ".join(f"{key} = {record.get(key)}, now {settings[key]}" for key in changed)
        raise UserError(f"{what}: was begun with other settings: {shown}{advice}")
