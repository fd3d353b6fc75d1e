"""Stops and caps inside a block: ids, reasons and counts agree with plain decoding for every
method.
"""

import pytest
from contract_support import MAIN


@pytest.mark.parametrize("method", MAIN)
def test_every_cap(make_case, method):
    case = make_case(method)
    longest = case.plain(cap=16).ids
    for cap in (0, 1, 2, 3, 7, 8, 16):
        drafted = case.drafted(cap=cap)
        assert drafted.ids == longest[:cap]
        assert drafted.finish == "length"
        assert len(drafted.ids) == (sum(r.emitted for r in drafted.rounds) + 1 if cap else 0)
        if cap <= 1:
            assert drafted.rounds == []


@pytest.mark.parametrize("method", MAIN)
def test_a_token_of_the_output_declared_eos_stop_or_string(make_case, method):
    case = make_case(method)
    ids = case.plain().ids
    for at in (0, 1, 5, 11):
        first = ids.index(ids[at])
        for rule, finish in (
            ({"eos_ids": frozenset({ids[at]})}, "eos"),
            ({"stop_ids": frozenset({ids[at]})}, "stop_id"),
        ):
            plain, drafted = case.plain(**rule), case.drafted(**rule)
            assert drafted.ids == plain.ids == ids[: first + 1]
            assert drafted.finish == plain.finish == finish
    decode = case.target.tokenizer.decode
    text = decode(ids[3:6]).strip()
    rule = {"stop_strings": (text,), "decode": decode}
    plain, drafted = case.plain(**rule), case.drafted(**rule)
    assert drafted.ids == plain.ids and drafted.finish == plain.finish == "stop_string"
    assert decode(drafted.ids).rstrip().endswith(text)


def test_rounds_after_the_stop_do_not_exist_and_the_last_keeps_its_length(make_case):
    case = make_case("dflash", drafter="oracle")
    ids = case.plain().ids
    stop = next(i for i in range(3, 6) if ids[i] not in ids[:i])
    drafted = case.drafted(eos_ids=frozenset({ids[stop]}))
    assert len(drafted.rounds) == 1
    assert drafted.rounds[0].tokens_advanced == case.method.depth + 1
    assert drafted.rounds[0].emitted == stop
