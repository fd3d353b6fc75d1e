"""Samples with consistent counts for tests of metrics, reports and trackers."""

import numpy as np
from omegaconf import OmegaConf

from dartree_exp.records import RoundRecord, RunFolder, SampleRecord, TreeRecord


def sample(
    id, lengths, emitted=None, *, turn=0, category="math", seconds=1.0, ar_seconds=4.0, **changes
):
    """A turn whose rounds advanced by `lengths`; its last round emitted fewer tokens if `emitted`
    says so.
    """
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
        time={
            "prefill": 0.1,
            "decode": seconds,
            "draft": seconds / 4,
            "verify": seconds / 2,
            "other": seconds / 4,
        },
        ar={"emitted": emitted, "prefill": 0.1, "decode": ar_seconds},
    )
    record = SampleRecord(**fields | changes)
    record.validate()
    return record


ENVIRONMENT = {
    "device": "cpu",
    "process": "one",
    "dtype": "bf16",
    "threads": 2,
    "cpu": {"model": "Some CPU", "cores": 2, "flags": ["avx2", "amx_bf16"]},
    "packages": {"torch": "2.13.0"},
}


def write_run(
    path,
    samples,
    *,
    budget=64,
    method="dartree_pruned",
    end=RunFolder.done,
    environment=None,
    rounds=(),
    trees=(),
    policy=None,
    **settings,
):
    """A run folder as a run leaves it; `settings` are further lines of its configuration,
    `a.b=value` as `a__b`. policy: the group `budget`.
    """
    config = {
        "method": method,
        "model": {"name": "smollm2_135m"},
        "drafter": {"name": "domino"},
        "tree": {"name": "pruned", "budget": budget, "width": 12, "beta": -0.2, "candidates": 64},
        "benchmark": {"name": "mini", "version": "1"},
        "decoding": {"temperature": 0.0, "max_new_tokens": 192, "seed": 0},
        "engine": {"profile": False},
        "protocol": "default",
    }
    if policy is not None:
        config["budget"] = policy
    for key, value in settings.items():
        *groups, name = key.split("__")
        place = config
        for group in groups:
            place = place[group]
        place[name] = value
    with RunFolder.open(
        path, OmegaConf.to_yaml(OmegaConf.create(config)), f"hash of {path.name}"
    ) as folder:
        folder.expect(len(samples))
        folder.write_environment(ENVIRONMENT | (environment or {}))
        for record in samples:
            record.method = method
            key = record.key
            folder.append(
                record,
                [r for r in rounds if r.sample_key == key],
                [t for t in trees if t.sample_key == key],
            )
        end(folder)
    return path


def mini_run(shift=0, seed=0, prompts=4, **options):
    """Samples in three categories with tau around 3 + shift, and a speed that follows tau."""
    rng = np.random.default_rng(seed)
    run = []
    for index in range(3 * prompts):
        lengths = [int(t) + shift for t in rng.integers(1, 6, 8)]
        seconds = 0.05 * len(lengths)
        tokens = sum(lengths)
        category = ("math", "code", "chat")[index % 3]
        run.append(
            sample(
                f"p{index}",
                lengths,
                category=category,
                seconds=seconds,
                ar_seconds=0.04 * tokens,
                **options,
            )
        )
    return run


def recorded_run(path, text=" tail", **options):
    """A run of one prompt and three rounds whose trees are recorded: four nodes verified of six
    scored.

    Round r accepts r + 1 drafts along nodes 1, 2, 3; node 5 is node 3's sibling, nodes 4 and 6 were
    pruned. text: of the target's own token in every round.
    """
    lengths = [2, 3, 4]
    record = sample("a", lengths)
    parents, verified = [-1, 0, 1, 2, 0, 2, 4], [0, 1, 2, 3, 5]
    texts = {str(10 + i): f" w{i}" for i in range(7)} | {"99": text}
    trees = [
        TreeRecord(
            id="a",
            turn=0,
            round=index,
            tokens=[10 + i for i in range(7)],
            parents=parents,
            scores=[
                0.0,
                *(
                    round(depth * np.log(0.5) - 0.01 * (i > 3), 4)
                    for i, depth in enumerate((1, 2, 3, 1, 3, 2), 1)
                ),
            ],
            ranks=[-1, 0, 0, 0, 1, 1, 0],
            verified=verified,
            accepted=[0, 1, 2, 3][:length],
            bonus=99,
            context="once upon",
            texts=texts,
        )
        for index, length in enumerate(lengths)
    ]
    rounds = [
        RoundRecord(
            id="a",
            turn=0,
            round=index,
            start=3 + sum(lengths[:index]),
            root=10,
            accepted=list(range(1, length)),
            accepted_tokens=[10 + i for i in range(1, length)],
            accepted_ranks=[0] * (length - 1),
            bonus=99,
            tree_size=4,
            supertree_size=6,
            tree_depth=3,
            tokens_advanced=length,
            emitted=length,
            time={"draft": 0.01, "verify": 0.02},
            accepted_places=[0] * (length - 1),
            path_children=[1, 1, 2, 0][:length],
        )
        for index, length in enumerate(lengths)
    ]
    return write_run(path, [record], rounds=rounds, trees=trees, **options)
