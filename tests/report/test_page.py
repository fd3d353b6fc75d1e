"""The page: one file, nothing fetched, hostile text harmless; in a real browser it sorts, steps and
complains of nothing.
"""

import re
from itertools import combinations

import chromium
import pytest

from dartree_exp.report.__main__ import main
from sample_records import mini_run, recorded_run, write_run

HOSTILE = "</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The page of four runs, two of which recorded trees; a text in them tries to break out of its
    element.
    """
    folder = tmp_path_factory.mktemp("report")
    for index, budget in enumerate((16, 64, 128)):
        write_run(folder / "sweep" / f"run{index}", mini_run(index), budget=budget)
    recorded_run(folder / "sweep" / "trees", method="domino", text=HOSTILE)
    assert (
        main([str(folder / "sweep"), "--html", str(folder / "out" / "page.html"), "--published"])
        == 0
    )
    return folder / "out" / "page.html"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if chromium.binary() is None:
        pytest.skip("no chromium on this machine: apt-get install chromium")
    with chromium.Chromium(tmp_path_factory.mktemp("profile")) as page:
        yield page


def test_the_page_is_one_file_that_fetches_nothing(report):
    text = report.read_text()
    assert [path.name for path in report.parent.iterdir()] == ["page.html"]
    assert not re.search(r"(?:src|href|url)\s*[=(]\s*[\"']?(?:https?:)?//", text)
    assert "default-src 'none'" in text
    assert {"results", "plots", "trees", "runs", "setting"} <= set(
        re.findall(r'id="([\w-]+)"', text)
    )
    assert "python -m dartree_exp.report" in text and "Some CPU" in text
    assert HOSTILE not in text


def test_equal_runs_give_equal_pages(report, tmp_path):
    again = tmp_path / "page.html"
    assert main([str(report.parents[1] / "sweep"), "--html", str(again), "--published"]) == 0
    assert again.read_text().replace(str(again), "") == report.read_text().replace(str(report), "")


def test_without_recorded_trees_there_is_no_viewer(tmp_path):
    write_run(tmp_path / "run", mini_run())
    assert main([str(tmp_path / "run"), "--html", str(tmp_path / "page.html")]) == 0
    text = (tmp_path / "page.html").read_text()
    assert 'id="viewer"' not in text and 'id="plot-survival"' in text


def test_it_renders_in_a_browser_without_a_complaint(report, browser):
    browser.open(report)
    assert browser.run("document.querySelectorAll('figure svg').length") >= 4
    assert browser.run("document.querySelector('h1').offsetHeight") > 0
    assert browser.run("document.images.length") == 0
    assert browser.run(
        "document.documentElement.scrollWidth <= innerWidth"
    )  # wide things scroll in their own boxes
    assert browser.problems == []


def test_the_harness_hears_a_complaint(tmp_path, browser):
    """The control: a page that throws and logs an error is noticed."""
    (tmp_path / "bad.html").write_text(
        "<script>console.error('told'); throw Error('thrown')</script>"
    )
    browser.open(tmp_path / "bad.html")
    assert [("told" in text, "thrown" in text) for text in browser.problems] == [
        (True, False),
        (False, True),
    ]
    browser.problems.clear()


def test_a_click_sorts_a_table_and_a_third_one_restores_it(report, browser):
    browser.open(report)
    column = (
        "[...document.querySelectorAll('table')[0].tBodies[0].rows].map(r => "
        "r.cells[{}].firstChild.textContent)"
    )
    taus = "document.querySelectorAll('table')[0].tHead.rows[0].cells[2]"
    original = browser.run(column.format(2))
    orders = []
    for _ in range(3):
        browser.run(f"{taus}.firstElementChild.click()")
        orders.append((browser.run(f"{taus}.ariaSort"), browser.run(column.format(2))))
    numbers = sorted(original, key=float, reverse=True)
    assert original != numbers
    assert orders == [("descending", numbers), ("ascending", numbers[::-1]), ("none", original)]
    assert browser.problems == []


def test_the_viewer_steps_through_rounds_and_draws_what_was_recorded(report, browser):
    browser.open(report)
    count = "document.querySelectorAll('#canvas g.{}').length"
    browser.run(
        "pick = document.getElementById('slide'); pick.value = 0; pick.dispatchEvent(new "
        "Event('input'))"
    )
    assert browser.run("document.getElementById('where').textContent") == "round 1 of 3"
    assert browser.run("document.getElementById('back').disabled")
    drawn = [
        {
            state: browser.run(count.format(state))
            for state in ("accepted", "verified", "gone", "bonus")
        }
    ]
    browser.click("#next")
    assert browser.run("document.getElementById('where').textContent") == "round 2 of 3"
    drawn.append(
        {
            state: browser.run(count.format(state))
            for state in ("accepted", "verified", "gone", "bonus")
        }
    )
    assert drawn == [
        {"accepted": 1, "verified": 3, "gone": 2, "bonus": 1},
        {"accepted": 2, "verified": 2, "gone": 2, "bonus": 1},
    ]
    assert browser.run("document.querySelector('#told .bonus').textContent") == HOSTILE
    browser.click("#pruned")
    assert browser.run(count.format("gone")) == 0 and browser.run(count.format("verified")) == 2
    browser.run(
        "at = document.querySelector('#canvas g.accepted'); at.dispatchEvent(new "
        "Event('pointerenter'))"
    )
    assert "accepted; probability 0.5 given its parent" in browser.run(
        "document.getElementById('node').textContent"
    )
    assert browser.problems == []


def test_boxes_of_the_viewer_do_not_overlap(tmp_path, browser):
    """A row that ends with a pruned node is as high as its boxes."""
    file = recorded_run(tmp_path / "run") / "trees.jsonl"
    lines = file.read_text()
    file.write_text(lines.replace("[-1, 0, 1, 2, 0, 2, 4]", "[-1, 0, 1, 2, 0, 2, 3]"))
    assert file.read_text() != lines
    assert main([str(tmp_path / "run"), "--html", str(tmp_path / "page.html")]) == 0
    browser.open(tmp_path / "page.html")
    browser.run(
        "pick = document.getElementById('slide'); pick.value = 0; pick.dispatchEvent(new "
        "Event('input'))"
    )
    boxes = browser.run(
        "[...document.querySelectorAll('#canvas g.node rect:first-of-type')].map(r => r.getBBox())"
        ".map(b => [b.x, b.y, b.x + b.width, b.y + b.height])"
    )
    apart = [
        a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
        for a, b in combinations(boxes, 2)
    ]
    assert len(boxes) == 6 and all(apart)


def test_the_theme_can_be_switched(report, browser):
    browser.open(report)
    colour = "getComputedStyle(document.body).backgroundColor"
    before = browser.run(colour)
    browser.click("#theme")
    assert browser.run(colour) != before
    browser.click("#theme")
    assert browser.run(colour) == before
