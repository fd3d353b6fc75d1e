"""Samples with consistent counts for tests of metrics, reports and trackers."""

from dartree_exp.records import SampleRecord


def sample(id, lengths, emitted=None, *, turn=0, category="math", seconds=1.0, ar_seconds=4.0, **changes):
    """A turn whose rounds advanced by `lengths`; its last round emitted fewer tokens if `emitted` says so."""
    emitted = 1 + sum(lengths) if emitted is None else emitted
    per_round = list(lengths)
    if lengths:
        per_round[-1] -= 1 + sum(lengths) - emitted
    ids = list(range(emitted))
    fields = dict(
        id=id,
        category=category,
        turn=turn,
        prompt_sha256=f"hash of {id} {turn}",
        prompt_tokens=3,
        method="m",
        ids=ids,
        text="",
        finish="eos",
        ar_ids=ids,
        verdict="exact",
        emitted=emitted,
        rounds=len(lengths),
        acceptance_lengths=list(lengths),
        emitted_per_round_counts=per_round,
        time={"prefill": 0.1, "decode": seconds, "draft": seconds / 4, "verify": seconds / 2, "other": seconds / 4},
        ar={"emitted": emitted, "prefill": 0.1, "decode": ar_seconds},
    )
    record = SampleRecord(**fields | changes)
    record.validate()
    return record
