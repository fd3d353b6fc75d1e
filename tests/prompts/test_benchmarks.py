"""Every public benchmark from local files: counts, templates, the papers' shuffle, fields of hub
and original files.
"""

import json
import random
from collections import Counter

import datasets
import pytest
from benchmark_support import NAMES, benchmark

from dartree_exp.errors import UserError
from dartree_exp.prompts import load_prompts
from dartree_exp.prompts.select import shuffled, stratify, subset

BOXED = "\nPlease reason step by step, and put your final answer within \\boxed{}."
COUNTS = {
    "aime25": 30,
    "alpaca": 128,
    "creative": 24,
    "gsm8k": 128,
    "humaneval": 164,
    "math500": 128,
    "mbpp": 128,
    "mini": 48,
    "mt_bench": 80,
}
# A row as the hub's data set has it, and the turns it becomes.
HUB_ROWS = {
    "gsm8k": ({"question": "How many?", "answer": "#### 3"}, ["How many?" + BOXED]),
    "math500": (
        {"problem": "Find $x$.", "solution": "", "subject": "Algebra", "level": 1},
        ["Find $x$." + BOXED],
    ),
    "aime25": ({"problem_idx": 1, "problem": "Find $b$.", "answer": 70}, ["Find $b$." + BOXED]),
    "humaneval": (
        {"task_id": "HumanEval/0", "prompt": "def f():\n"},
        [
            "Write a solution to the following problem and make sure that it passes the "
            "tests:\n```python\ndef f():\n\n```"
        ],
    ),
    "mbpp": ({"task_id": 11, "prompt": "Write a python function."}, ["Write a python function."]),
    "mt_bench": (
        {"prompt_id": 81, "category": "writing", "prompt": ["One.", "Two."]},
        ["One.", "Two."],
    ),
    "alpaca": (
        {"instruction": "Sum up.", "input": "A text.", "output": "", "text": ""},
        ["Sum up.\n\nInput:\nA text."],
    ),
}


