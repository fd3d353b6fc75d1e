"""Plots are drawn where the runs carry them and nowhere else, and their data is what the records
say.
"""

import re

import numpy as np
import pytest

from dartree_exp.metrics.stats import Estimate
from dartree_exp.records import RoundRecord, Run
from dartree_exp.report.__main__ import main
from dartree_exp.report.compare import in_order
from dartree_exp.report.figures import plots
from dartree_exp.report.plots.curves import Curve, curves, heat_map
from dartree_exp.report.plots.rounds import stage_bars
from dartree_exp.report.plots.style import COLOURS, svg
from dartree_exp.report.shares import branch_estimates, length_estimates, survival_estimates
from sample_records import mini_run, recorded_run, sample, write_run


def names_of(*runs):
    return [plot.name for plot in plots(in_order(runs))]


def test_a_single_run_has_no_curve_over_a_setting(tmp_path):
    assert names_of(write_run(tmp_path / "a", mini_run())) == ["survival", "stages"]
    assert names_of(recorded_run(tmp_path / "b")) == [
        "survival",
        "stages",
        "branches",
        "candidates",
    ]


def test_a_run_without_a_round_has_no_plot(tmp_path):
    plain = [sample(f"p{i}", [], emitted=9) for i in range(4)]
    assert names_of(write_run(tmp_path / "a", plain, method="ar")) == []


@pytest.mark.parametrize(
    ("knob", "values"),
    [("tree__budget", (16, 64)), ("tree__beta", (-0.4, 0.0)), ("tree__width", (4, 8))],
)
def test_a_swept_setting_gets_its_curves(tmp_path, knob, values):
    runs = [
        write_run(tmp_path / str(i), mini_run(i), **{knob: value}) for i, value in enumerate(values)
    ]
    name = knob.split("__")[1]
    assert names_of(*runs)[:2] == [f"tau_macro_{name}", f"speedup_{name}"]


def test_a_grid_gets_heat_maps_and_a_cross_does_not(tmp_path):
    def at(width, budget):
        return write_run(
            tmp_path / f"{width}_{budget}", mini_run(), tree__width=width, budget=budget
        )

    grid = {(w, b): at(w, b) for w in (4, 8, 12) for b in (16, 64)}
    assert {"grid_tau_macro_0", "grid_speedup_0"} <= set(names_of(*grid.values()))
    assert {"grid_tau_macro_0"} <= set(names_of(*grid.values(), at(8, "auto")))  # no column
    cross = [grid[w, 64] for w in (4, 8, 12)] + [grid[8, 16], at(8, 32)]
    assert not any(name.startswith("grid") for name in names_of(*cross))


def test_settings_that_differ_otherwise_never_share_a_curve(tmp_path):
    runs = [
        write_run(tmp_path / "a", mini_run(), budget=16, drafter__name="domino"),
        write_run(tmp_path / "b", mini_run(), budget=64, drafter__name="dflash"),
    ]
    assert not any("budget" in name for name in names_of(*runs))


def test_survival_is_the_share_of_rounds_with_its_interval():
    points = survival_estimates([sample("a", [1, 3]), sample("b", [2, 2])])
    assert [p.value for p in points] == [1.0, 0.75, 0.25]
    assert (points[2].low, points[2].high) == (0.0, 0.5)


