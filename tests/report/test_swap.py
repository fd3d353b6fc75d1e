"""Swaps pair the runs that differ in one choice alone."""

import pytest

from dartree_exp.records import RecordError, Run, find_runs
from dartree_exp.report.__main__ import main
from dartree_exp.report.swap import swap_tables
from sample_records import mini_run, write_run


@pytest.fixture
def sweep(tmp_path):
    """Two heads on two trees, the second head ahead by one token on the pruned tree alone."""
    trees = {"chain": (0, 0), "pruned": (2, 3)}
    for tree, shifts in trees.items():
        for head, shift in zip(("domino", "dspark"), shifts, strict=True):
            write_run(
                tmp_path / f"{tree}_{head}",
                mini_run(shift),
                method=f"{tree}_{head}",
                tree__name=tree,
                drafter__name=head,
            )
    return tmp_path


def rows(sweep, key):
    (table,) = swap_tables(find_runs(sweep), key)
    return {
        (row[0].text, row[1].text): [cell.markdown or cell.text for cell in row[2:]]
        for row in table.rows
    }


def test_heads_are_compared_on_one_tree_only(sweep):
    found = rows(sweep, "drafter")
    assert len(found) == 2
    (pruned,) = (row for pair, row in found.items() if pair[0].startswith("pruned"))
    (chain,) = (row for pair, row in found.items() if pair[0].startswith("chain"))
    assert ("pruned_dspark", "pruned_domino") in found  # the one ahead first
    assert pruned[:2] == ["12", "+1.00 [+1.00, +1.00]"] and pruned[-1] == "yes"
    assert chain[1] == "+0.00 [+0.00, +0.00]" and chain[-1] == "no"


def test_trees_are_compared_on_one_head_only(sweep):
    found = rows(sweep, "tree")
    assert {tuple(name.split("_")[1] for name in pair) for pair in found} == {
        ("domino",) * 2,
        ("dspark",) * 2,
    }
    assert len(found) == 2 and all(row[-1] == "yes" for row in found.values())


def test_a_single_setting_is_a_swap_too_and_runs_of_equal_settings_are_none(sweep):
    write_run(
        sweep / "small", mini_run(1), method="pruned_domino", drafter__name="domino", budget=16
    )
    write_run(
        sweep / "again", mini_run(1), method="pruned_domino", drafter__name="domino", budget=16
    )
    assert len(rows(sweep, "tree.budget")) == 2  # each of the small ones against the large one


@pytest.mark.parametrize(
    ("key", "message"), [("head", "no such setting"), ("tree.width", "no two of these runs")]
)
def test_what_was_not_swapped_is_refused(sweep, key, message):
    with pytest.raises(RecordError, match=message):
        swap_tables([Run(path) for path in sweep.iterdir()], key)


def test_lossy_runs_are_refused_beside_exact_ones(sweep):
    write_run(
        sweep / "lossy", mini_run(exact=False), method="chain_domino", tree__name="chain", budget=32
    )
    with pytest.raises(RecordError, match="lossy runs cannot be compared"):
        swap_tables(find_runs(sweep), "tree.budget")


def test_the_command_writes_the_table(sweep, capsys):
    assert main([str(sweep), "--swap", "drafter", "--swap", "tree", "--latex"]) == 0
    said = (sweep / "swap_drafter.md").read_text()
    assert "of 2 comparisons without a true difference about 0.1" in said
    assert (
        (sweep / "swap_drafter.tex").exists()
        and (sweep / "swap_tree.md").exists()
        and "swapping drafter" in capsys.readouterr().out
    )
    assert main([str(sweep), "--swap", "nothing"]) == 2 and not (sweep / "swap_nothing.md").exists()


def test_too_few_prompts_and_copies_of_one_are_said_to_be_too_few(tmp_path):
    for name, shift in (("domino", 0), ("dspark", 2)):
        few = mini_run(shift, prompts=2)[:5]
        write_run(tmp_path / "few" / name, few, method=name, drafter__name=name)
        copies = mini_run(shift, prompts=4)[:8]
        for record in copies:
            record.prompt_sha256 = "one prompt"
        write_run(tmp_path / "copies" / name, copies, method=name, drafter__name=name)
    for folder, n in (("few", "5"), ("copies", "1")):
        [table] = swap_tables(find_runs(tmp_path / folder), "drafter")
        [row] = table.rows
        assert [row[0].text, row[2].text, row[-1].text] == ["dspark", n, "too few"]
        assert any("of 0 comparisons without a true difference" in note for note in table.notes)
