"""The lossless verdicts of a table: wrong outputs, exact ones, near ties with their largest gap,
and the fp32 proof.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dartree_exp.metrics.measures import counts
from dartree_exp.records import Run, SampleRecord
from dartree_exp.records.schema import UNJUDGED
from dartree_exp.report.table import Cell

WRONG_NAMED = 3


def lead(runs: Sequence[Run], names: Sequence[str] = ()) -> tuple[str, bool]:
    """The first line of a table or page, and whether it is an alarm: a wrong output or a failed
    proof.

    names: of the runs, shown with wrong outputs; () for a single run.
    """
    samples = [sample for run in runs for sample in run.samples]
    numbers = counts(samples)
    parts = [] if judged(numbers) is None else [f"{_wrong(numbers)} outputs"]
    parts += _others(samples, numbers)
    if numbers["failed"]:
        parts.append(f"{numbers['failed']} failed, not judged")
    proofs = [proof for run in runs if (proof := proof_of(run)) is not None]
    if proofs:
        among = "" if len(proofs) == len(runs) else f" (proof of {len(proofs)} of {len(runs)} runs)"
        parts.append(_proved(sum(p[0] for p in proofs), sum(p[1] for p in proofs)) + among)
    if places := wrong_places(runs, names):
        more = f" and {len(places) - WRONG_NAMED} more" if len(places) > WRONG_NAMED else ""
        parts.insert(1, ", ".join(places[:WRONG_NAMED]) + more)
    return "; ".join(parts), bool(places) or any(exact < of for exact, of in proofs)


def cell(samples: Sequence[SampleRecord], proof: tuple[int, int] | None = None) -> Cell:
    """The verdicts of a row."""
    numbers = counts(samples)
    wrong = [] if judged(numbers) is None else [_wrong(numbers)]
    shown = [*wrong, *_others(samples, numbers), *([_proved(*proof)] if proof else [])]
    values = {
        "outputs": "".join(wrong),
        **_verdicts(numbers),
        "gap_max": largest_gap(samples),
        "flips": flips(samples),
    }
    if proof:
        values |= {"exact_in_fp32": proof[0], "proved_in_fp32": proof[1]}
    bad = bool(_verdicts(numbers)["wrong"]) or (proof is not None and proof[0] < proof[1])
    return Cell("\n".join(shown), values, bad=bad)


def proof_of(run: Run) -> tuple[int, int] | None:
    """(exact, of) of the outputs that `proof=fp32` decoded in fp32; None without a proof."""
    proof = (run.summary or {}).get("proof")
    if (
        not isinstance(proof, Mapping)
        or not isinstance(proof.get("exact"), int)
        or not isinstance(proof.get("of"), int)
    ):
        return None
    return proof["exact"], proof["of"]


def largest_gap(samples: Sequence[SampleRecord]) -> float | None:
    """Largest gap of a near tie's token to the maximum, in logits (at T > 0 of log p + g); None
    without near ties.
    """
    return max(
        (gap for s in samples if s.verdict == "near_tie" and (gap := _gap(s)) is not None),
        default=None,
    )


def flips(samples: Sequence[SampleRecord]) -> int | None:
    """Tokens that are not the maximum in their own context, over all near ties; None if not
    recorded.
    """
    found = [(s.verdict_detail or {}).get("flips") for s in samples if s.verdict == "near_tie"]
    numbers = [n for n in found if isinstance(n, int)]
    return sum(numbers) if numbers else None


def wrong_places(runs: Sequence[Run], names: Sequence[str] = ()) -> list[str]:
    """The places of the wrong outputs."""
    heads = [f"{name}: " for name in names] or [""] * len(runs)
    return [
        f"{head}{s.id} turn {s.turn}{_at(s.verdict_detail)}"
        for head, run in zip(heads, runs, strict=True)
        for s in run.samples
        if s.verdict == "wrong"
    ]


def judged(numbers: Mapping[str, Any]) -> int | None:
    """How many outputs were judged by their ids; None if there are outputs, but none of these."""
    turns = int(numbers["turns"])
    return turns - _verdicts(numbers)[UNJUDGED] or (None if turns else 0)


def _wrong(numbers: Mapping[str, Any]) -> str:
    wrong = _verdicts(numbers)["wrong"]
    return f"{wrong} {'WRONG' if wrong else 'wrong'} of {judged(numbers)}"


def _others(samples: Sequence[SampleRecord], numbers: Mapping[str, Any]) -> list[str]:
    ties = _verdicts(numbers)["near_tie"]
    shown = [] if judged(numbers) is None else [f"{_verdicts(numbers)['exact']} exact"]
    if ties:
        gap = largest_gap(samples)
        shown.append(
            f"{ties} near tie{'s' * (ties > 1)}"
            + (f", gap {gap:.3g} at most" if gap is not None else "")
        )
    if unjudged := _verdicts(numbers)[UNJUDGED]:
        shown.append(f"{unjudged} not judged by ids")
    return shown


def _verdicts(numbers: Mapping[str, Any]) -> dict[str, int]:
    return numbers["verdicts"]


def _proved(exact: int, of: int) -> str:
    return f"{exact} of {of} exact in fp32"


def _gap(sample: SampleRecord) -> float | None:
    """`gap_max`; older records have the `gaps` of the first token that differed."""
    detail = sample.verdict_detail or {}
    gaps = [detail.get("gap_max")] if "gap_max" in detail else detail.get("gaps")
    numbers = (
        [gap for gap in gaps if isinstance(gap, int | float)] if isinstance(gaps, list) else []
    )
    return max(numbers, default=None)


def _at(detail: Mapping[str, Any] | None) -> str:
    """Token and reason of a wrong output."""
    detail = detail or {}
    place = f" at token {detail['index']}" if "index" in detail else ""
    return place + (f" ({detail['reason']})" if "reason" in detail else "")
