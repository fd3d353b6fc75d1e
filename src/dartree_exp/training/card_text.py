"""A card in Markdown. Every sentence says what a record in the card says, or that there is no
record.
"""

from __future__ import annotations

from typing import Any

from dartree_exp.config.training import ON_POLICY
from dartree_exp.drafters.heads.spec import HEADS
from dartree_exp.drafters.spec import FAMILIES
from dartree_exp.training.objective import sentences
from dartree_exp.training.settings import corrects, from_json


def render(card: dict[str, Any]) -> str:
    """The card in Markdown."""
    lines = [f"# {title(card)}", "", summary(card), "", *_facts(card), ""]
    if card.get("accuracy"):
        lines += _accuracy(card["accuracy"])
    for stage in card["stages"]:
        lines += _stage(stage)
    if card.get("validation"):
        lines += _validation(card["validation"])
    return "\n".join(lines).rstrip() + "\n"


def title(card: dict[str, Any]) -> str:
    """What the weights are, or the name given at the export."""
    if card.get("name"):
        return str(card["name"])
    head = trained_head(card)
    if head is None:
        return str(FAMILIES[family(card)].trained)
    what = HEADS[head].meaning
    return f"{what[0].upper()}{what[1:]}" + (
        "" if "backbone" in card else " with a block-diffusion backbone (DFlash)"
    )


def family(card: dict[str, Any]) -> str:
    """`training.family` of the last stage."""
    return from_json(card["stages"][-1]["settings"])[0].family


def trained_head(card: dict[str, Any]) -> str | None:
    """The kind of the correction head; None where no stage trained one."""
    last = card["stages"][-1]
    return from_json(last["settings"])[0].head if corrects(last["stage"]) else None


def summary(card: dict[str, Any]) -> str:
    """The first paragraph."""
    head = trained_head(card)
    if card["stages"][-1]["stage"] == ON_POLICY:
        text = (
            "Trained by `dartree_exp.training` on answers drafted with it; `drafter=adaflash`, or "
            "`drafter=dflash` without its length head."
        )
    elif head is None:
        text = f"Trained by `dartree_exp.training`; `drafter={family(card)}`."
        if family(card) == "dflash":
            text += " No head was trained: the one in the file corrects nothing."
    elif "backbone" in card:
        text = (
            "Trained by `dartree_exp.training` on the frozen backbone of "
            f"`{card['backbone']['folder']}`; "
        )
        text += f"`drafter={HEADS[head].drafter}`."
    else:
        text = (
            f"Trained by `dartree_exp.training`. `drafter={HEADS[head].drafter}` uses backbone and "
            "head, `drafter=dflash` "
        )
        text += "the backbone alone."
    return text + " The weights fit the target named below, not other versions of that model."


def _facts(card: dict[str, Any]) -> list[str]:
    weights, sizes, data = card["weights"], card["parameters"], card["data"]
    lines = [
        f"- Weights: `{weights['file']}`, {weights['bytes'] / 1e6:.1f} MB, "
        f"{weights.get('dtype') or 'dtype not recorded'}, "
        f"sha256 `{weights['sha256']}`."
    ]
    if "backbone" in card:
        used = card["backbone"]
        lines.append(
            f"- Backbone: `../{used['folder']}`, whose model.safetensors has sha256 "
            f"`{used['sha256']}`."
        )
    lines += [
        f"- Backbone {sizes['backbone'] / 1e6:.2f} M parameters, head {sizes['head'] / 1e6:.2f} M"
        f"{_length(sizes)}; drafts over "
        f"{sizes['draft_vocab_size']} ids.",
        f"- Target: {_target(card['target'])}.",
        f"- Text: `{data['file']}` (sha256 `{data['sha256'][:16]}...`), "
        f"{sum(data.get('samples', {}).values()):,} samples "
        f"for training, {data.get('output_tokens', 0):,} output tokens; {_used(card)}, in a seeded "
        "shuffled order.",
        *_generation(data),
        f"- Held out: {len(data['held_out'])} samples, {_held_out(data)}.",
    ]
    lines += [
        f'- According to the README of the text: "{quote}"' for quote in data.get("quotes", [])
    ]
    return lines


def _length(sizes: dict[str, int]) -> str:
    return f", length head {sizes['length'] / 1e6:.2f} M" if sizes.get("length") else ""


def _used(card: dict[str, Any]) -> str:
    if card["stages"][-1]["stage"] == ON_POLICY:
        return "the last stage answered their prompts anew"
    return "a run uses the samples captured by its end"


def _target(target: str | dict[str, str]) -> str:
    if isinstance(target, str):
        return f"{target} (named at the export; the run did not record it)"
    source = f", converted from {target['source']}" if target.get("source") else ""
    return f"{target['name']}, sha256 of the weights {target['weights_sha256']}{source}"


def _held_out(data: dict[str, Any]) -> str:
    if data.get("record"):
        return "captured apart from the training samples"
    return "as the hold-out named at the export chooses them; the run did not record its own"


