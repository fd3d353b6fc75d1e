"""Stop table: the earliest rule wins, ids, text and counts agree."""

import pytest

from dartree_exp.verify.stopping import Answer, StopRule


def decode(ids):
    return "".join(chr(97 + i) for i in ids)


def run(rule, ids, chunks):
    answer = Answer(rule)
    emitted = 0
    for begin in range(0, len(ids), chunks):
        emitted += answer.push(ids[begin : begin + chunks])
    assert emitted == len(answer.ids)
    return answer


@pytest.mark.parametrize("chunks", [1, 2, 3, 20])
@pytest.mark.parametrize(
    ("rule", "kept", "finish"),
    [
        (dict(max_new_tokens=4), 4, "length"),
        (dict(max_new_tokens=10, eos_ids={3}), 4, "eos"),
        (dict(max_new_tokens=4, eos_ids={3}), 4, "eos"),
        (dict(max_new_tokens=3, eos_ids={3}), 3, "length"),
        (dict(max_new_tokens=10, eos_ids={9}, stop_ids={5}), 6, "stop_id"),
        (dict(max_new_tokens=10, eos_ids={5}, stop_ids={5}), 6, "eos"),
        (dict(max_new_tokens=10, stop_strings=("cde",)), 5, "stop_string"),
        (dict(max_new_tokens=10, stop_strings=("a",)), 1, "stop_string"),
        (dict(max_new_tokens=10, stop_strings=("efg", "de")), 5, "stop_string"),
        (dict(max_new_tokens=10, stop_ids={2}, stop_strings=("cde",)), 3, "stop_id"),
        (dict(max_new_tokens=0), 0, "length"),
        (dict(max_new_tokens=1), 1, "length"),
    ],
)
def test_stop_table(rule, kept, finish, chunks):
    for key in ("eos_ids", "stop_ids"):
        rule = rule | {key: frozenset(rule.get(key, ()))}
    answer = run(StopRule(decode=decode, **rule), list(range(10)), chunks)
    assert answer.ids == list(range(kept))
    assert answer.finish == finish


def test_unstoppable_rules_are_refused():
    with pytest.raises(ValueError, match="empty string"):
        StopRule(3, stop_strings=("",), decode=decode)
    with pytest.raises(ValueError, match="tokenizer"):
        StopRule(3, stop_strings=("x",))
