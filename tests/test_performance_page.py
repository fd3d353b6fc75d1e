"""docs/performance.md holds what docs/performance.py makes of the committed records."""

import importlib.util
from pathlib import Path

import pytest

from dartree_exp.metrics.clock import STAGES
from dartree_exp.records.environment import describe_environment

DOCS = Path(__file__).parents[1] / "docs"
SPEC = importlib.util.spec_from_file_location("performance", DOCS / "performance.py")
assert SPEC is not None and SPEC.loader is not None
performance = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(performance)

MARKS = "".join(f"<!-- {name} -->\nold\n<!-- end -->\n" for name in performance.PARTS)


def estimate(value):
    return {"value": value, "low": value - 0.5, "high": value + 0.5}


def scaled(axis, value, verify):
    spent = dict.fromkeys(STAGES, 1.0) | {"verify": verify}
    return {
        **{"axis": axis, "value": value, "nodes": 4, "context": 80, "tau": 2.0},
        **{"round_ms": estimate(verify + 5), "stages_ms": spent, "ms_per_token": verify},
    }


@pytest.fixture
def records():
    environment = describe_environment(device="cpu", dtype="bfloat16", threads=2)
    environment["load"] = {"start": 0.5, "end": 9.0, "cores": 2}
    stamp = {"environment": environment}
    forward = {
        **{"engine": "eager", "attention": "library", "context": 200, "rows": 17},
        **{"forward_ms": estimate(54), "products_ms": estimate(30), "ratio": estimate(1.8)},
    }
    peer = {
        **{"title": "generate", "tokens_per_second": estimate(24.5), "ratio_to_ar": None},
        **{"ratio": {"all": estimate(1), "math": estimate(1)}, "tokens": [9, 9]},
        "same_as_ar": 2,
        "differences": [{"prompt": "mini/0/0", "token": 4, "gap": 0.125}],
    }
    settings = {"prompts": ["mini/0/0", "mini/1/0"], "tokens": 9, "repeats": 2, "temperature": 0.0}
    return {
        "before": {**stamp, "scaling": [scaled("tree.budget", "64", 104.0)]},
        "after": {
            **stamp,
            "scaling": [scaled("tree.budget", "64", 85.0), scaled("tree.budget", "auto", 40.0)],
        },
        "scaling": {**stamp, "scaling": [scaled("tree.width", "2", 40.0)]},
        "forward": {**stamp, "forward": [forward]},
        "peers": {**stamp, "settings": settings, "base": "generate", "peers": {"generate": peer}},
    }


def test_the_page_and_its_pictures_are_up_to_date():
    records = performance.load()
    page = (DOCS / "performance.md").read_text()
    assert performance.filled(page, records) == page, "run python docs/performance.py --write"
    for name, picture in performance.pictures(records).items():
        assert (performance.IMAGES / name).read_text() == picture, name


def test_records_fill_the_tables(records):
    page = performance.filled(MARKS, records)
    assert "| B = 64, before | 1.00 | 1.00 | 1.00 | 104.00 | 1.00 | 1.00 | 109.0 | 4% |" in page
    assert "| B = 64, after | 1.00 | 1.00 | 1.00 | 85.00 | 1.00 | 1.00 | 90.0 | 4% |" in page
    assert "| width W = 2 | 1.00 |" in page
    assert "| eager | library | 200 | 17 | 54.0 [53.5, 54.5] | 30.0 [29.5, 30.5] |" in page
    assert "| generate | 24.5 [24.0, 25.0] |" in page and "| 1 of 2 | 2 of 2 |" in page
    assert "at most 0.125 apart" in page
    assert "load 9 on 2 cores: times not valid" in page and "old" not in page
    assert page.index("B = 64, after") < page.index("B = auto, after")


def test_pictures_show_every_stage(records):
    pictures = performance.pictures(records)
    assert set(pictures) == {"performance_rounds.svg", "performance_growth.svg"}
    for picture in pictures.values():
        assert all(f">{stage}<" in picture for stage in STAGES)
    assert ">B = 64, before<" in pictures["performance_rounds.svg"]
    assert ">width W<" in pictures["performance_growth.svg"]


def test_a_part_without_record_says_so(records):
    del records["forward"]
    page = performance.filled(MARKS, records)
    assert "Not measured yet: no `forward.json`." in page and "| B = 64, before |" in page


def test_a_page_without_a_place_is_refused(records):
    with pytest.raises(ValueError, match="0 places for 'peers'"):
        performance.filled(MARKS.replace("peers", "others"), records)