def test_branch_ranks_divide_accepted_by_offered():
    def at(id, places, children):
        r = dict(
            root=1,
            accepted=[],
            accepted_tokens=[],
            accepted_ranks=None,
            bonus=2,
            tree_size=3,
            supertree_size=3,
        )
        more = dict(tree_depth=2, tokens_advanced=1 + len(places), emitted=1, start=3)
        return RoundRecord(
            id=id, turn=0, round=0, **r, **more, accepted_places=places, path_children=children
        )

    points = branch_estimates([at("a", [0, 1], [2, 3, 0]), at("b", [], [2])], {"a": "a", "b": "b"})
    # Rank 0 was offered three times and accepted once, rank 1 likewise, rank 2 was offered once and
    # not accepted.
    assert [p.value for p in points] == pytest.approx([1 / 3, 1 / 3, 0])
    assert points[1].low is not None
    copies = branch_estimates(
        [at("a", [0, 1], [2, 3, 0]), at("b", [], [2])], {"a": "same", "b": "same"}
    )
    assert [p.value for p in copies] == [p.value for p in points] and copies[1].low is None
    old = at("c", [], [1])
    old.accepted_places = old.path_children = None
    assert branch_estimates([old], {"a": "a"}) == []


def test_lengths_are_those_of_the_recorded_trees(tmp_path):
    path = recorded_run(tmp_path / "a", policy={"name": "libraspec", "costs": []})
    assert names_of(path)[-1] == "lengths_0"
    assert "lengths_0" not in names_of(recorded_run(tmp_path / "b", policy={"name": "fixed"}))
    trees = Run(path).trees
    # Nodes at depths 1, 2, 3, 1, 3, 2, each half as likely as its parent: 1.75 drafts, rounded.
    [(expected, found)] = length_estimates(trees, {"a": "a"})
    assert (expected, found.value, found.low) == (2, 4, None)
    trees[0].scores = [0.0] * 7  # six drafts are certain
    trees[1].verified = None  # the whole tree
    (few, some), (many, sure) = length_estimates(trees, {"a": "a"})
    assert (few, some.value, many, sure.value) == (2, (6 + 4) / 2, 6, 4)
    trees[2].tokens = trees[2].tokens[:1]  # a plain step
    assert length_estimates(trees[2:], {"a": "a"}) == []
    drawn = svg(plots([Run(path)])[-1].draw())
    assert "drafts verified" in drawn and "libraspec" not in drawn.split("dartree")[0]


def test_equal_data_gives_equal_svg_without_a_network_address():
    def drawn():
        return svg(
            curves(
                [Curve("a", [16, 64], [Estimate(2.0, 1.5, 2.5), Estimate(3.0, 2.5, 3.5)])],
                "B",
                "tau",
            )
        )

    assert drawn() == drawn()
    assert drawn().startswith("<svg") and ">tau<" in drawn()
    assert not re.search(r'(?:href|src)="http', drawn())


def test_a_page_s_svg_takes_the_page_s_colours():
    figure = stage_bars({"a": {"draft": 1.0, "verify": 2.0}})
    plain, themed = svg(figure), svg(figure, themed=True)
    assert COLOURS[0] in plain and "var(" not in plain
    assert f"var(--series-0, {COLOURS[0]})" in themed and "var(--ink, " in themed
    assert not re.search(rf"(?:fill|stroke): {COLOURS[0]}", themed)


def test_a_heat_map_writes_each_number_and_leaves_gaps():
    text = svg(
        heat_map(
            np.array([[1.25, np.nan], [2.5, 3.75]]), ["4", "8"], ["16", "64"], ("W", "B", "tau")
        )
    )
    assert all(f">{number}<" in text for number in ("1.25", "2.50", "3.75", "–"))


def test_many_runs_are_drawn_together_by_method_and_this_is_said(tmp_path):
    runs = [write_run(tmp_path / str(i), mini_run(i % 2), budget=8 + i) for i in range(10)]
    [survival] = [plot for plot in plots(in_order(runs)) if plot.name == "survival"]
    assert "runs of a method are pooled" in survival.caption


def test_the_command_writes_svg_files(tmp_path, capsys):
    recorded_run(tmp_path / "run")
    assert main([str(tmp_path / "run"), "--plots", str(tmp_path / "plots")]) == 0
    written = {path.name for path in (tmp_path / "plots").iterdir()}
    assert written == {"survival.svg", "stages.svg", "branches.svg", "candidates.svg"}
    assert Run(tmp_path / "run").trees