def read(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def test_the_names_are_known():
    assert set(COUNTS) == set(NAMES)


@pytest.mark.parametrize("name", sorted(set(COUNTS) - {"mini", "creative"}))
def test_counts_and_ids_from_the_data_folder(shared_data, name):
    prompts = load_prompts(benchmark(name, path=str(shared_data)))
    assert prompts == load_prompts(benchmark(name, path=str(shared_data / name)))
    assert len(prompts) == COUNTS[name]
    assert len({prompt.id for prompt in prompts}) == len(prompts)
    assert all(prompt.id.startswith(f"{name}/") and prompt.version == "1" for prompt in prompts)


@pytest.mark.parametrize(
    ("name", "reference"), [("gsm8k", "gsm8k"), ("math500", "math500"), ("humaneval", "humaneval")]
)
def test_templates_equal_ready_made_prompts(shared_data, name, reference):
    """The published ready-made prompts of another comparison use the same wording, row by row."""
    ready = [row["turns"] for row in read(shared_data / "deepspec" / f"{reference}.jsonl")]
    prompts = load_prompts(benchmark(name, path=str(shared_data), count=None))
    assert [prompt.turns for prompt in prompts] == ready


def test_ready_made_turns_are_taken_as_they_are(shared_data):
    path = shared_data / "deepspec" / "gsm8k.jsonl"
    ready = load_prompts(benchmark("gsm8k", path=str(path)))
    assert ready == load_prompts(benchmark("gsm8k", path=str(shared_data / "deepspec")))
    assert ready == load_prompts(benchmark("gsm8k", path=str(shared_data)))


def test_shuffle_is_the_datasets_librarys():
    for size, seed in ((1319, 0), (80, 3)):
        reference = datasets.Dataset.from_dict({"row": list(range(size))}).shuffle(seed=seed)["row"]
        assert shuffled(size, seed) == list(reference)


def test_the_papers_subset_starts_with_their_records_prompts(shared_data):
    """The released decoder's answers show the order of questions after the seed-0 shuffle."""
    told = {
        "gsm8k": [
            ("Carmen", "Samantha"),
            ("cat", "sausages"),
            ("Akbar", "Alessandro", "Helene"),
            ("Hannah",),
        ],
        "mbpp": [
            ("dictionary",),
            ("occurrence", "number"),
            ("maximum product",),
            ("merge three lists",),
        ],
    }
    for name, words in told.items():
        prompts = load_prompts(benchmark(name, path=str(shared_data), limit=len(words)))
        for prompt, expected in zip(prompts, words, strict=True):
            assert all(word in prompt.turns[0] for word in expected), (prompt.turns, expected)
    control = load_prompts(benchmark("gsm8k", path=str(shared_data), limit=1, seed=1))
    assert "Carmen" not in control[0].turns[0]


def test_small_sets_keep_their_order_and_large_ones_do_not():
    assert subset(30, 30, None, 0) == list(range(30))
    assert subset(5, None, None, 0) == list(range(5))
    assert subset(30, 10, None, 0) == shuffled(30, 0)[:10]
    assert subset(30, 30, 4, 0) == shuffled(30, 0)
    assert subset(30, 30, 30, 0) == list(range(30))


def test_stratify_passes_over_a_category_that_runs_out():
    assert stratify([10, 11, 12, 13, 14], ["b", "b", "a", "b", "b"], 4) == [12, 10, 11, 13]
    assert stratify([10, 11], ["a", "b"], 9) == [10, 11]


def test_mt_bench_has_two_turns_in_eight_categories(shared_data):
    prompts = load_prompts(benchmark("mt_bench", path=str(shared_data)))
    assert all(len(prompt.turns) == 2 for prompt in prompts)
    assert set(Counter(prompt.category for prompt in prompts).values()) == {10}
    one_each = load_prompts(benchmark("mt_bench", path=str(shared_data), limit=8))
    assert len({prompt.category for prompt in one_each}) == 8
    assert (
        len(load_prompts(benchmark("mt_bench", path=str(shared_data), categories=["math", "stem"])))
        == 20
    )


def test_alpacas_input_follows_if_there_is_one(tmp_path):
    rows = [
        {"instruction": "Sum up.", "input": "A text."},
        {"instruction": "Tell.", "input": ""},
        {"instruction": "Go."},
    ]
    path = tmp_path / "alpaca_data.json"
    path.write_text(json.dumps(rows))
    for given in (path, tmp_path):
        turns = [prompt.turns for prompt in load_prompts(benchmark("alpaca", path=str(given)))]
        assert turns == [["Sum up.\n\nInput:\nA text."], ["Tell."], ["Go."]]


def test_alpacas_other_file_with_ready_turns(shared_data):
    path = shared_data / "alpaca" / "eagle_alpaca_80.jsonl"
    prompts = load_prompts(benchmark("alpaca", path=str(path)))
    assert len(prompts) == 80
    assert {prompt.category for prompt in prompts} == {"alpaca"}


@pytest.mark.parametrize("name", sorted(HUB_ROWS))
def test_hub_rows_and_the_request_to_the_hub(monkeypatch, name):
    row, turns = HUB_ROWS[name]
    asked = []

    def load_dataset(*arguments, **keywords):
        asked.append((arguments, keywords))
        return datasets.Dataset.from_list([row])

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    config = benchmark(name)
    assert [prompt.turns for prompt in load_prompts(config)] == [turns]
    assert asked == [((config.dataset, config.subset), {"split": config.split})]


def test_an_unreachable_hub_has_advice():
    with pytest.raises(UserError, match=r"openai/gsm8k is not available .* benchmark\.path="):
        load_prompts(benchmark("gsm8k"))


def write(tmp_path, text, name="test.jsonl"):
    path = tmp_path / name
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"query": "x", "answer": "y"}',
            r"row 0 of .*test\.jsonl: no field 'question'; fields: answer, query",
        ),
        ('{"question": "x"}\n{broken', "line 2: not JSON"),
        ('{"question": "x"}\n["list"]', "line 2: not a JSON object"),
        ("\n\n", "has no rows"),
        ('{"turns": []}', "not a list of strings"),
        ('{"turns": ["x", ""]}', "not a list of strings"),
        ('{"turns": [{"role": "user"}]}', "not a list of strings"),
    ],
)
def test_bad_files_are_named(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        load_prompts(benchmark("gsm8k", path=write(tmp_path, text)))


def test_missing_paths_are_named(tmp_path):
    with pytest.raises(UserError, match="no such file or folder"):
        load_prompts(benchmark("gsm8k", path=str(tmp_path / "nothing")))
    with pytest.raises(
        UserError, match=r"none of test\.jsonl, gsm8k\.jsonl found there or in gsm8k/"
    ):
        load_prompts(benchmark("gsm8k", path=str(tmp_path)))
    with pytest.raises(UserError, match="not shipped"):
        load_prompts(benchmark("mini", name="other"))


def test_json_that_is_no_list_or_not_text(tmp_path):
    with pytest.raises(UserError, match=r"a\.json, line 1: not JSON"):
        load_prompts(
            benchmark("alpaca", path=write(tmp_path, '{\n"instruction": "x"\n}', "a.json"))
        )
    (tmp_path / "b.jsonl.gz").write_bytes(b"plainly not gzip")
    with pytest.raises(UserError, match="cannot be read"):
        load_prompts(benchmark("alpaca", path=str(tmp_path / "b.jsonl.gz")))


@pytest.mark.parametrize("limit", [0, -3])
def test_limit_below_one(limit):
    with pytest.raises(UserError, match=rf"benchmark\.limit={limit}: must be at least 1"):
        load_prompts(benchmark("mini", limit=limit))


def test_unknown_category_lists_the_known_ones():
    with pytest.raises(UserError, match="'maths' is not one of chat, code, math"):
        load_prompts(benchmark("mini", categories=["math", "maths"]))


def test_ids_stay_with_the_row_whatever_subset_is_drawn(tmp_path):
    rows = [{"question": f"q{i}"} for i in range(200)]
    path = write(tmp_path, "\n".join(map(json.dumps, rows)))
    seed = random.Random(5).randrange(100)
    for prompt in load_prompts(benchmark("gsm8k", path=path, seed=seed)):
        assert prompt.turns == [f"q{prompt.id.split('/')[1]}" + BOXED]
