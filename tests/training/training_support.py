"""A small training run, as the command line starts it."""

import json

from dartree_exp.training.train import main as train

SMALL = [
    "--taps", "0", "2", "--block", "4", "--short-block", "3", "--loss-slots", "2", "--vocab", "30",
    "--gru-width", "8",
    "--rank", "8", "--samples", "4", "--anchors", "6", "--lr", "0.01", "--warmup-steps", "4",
    "--layers", "2", "--ema", "0.9",
    "--holdout", "2", "--validate-every", "20", "--mask-token-id", "0",
]  # fmt: skip


def run(tiny, out, *options):
    paths = [
        "--data",
        str(tiny.data),
        "--features",
        str(tiny.features),
        "--target",
        str(tiny.target),
        "--out",
        str(out),
    ]
    assert train([*paths, *SMALL, *options]) == 0
    return [json.loads(line) for line in (out / "curve.jsonl").read_text().splitlines()]
