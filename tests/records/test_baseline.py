"""Answers of plain decoding shared by the runs of a sweep."""

from dartree_exp.records.baseline import SharedBaseline

ANSWER = {"ids": [1], "finish": "eos", "time": {"decode": 1.0}}


def test_of_two_answers_to_one_prompt_the_first_stays(tmp_path):
    made_with = {"weights": "ab"}
    here, there = (SharedBaseline(tmp_path, made_with) for _ in range(2))
    assert here.get("a/0", "digest") is None
    other = {**ANSWER, "time": {"decode": 2.0}}
    assert here.put("a/0", "digest", ANSWER) == ANSWER
    assert there.put("a/0", "digest", other) == ANSWER == there.get("a/0", "digest")
    [folder] = (tmp_path / ".ar").iterdir()
    assert len(list(folder.iterdir())) == 1
    (answer,) = folder.glob("*/answer.json")
    answer.write_text("[]")  # a damaged answer is replaced
    assert here.get("a/0", "digest") is None
    assert here.put("a/0", "digest", ANSWER) == there.get("a/0", "digest") == ANSWER


def test_another_target_shares_no_answers(tmp_path):
    SharedBaseline(tmp_path, {"weights": "ab"}).put("a/0", "digest", ANSWER)
    assert SharedBaseline(tmp_path, {"weights": "ab"}).get("a/0", "digest") == ANSWER
    assert SharedBaseline(tmp_path, {"weights": "cd"}).get("a/0", "digest") is None
