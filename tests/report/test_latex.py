"""LaTeX tables: escaped, with booktabs' rules, and as many columns as the table has."""

import re

import pytest

from dartree_exp.report.__main__ import main
from dartree_exp.report.latex import escape, latex
from dartree_exp.report.table import Cell, Table
from sample_records import mini_run, write_run


@pytest.mark.parametrize(
    ("plain", "escaped"),
    [
        (r"50% of a_b & c#1 {x} $y$", r"50\% of a\_b \& c\#1 \{x\} \$y\$"),
        (r"C:\path~^", r"C:\textbackslash{}path\textasciitilde{}\textasciicircum{}"),
        ("Δ τ 2.0× 1…3 –", r"$\Delta$ $\tau$ 2.0$\times$ 1\ldots{}3 --"),
        ("-0.20…-0.10", r"$-$0.20\ldots{}$-$0.10"),
        ("p-7 a-b 1e-5", "p-7 a-b 1e-5"),
        ('<b> | "', r"\textless{}b\textgreater{} \textbar{} \textquotedbl{}"),
    ],
)
def test_escapes(plain, escaped):
    assert escape(plain) == escaped


def test_a_table_keeps_its_cells_bold_and_rules():
    rows = [[Cell("a_b\nc=1"), Cell("1.00\n0.50…1.50", best=True)], [Cell("d"), Cell("2.00")]]
    text = latex(
        [Table("a title & more", ["run", "tau\nmacro"], rows, ["100% mine"], frozenset({0}))]
    )
    assert r"\caption{A title \& more}" in text and r"\begin{tabular}{lr}" in text
    assert r"run & tau macro \\" in text
    stacked = (
        r"\begin{tabular}[t]{@{}r@{}}\textbf{1.00}\\{\scriptsize 0.50\ldots{}1.50}\end{tabular}"
    )
    assert rf"a\_b\\{{\scriptsize c=1}}\end{{tabular}} & {stacked} \\" in text
    assert text.index(r"\midrule", text.index(r"a\_b")) < text.index("d & 2.00")
    assert r"100\% mine." in text


def test_the_command_writes_tables_that_are_well_formed(tmp_path, capsys):
    for index, budget in enumerate((16, 64)):
        write_run(tmp_path / f"run{index}", mini_run(index), budget=budget)
    assert main([str(tmp_path), "--latex"]) == 0
    text = (tmp_path / "comparison.tex").read_text()
    assert (tmp_path / "run0" / "table.tex").exists()
    assert r"dartree\_pruned\\{\scriptsize tree.budget=16}" in text
    for name in ("table", "tabular", "minipage"):
        assert text.count(rf"\begin{{{name}}}") == text.count(rf"\end{{{name}}}") > 0
    text = re.sub(r"\\begin\{tabular\}\[t\].*?\\end\{tabular\}", "cell", text)
    for body in re.findall(
        r"\\begin\{tabular\}\{(l r*|lr*)\}(.*?)\\end\{tabular\}", text, re.DOTALL
    ):
        lines = [line for line in body[1].splitlines() if line.endswith(r"\\")]
        assert {len(re.split(r"(?<!\\)&", line)) for line in lines} == {len(body[0])}
    assert re.sub(r"\\[%&_#${}]", "", text.partition("\n")[2]).count("%") == 0


def test_of_several_sweeps_each_gets_its_own_tables(tmp_path, capsys):
    for sweep, budgets in (("one", (16, 64)), ("two", (8, 32))):
        for index, budget in enumerate(budgets):
            write_run(tmp_path / sweep / f"run{index}", mini_run(index), budget=budget)
    assert main([str(tmp_path / "one"), str(tmp_path / "two"), "--latex"]) == 0
    own, other = "tree.budget=32", "tree.budget=16"
    text = (tmp_path / "two" / "comparison.tex").read_text()
    assert own in text and other not in text
