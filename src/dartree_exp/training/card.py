"""The card of exported weights: `python -m dartree_exp.training.card --drafter FOLDER --accuracy A
--validation V --out CARD`.

`card.json` says what the weights were trained on and how well they do; `card.md` is the same for
people. `export` writes both from the run's records. This command writes them again, with what
`training.validate` (--accuracy) and `training.tau` (--validation) measured of exactly these
weights.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from dartree_exp.drafters.medusa.checkpoint import WEIGHTS as MEDUSA_WEIGHTS
from dartree_exp.errors import UserError
from dartree_exp.models.fetch import sha256_of
from dartree_exp.models.weight_files import WEIGHTS, headers
from dartree_exp.records.files import iter_lines, write_atomic, write_json
from dartree_exp.records.layout import CURVE
from dartree_exp.records.reading import read_object
from dartree_exp.training.card_text import render
from dartree_exp.training.command import Parser, output, run
from dartree_exp.training.corpus import load_samples, split_holdout
from dartree_exp.training.objective import objective_of
from dartree_exp.training.settings import corrects, from_json
from dartree_exp.training.state import require_state

CARD = "card.json"
_DTYPES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}
MEASURED = {"accuracy": "training.validate", "validation": "training.tau"}


def stages(run: Path) -> list[dict[str, Any]]:
    """What each stage did, first stage first; a checkpoint names the run or exported folder that it
    was started from.

    What a checkpoint cannot know, such as settings changed at a resume, is taken from the run's
    `notes.txt`, if it has one.
    """
    if (run / CARD).exists():  # exported: a run took its backbone
        return [s for s in read_card(run)["stages"] if not corrects(s["stage"])]
    meta = require_state(run)[1]
    curve = list(iter_lines(run / CURVE))
    if not curve:
        raise UserError(f"{run}: no {CURVE}, the run was not validated yet")
    mine = {
        "stage": meta["settings"]["stage"],
        "settings": meta["settings"],
        "objective": meta.get("objective") or objective_of(from_json(meta["settings"])[0]),
        "steps": meta["step"],
        "minutes": round(meta["seconds"] / 60, 1),
        "workers": meta["workers"],
        "machines": meta.get("machines"),
        "samples": meta["samples"],
        "tokens": meta.get("tokens"),
        "blocks": meta["blocks"],
        "notes": (run / "notes.txt").read_text().strip() if (run / "notes.txt").exists() else None,
        "curve": curve,
    }
    return [*(stages(Path(meta["init"])) if meta.get("init") else []), mine]


def read_card(folder: Path) -> dict[str, Any]:
    """The card.json of an exported folder. Raises UserError."""
    card = read_object(folder / CARD)
    if missing := {"stages", "weights", "parameters", "target", "data"} - card.keys():
        raise UserError(f"{folder / CARD}: lacks {', '.join(sorted(missing))}; export again")
    return card


def data_card(
    data: Path, holdout: int, seed: int, recorded: dict[str, Any] | None
) -> dict[str, Any]:
    """Which text, by hash, and which samples were held out.

    recorded: the run's own record of its text and hold-out, which then counts; None: holdout and
    seed are believed. Raises UserError for another text than the recorded one.
    """
    digest = sha256_of(data)
    if recorded is not None:
        if digest != recorded["text"]["sha256"]:
            raise UserError(
                f"--data {data}: not the text this run was trained on, {recorded['text']['file']}"
            )
        holdout, seed = recorded["holdout"], recorded["seed"]
    train, held = split_holdout(load_samples(data), holdout, seed)
    domains = sorted({s.domain for s in train})
    return {
        "file": data.name,
        "sha256": digest,
        "samples": {d: sum(s.domain == d for s in train) for d in domains},
        "output_tokens": sum(len(s.output_ids) for s in train),
        "held_out": sorted(s.id for s in held),
        "record": recorded,
    }


def weights_card(folder: Path) -> dict[str, Any]:
    """The weights file of a drafter folder: name, size, sha256, and dtype of its floats."""
    weights = folder / weights_file(folder)
    found = {header.dtype for header in headers([weights]).values()}
    return {
        "file": weights.name,
        "bytes": weights.stat().st_size,
        "sha256": sha256_of(weights),
        "dtype": ", ".join(name for key, name in _DTYPES.items() if key in found),
    }


def weights_file(folder: Path) -> str:
    """The name of the weights file of a drafter folder."""
    return MEDUSA_WEIGHTS if (folder / MEDUSA_WEIGHTS).is_file() else WEIGHTS


def add_measured(card: dict[str, Any], key: str, path: Path, weights: list[str]) -> None:
    """Put a measurement into the card. Raises UserError where it is of other weights or does not
    say of which.
    """
    measured = read_object(path)
    if measured.get("weights") != weights:
        raise UserError(
            f"--{key} {path}: was not measured on these weights; run {MEASURED[key]} on this folder"
        )
    card[key] = measured


def write_card(folder: Path, card: dict[str, Any]) -> None:
    write_json(folder / CARD, card)
    write_atomic(folder / "card.md", render(card))


def main(argv: list[str] | None = None) -> int:
    parser = Parser("card", __doc__, "--drafter drafter --accuracy accuracy.json --out drafter")
    parser.add_argument(
        "--drafter", type=Path, required=True, help="exported folder with a card.json"
    )
    parser.add_argument(
        "--accuracy", type=Path, help="JSON of `dartree_exp.training.validate --out`"
    )
    parser.add_argument("--validation", type=Path, help="JSON of `dartree_exp.training.tau --out`")
    parser.add_argument(
        "--quote", nargs="*", help="sentences from the README of the text, quoted as such"
    )
    parser.add_argument(
        "--out", type=output, required=True, help="folder for card.json and card.md"
    )
    args = parser.parse_args(argv)
    card = read_card(args.drafter)
    file = weights_file(args.drafter)
    if sha256_of(args.drafter / file) != card["weights"]["sha256"]:
        raise UserError(f"{args.drafter}: {CARD} belongs to other weights than {file}")
    card["weights"] = weights_card(args.drafter)
    if (
        card.pop("summary", None) is not None
    ):  # an older card, whose name is that of the folder it was exported to
        card.pop("name", None)
    for stage in card[
        "stages"
    ]:  # cards from before objectives were recorded: their settings say it
        stage.setdefault("objective", objective_of(from_json(stage["settings"])[0]))
    from dartree_exp.training.exported import weights_of

    for key in MEASURED:
        if getattr(args, key):
            add_measured(card, key, getattr(args, key), weights_of(args.drafter))
    if args.quote is not None:
        card["data"]["quotes"] = args.quote
    args.out.mkdir(parents=True, exist_ok=True)
    write_card(args.out, card)
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