def _generation(data: dict[str, Any]) -> list[str]:
    made = (data.get("record") or {}).get("generation")
    if made is None:
        return [
            "- How the text was generated, and which prompts were kept out of it, is not recorded."
        ]
    target = data["record"]["target"]
    by = (
        "the target"
        if made["target"]["weights_sha256"] == target["weights_sha256"]
        else "another model"
    )
    prompts = ", ".join(f"`{p['file']}` ({p['count']})" for p in made["prompts"])
    files = ", ".join(
        f"`{e['file']}` (sha256 `{e['sha256'][:16]}...`, {e['count']} prompts)"
        for e in made["excluded"]
    )
    kept = (
        f"compared by text, case and white space aside, with {files}"
        if files
        else "no file was given to `--exclude`"
    )
    return [
        f"- Generated greedily by {by} ({made['target']['name']}), at most {made['cap']} new "
        "tokens, from the prompts of "
        f"{prompts} on {_machines(made['machines'])}.",
        f"- Prompts kept out of the text: {kept}.",
    ]


def _machines(machines: list[dict[str, Any]] | None) -> str:
    """Processors and cores as recorded."""
    if not machines:
        return "a machine that was not recorded"
    return " and ".join(
        dict.fromkeys(f"{m['cpu']['model']} ({m['cpu']['cores']} cores)" for m in machines)
    )


def _accuracy(measured: dict[str, Any]) -> list[str]:
    slots = range(len(measured["rows"][0]["accuracy"]))
    lines = [
        "## Held-out accuracy",
        "",
        measured["how"] + " Measured on these weights by `dartree_exp.training.validate`.",
        "",
    ]
    lines += [
        "| logits | linear tokens per round | " + " | ".join(f"slot {k}" for k in slots) + " |"
    ]
    lines += ["|---|---|" + "---|" * len(slots)]
    for row in measured["rows"]:
        lines.append(
            f"| {row['logits']} | {row['chain']:.2f} | "
            + " | ".join(f"{a:.3f}" for a in row["accuracy"])
            + " |"
        )
    coverage = measured["rows"][0]["coverage"]
    lines.append("| coverage | | " + " | ".join(f"{a:.3f}" for a in coverage) + " |")
    return [*lines, ""]


def _stage(stage: dict[str, Any]) -> list[str]:
    s, rows = stage["settings"], stage["curve"]
    head = from_json(s)[0].head if corrects(stage["stage"]) else None
    short = (
        f" (the first {100 * s['short_until']:.0f} % of the run: {s['short_block']})"
        if s["short_until"]
        else ""
    )
    lines = [
        f"## Stage: {stage['stage']}" + ("" if head is None else f", {head}"),
        "",
        f"{stage['steps']} steps in {stage['minutes']} minutes with {stage['workers']} process(es) "
        "on "
        f"{_machines(stage.get('machines'))}; {stage['samples']} samples, {stage['blocks']} blocks "
        f"of {s['block']} slots"
        f"{short}, {s['loss_slots']} slots drawn per block in proportion to their weight; AdamW, "
        f"lr {s['lr']:g}, seed "
        f"{s['seed']}.",
        "",
        sentences(stage["objective"], head, s["block"]),
        "",
    ]
    if stage["notes"]:
        lines += [stage["notes"], ""]
    if stage["stage"] == ON_POLICY:
        return [*lines, *_phases(rows), ""]
    if not all("coverage" in row for row in rows):
        lines += [
            "Accuracy in this curve counts only labels inside the drafting vocabulary: the rule of "
            "the version that trained "
            "it. It is not comparable with the held-out accuracy above, which counts every label.",
            "",
        ]
    slot = min(3, len(rows[0]["loss"]) - 1)
    heading = (
        f"| step | seconds | held-out loss, slot 0 | slot {slot} | accuracy, slot 0 | slot {slot} |"
    )
    lines += [f"{heading} linear tokens per round |", "|---|---|---|---|---|---|---|"]
    every = max(1, len(rows) // 10)
    for row in rows[::every] + ([rows[-1]] if (len(rows) - 1) % every else []):
        cells = [row["step"], round(row["seconds"]), row["loss"][0], row["loss"][slot]]
        cells += [row["accuracy"][0], row["accuracy"][slot], row["chain"]]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return [*lines, ""]


def _phases(rows: list[dict[str, Any]]) -> list[str]:
    """The curve of a training on drafted answers."""
    lines = ["| step | seconds | phase | tau of its answers | variance over domains |"]
    lines.append("|---|---|---|---|---|")
    for row in rows:
        cells = [row["step"], round(row["seconds"]), row["phase"]]
        cells += [row.get("tau", "-"), row.get("tau_variance", "-")]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def _validation(v: dict[str, Any]) -> list[str]:
    bound = (
        "Measured on these weights."
        if v.get("weights")
        else "Of which weights file it was measured is not recorded."
    )
    lines = [
        "## Validation by decoding",
        "",
        f"{v['how']} {bound}",
        "",
        "| method | T | all | " + " | ".join(v["domains"]) + " |",
    ]
    lines.append("|---|---|---|" + "---|" * len(v["domains"]))
    for row in v["rows"]:
        cells = " | ".join(
            f"{row['tau'][d]:.2f}" if d in row["tau"] else "no rounds" for d in v["domains"]
        )
        lines.append(f"| {_method(row)} | {row['tau']['all']:.2f} | {cells} |")
    lines.append("")
    for row in v["rows"]:
        lines += [
            f"Accepted per depth, {_method(row).replace(' |', ', T =')}: "
            + ", ".join(f"{x:.2f}" for x in row["survival"]),
            "",
        ]
    return lines


def _method(row: dict[str, Any]) -> str:
    """Method and temperature; cards from before it was recorded are of T = 0."""
    return f"{row['method']} | {row.get('temperature', 0):g}"
