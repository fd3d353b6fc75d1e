"""Fields of a row and templates; each error names row and field."""

import json

import pytest
from benchmark_support import benchmark

from dartree_exp.config import compose
from dartree_exp.errors import ConfigError, UserError
from dartree_exp.inputs.checks import check_files
from dartree_exp.prompts import load_prompts

TEMPLATES = {
    "alone": {"template": "$question"},
    "braced": {"template": "${question}"},
    "in text": {"template": "Q: $question\nA:"},
    "appended": {"template": "$other", "optional": " $question"},
}
VALUES = {
    "null": (None, "is null"),
    "empty": ("", "is empty"),
    "blank": (" \n", "is blank"),
    "true": (True, "is true"),
    "nan": (float("nan"), "is nan"),
    "object": ({"a": 1}, "is an object"),
    "list": (["a", "b"], "is a list"),
}


def load(tmp_path, row, **changes):
    path = tmp_path / "rows.jsonl"
    path.write_text(
        json.dumps({"question": "fine", "other": "fine"}) + "\n" + json.dumps(row) + "\n"
    )
    return load_prompts(benchmark("gsm8k", path=str(path), **changes))


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("kind", VALUES)
def test_a_field_that_is_no_text_is_refused_with_its_row(tmp_path, template, kind):
    value, reason = VALUES[kind]
    row = {"question": value, "other": "fine"}
    if template == "appended" and kind in ("null", "empty", "blank"):
        assert load(tmp_path, row, **TEMPLATES[template])[1].turns == ["fine"]  # treated as missing
    elif template in ("alone", "braced") and kind == "list":
        assert (
            load(tmp_path, row, **TEMPLATES[template])[1].turns == value
        )  # one turn per item, as in MT-Bench
    else:
        with pytest.raises(UserError, match=rf"row 1 of .*rows\.jsonl: field 'question' {reason}"):
            load(tmp_path, row, **TEMPLATES[template])


@pytest.mark.parametrize(
    ("items", "reason"), [([], "it is empty"), (["a", None], "item 1 is null"), (None, "null")]
)
def test_turns_that_are_no_texts(tmp_path, items, reason):
    with pytest.raises(
        UserError, match=rf"row 1 of .*: field 'turns' is not a list of strings.*{reason}"
    ):
        load(tmp_path, {"turns": items})


def test_a_category_is_a_text_too(tmp_path):
    with pytest.raises(UserError, match=r"row 1 of .*: field 'category' is a list"):
        load(tmp_path, {"question": "x", "category": ["a"]})


def test_numbers_are_written_out(tmp_path):
    turns = load(tmp_path, {"question": 3, "other": 2.5}, template="$question of $other")[1].turns
    assert turns == ["3 of 2.5"]


def test_no_template_and_no_turns(tmp_path):
    with pytest.raises(
        UserError, match=r"row 0 of .*: no `turns`, and benchmark\.template is empty"
    ):
        load(tmp_path, {"question": "x"}, template="")


REFUSED = [
    ("benchmark.template='Solve it.'", r"benchmark\.template='Solve it\.': has no \$field"),
    ("benchmark.template='For $$5.'", r"has no \$field"),
    (
        "benchmark.template='It costs $5: $question'",
        r"the \$ of '\$5: \$questio' does not begin .* write \$\$ for a dollar",
    ),
    (
        "benchmark.template='$question costs 5$'",
        r"the \$ of '\$' does not begin a field name; write \$\$",
    ),
    ("benchmark.optional='Go on.'", r"benchmark\.optional='Go on\.': has no \$field"),
]


@pytest.mark.parametrize(("override", "message"), REFUSED)
def test_templates_are_refused_before_anything_is_read(override, message):
    config = compose(["model=toy", "drafter=random", "benchmark=gsm8k", override])
    with pytest.raises(ConfigError, match=message):
        check_files(config)
    with pytest.raises(ConfigError, match=message):
        load_prompts(config.benchmark)


def test_a_dollar_sign_is_written_twice(tmp_path):
    assert load(tmp_path, {"question": "x"}, template="$$5: $question")[1].turns == ["$5: x"]


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        (r"benchmark.template='Q: $question\nA:\t'", "benchmark.template", "Q: $question\nA:\t"),
        (r"benchmark.template=$question\n", "benchmark.template", "$question\n"),
        (r"++benchmark.optional='\n$input'", "benchmark.optional", "\n$input"),
        (
            r"benchmark.template='$question \\nabla \\text \boxed{}'",
            "benchmark.template",
            r"$question \nabla \text \boxed{}",
        ),
        (
            r"decoding.stop_strings=['\n\n','a\tb',c]",
            "decoding.stop_strings",
            ["\n\n", "a\tb", "c"],
        ),
        (r"decoding.stop_strings=[\n]", "decoding.stop_strings", ["\n"]),
    ],
)
def test_typed_newlines_and_tabs(override, key, value):
    group, _, name = key.partition(".")
    assert (
        getattr(getattr(compose(["model=toy", "drafter=random", override]), group), name) == value
    )


def test_yamls_own_backslashes_stay():
    template = compose(["model=toy", "drafter=random", "benchmark=gsm8k"]).benchmark.template
    assert (
        template
        == "$question\nPlease reason step by step, and put your final answer within \\boxed{}."
    )
