"""Turns, repeats and recorded trees of a run."""

import json
from dataclasses import replace

import pytest

import dartree_exp.run as run_module
from dartree_exp.config import compose, config_hash
from dartree_exp.errors import RunError
from dartree_exp.runs import turns
from test_run import TOY, start


def test_a_prompt_that_became_another_is_not_taken_for_the_old_one(tmp_path, monkeypatch):
    """Also where no file tells: rows of a data set on the hub, or a template of the tokenizer."""
    right = run_module.load_prompts
    start_of = start(tmp_path, "benchmark.limit=1")
    status = json.loads((start_of.path / "status.json").read_text())
    (start_of.path / "status.json").write_text(json.dumps({**status, "state": "RUNNING"}))
    changed = [
        replace(prompt, turns=["another question"])
        for prompt in right(compose([*TOY, "benchmark.limit=1"]).benchmark)
    ]
    monkeypatch.setattr(run_module, "load_prompts", lambda config: changed)
    with pytest.raises(RunError, match="turn 0 was decoded from another prompt; force=true"):
        start(tmp_path, "benchmark.limit=1")


def test_repeats_are_whole_passes_and_resume(tmp_path, monkeypatch):
    order, right = [], turns.decode_turn

    def watched(arms, prompt, turn, ids, ar_first, repeat):
        if len(order) == 4:
            order.append(None)
            raise KeyboardInterrupt
        order.append((repeat, prompt.id, ar_first))
        return right(arms, prompt, turn, ids, ar_first, repeat)

    monkeypatch.setattr(turns, "decode_turn", watched)
    with pytest.raises(KeyboardInterrupt):
        start(tmp_path, "repeats=2", "benchmark.limit=3")
    done = start(tmp_path, "repeats=2", "benchmark.limit=3")
    passes = [entry for entry in order if entry is not None]
    assert [repeat for repeat, _, _ in passes] == [0, 0, 0, 1, 1, 1]
    assert [first for _, _, first in passes] == [True, False, True, False, True, False]
    assert [name for _, name, _ in passes[:3]] == [name for _, name, _ in passes[3:]]
    assert [s.ids for s in done.samples[:3]] == [s.ids for s in done.samples[3:]]
    assert {r.repeat for r in done.rounds} == {0, 1}
    summary = json.loads((done.path / "summary.json").read_text())
    assert (summary["n"], summary["turns"], done.status["prompts"]) == (3, 6, 6)


def test_turns_see_plain_decodings_answer(tmp_path, monkeypatch):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(
        json.dumps({"turns": ["first question", "second one"], "category": "two"}) + "\n"
    )
    seen = []
    right = turns.decode_turn
    monkeypatch.setattr(turns, "decode_turn", lambda *a: seen.append(a[3]) or right(*a))
    done = start(tmp_path / "runs", f"benchmark.path={prompts}", "benchmark.limit=1")
    first, second = done.samples
    assert (first.turn, second.turn) == (0, 1)
    assert seen[1][: len(seen[0])] == seen[0]
    answer_words = first.text.split()
    assert first.ids == first.ar_ids and len(seen[1]) == len(seen[0]) + 1 + len(
        answer_words
    ) + 1 + len(["second", "one"])


@pytest.mark.parametrize(("trees", "prompts"), [("0", 0), ("2", 2), ("all", 3)])
def test_trees_of_the_first_prompts_are_recorded_and_agree_with_the_rounds(
    tmp_path, trees, prompts
):
    done = start(
        tmp_path,
        "drafter=oracle",
        "tree=pruned",
        "tree.width=4",
        "tree.budget=6",
        f"record.trees={trees}",
    )
    recorded = {tree.sample_key for tree in done.trees}
    assert len(recorded) == prompts
    rounds = {(r.sample_key, r.round): r for r in done.rounds}
    assert len(done.trees) == sum(r.sample_key in recorded for r in done.rounds)
    samples = {s.key: s for s in done.samples}
    for tree in done.trees:
        r = rounds[tree.sample_key, tree.round]
        # What cannot be kept is not grown, but counts as a part of the supertree.
        assert r.supertree_size >= len(tree.tokens) - 1 > r.tree_size == len(tree.verified) - 1
        assert [tree.tokens[node] for node in tree.accepted] == [
            r.root,
            *r.accepted_tokens,
        ] and tree.bonus == r.bonus
        assert [tree.verified.index(node) for node in tree.accepted[1:]] == r.accepted
        assert [tree.ranks[node] for node in tree.accepted[1:]] == r.accepted_ranks
        children = [[n for n in below if n in tree.verified] for below in tree.children()]
        assert [len(children[node]) for node in tree.accepted] == r.path_children
        steps = zip(tree.accepted[:-1], tree.accepted[1:], strict=True)
        assert [children[parent].index(child) for parent, child in steps] == r.accepted_places
        assert samples[tree.sample_key].text.startswith(tree.context)


def test_recording_trees_changes_no_result(tmp_path):
    """Neither the run's identity nor its ids: the same folder, whatever was asked for."""
    assert config_hash(compose([*TOY, "record.trees=all"])) == config_hash(compose(TOY))
