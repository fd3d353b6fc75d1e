"""The validation that counts: acceptance by the decoding path on the real target."""

import json

import pytest

from dartree_exp.training.corpus import Sample
from dartree_exp.training.tau import first_of_each, main, survival

PROMPTS = {
    "math": "What is 12 + 30? Put the final answer in \\boxed{}.",
    "chat": "Name three colours of the rainbow.",
}


def test_first_of_each_domain_in_order():
    samples = [Sample(f"s{i}", "ab"[i % 2], [1], [2]) for i in range(6)]
    assert [s.id for s in first_of_each(samples, 2)] == ["s0", "s1", "s2", "s3"]


def test_survival_counts_accepted_drafts_not_the_bonus_token():
    assert survival([1, 2, 4], 4) == [0.6667, 0.3333, 0.3333, 0.0]


@pytest.mark.real_model
def test_shipped_drafter_is_validated_losslessly(embedded_model, tmp_path, capsys):
    from dartree_exp.drafters.locate import locate
    from dartree_exp.models.registry import load_codec

    render = load_codec(embedded_model, 49152).encode_chat
    data, out = tmp_path / "text.jsonl", tmp_path / "validation.json"
    rows = [
        {
            "id": domain,
            "domain": domain,
            "prompt_ids": render([{"role": "user", "content": prompt}]),
            "output_ids": [2],
        }
        for domain, prompt in PROMPTS.items()
    ]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = [
        "--holdout",
        "1",
        "--samples",
        "1",
        "--cap",
        "16",
        "--temperatures",
        "0",
        "--methods",
        "dflash",
        "dartree_pruned",
    ]
    drafter = str(locate("pkg://dartree_exp.drafters/weights/smollm2_135m"))
    assert main(["--drafter", drafter, "--data", str(data), "--out", str(out), *options]) == 0
    result = json.loads(out.read_text())
    assert result["domains"] == ["chat", "math"]
    chain, pruned = result["rows"]
    assert (chain["method"], pruned["method"]) == ("dflash", "dartree_pruned")
    for row in (chain, pruned):
        assert row["differing"] == 0
        assert row["tau"]["all"] == pytest.approx(
            (row["tau"]["chat"] + row["tau"]["math"]) / 2, abs=1e-3
        )
        assert row["survival"] == sorted(row["survival"], reverse=True)
    assert pruned["tau"]["all"] > chain["tau"]["all"] >= 1
