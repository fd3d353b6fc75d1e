"""The tree of a recorded round, for the terminal and as data for the page's viewer."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from typing import Any

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from dartree_exp.console.printable import printable
from dartree_exp.records import RecordError, RoundRecord, Run, TreeRecord

PRUNED_NAMED = 8  # pruned children named per node in the terminal


def find_tree(run: Run, place: str) -> tuple[TreeRecord, RoundRecord | None]:
    """The recorded tree and round at SAMPLE:ROUND; SAMPLE is an id, or id/turn.

    Raises RecordError if the place is malformed or its tree was not recorded; the message lists
    the recorded ones.
    """
    sample, colon, number = place.rpartition(":")
    if not colon or not number.isdecimal():
        raise RecordError(
            f"--tree {place}: must be SAMPLE:ROUND, such as {_recorded(run)[0] or 'math-1:0'}"
        )
    for tree in run.trees:
        if tree.round == int(number) and sample in (
            f"{tree.id}/{tree.turn}",
            tree.id if not tree.turn else "",
        ):
            return tree, round_of(run, tree)
    known = "; ".join(_recorded(run)[1])
    raise RecordError(
        f"--tree {place}: no such tree in {run.path}; recorded: {known or 'none'} "
        "(record.trees=all force=true records all)"
    )


def _recorded(run: Run) -> tuple[str, list[str]]:
    """The first recorded place, and the recorded rounds of each sample."""
    rounds: dict[str, list[int]] = {}
    for tree in run.trees:
        rounds.setdefault(f"{tree.id}/{tree.turn}" if tree.turn else tree.id, []).append(tree.round)
    first = next((f"{name}:{numbers[0]}" for name, numbers in rounds.items()), "")
    return first, [
        f"{name} rounds {min(numbers)} to {max(numbers)}" for name, numbers in rounds.items()
    ]


def round_of(run: Run, tree: TreeRecord) -> RoundRecord | None:
    """The round of this tree; None if its record is missing."""
    return next(
        (r for r in run.rounds if r.sample_key == tree.sample_key and r.round == tree.round), None
    )


def print_tree(console: Console, tree: TreeRecord, round_: RoundRecord | None = None) -> None:
    """Draw the tree: the accepted path in bold green, other verified nodes plain, pruned nodes dim.

    Each token is followed by the log-probability of its path and, after #, its rank among its
    depth's candidates.
    """
    verified = set(range(len(tree.tokens)) if tree.verified is None else tree.verified)
    accepted = set(tree.accepted)
    children = tree.children()
    drawn = Tree(Text(visible(tree.text(tree.tokens[0])), style="bold"), guide_style="dim")
    stack = [(0, drawn)]
    while stack:
        node, branch = stack.pop()
        if node == tree.accepted[-1]:
            branch.add(
                Text(f"{visible(tree.text(tree.bonus))}  the target's own token", style="yellow")
            )
        for child in children[node]:
            if child in verified:
                stack.append((child, branch.add(_label(tree, child, child in accepted))))
        cut = [child for child in children[node] if child not in verified]
        if cut:
            branch.add(Text(_cut(tree, cut, children), style="dim"))
    console.print(_head(tree, round_, len(verified) - 1))
    console.print(drawn)


def _head(tree: TreeRecord, round_: RoundRecord | None, verified: int) -> Text:
    head = Text(f"{printable(tree.id)} turn {tree.turn}, round {tree.round}: ", style="bold")
    head.append(
        f"{len(tree.accepted)} tokens advanced, {verified} nodes verified of "
        f"{len(tree.tokens) - 1} scored"
    )
    if round_ is not None and round_.time:
        times = ", ".join(f"{stage} {1e3 * s:.1f} ms" for stage, s in round_.time.items())
        head.append(printable(f"\n{times}"), style="dim")
    head.append(printable(f"\n…{tree.context}"), style="dim")
    head.append(printable(tree.text(tree.tokens[0])), style="bold")
    head.append(
        printable("".join(tree.text(tree.tokens[node]) for node in tree.accepted[1:])),
        style="bold green",
    )
    head.append(printable(tree.text(tree.bonus)), style="yellow")
    return head


def _label(tree: TreeRecord, node: int, accepted: bool) -> Text:
    label = Text(visible(tree.text(tree.tokens[node])), style="bold green" if accepted else "")
    label.append(f"  {tree.scores[node]:.2f}", style="not bold dim")
    if tree.ranks is not None:
        label.append(f" #{tree.ranks[node]}", style="not bold dim")
    return label


def _cut(tree: TreeRecord, nodes: Sequence[int], children: Sequence[Sequence[int]]) -> str:
    def size(node: int) -> int:
        return 1 + sum(size(child) for child in children[node])

    named = ", ".join(visible(tree.text(tree.tokens[node])) for node in nodes[:PRUNED_NAMED])
    more = f" and {len(nodes) - PRUNED_NAMED} more" if len(nodes) > PRUNED_NAMED else ""
    total = sum(size(node) for node in nodes)
    return f"pruned: {named}{more}" + (
        f" ({total} nodes with their descendants)" if total > len(nodes) else ""
    )


def visible(text: str) -> str:
    """Token text with its white space made visible."""
    return printable(text.replace("\n", "⏎").replace("\t", "⇥").replace(" ", "·"))


def viewer_data(runs: Sequence[Run], names: Sequence[str], most: int) -> list[dict[str, Any]]:
    """The data of the page's viewer: runs with recorded trees, their samples, and the first rounds
    of each.

    most: rounds per run. Node lists are those of `TreeRecord`; `state` is 0 pruned, 1 verified, 2
    accepted.
    """
    data = []
    for run, name in zip(runs, names, strict=True):
        samples: dict[str, list[dict[str, Any]]] = {}
        rounds = {(r.sample_key, r.round): r for r in run.rounds} if run.trees else {}
        for tree in run.trees[:most]:
            samples.setdefault(f"{tree.id}/{tree.turn}" if tree.turn else tree.id, []).append(
                _viewed(tree, rounds.get((tree.sample_key, tree.round)))
            )
        if samples:
            shown = [{"id": id, "rounds": r} for id, r in samples.items()]
            data.append({"name": name, "samples": shown, "left_out": max(0, len(run.trees) - most)})
    return data


def _viewed(tree: TreeRecord, round_: RoundRecord | None) -> dict[str, Any]:
    verified = set(range(len(tree.tokens)) if tree.verified is None else tree.verified)
    accepted = set(tree.accepted)
    steps = [1.0] + [
        exp(min(0.0, s - tree.scores[p]))
        for s, p in zip(tree.scores[1:], tree.parents[1:], strict=True)
    ]
    return {
        "round": tree.round,
        "text": [tree.text(token) for token in tree.tokens],
        "token": tree.tokens,
        "parent": tree.parents,
        "score": [round(score, 3) for score in tree.scores],
        "step": [round(step, 3) for step in steps],
        "rank": tree.ranks,
        "state": [
            2 if n in accepted else 1 if n in verified else 0 for n in range(len(tree.tokens))
        ],
        "last": tree.accepted[-1],
        "bonus": tree.text(tree.bonus),
        "context": tree.context,
        "ms": {stage: round(1e3 * s, 2) for stage, s in round_.time.items()}
        if round_ is not None
        else {},
    }
