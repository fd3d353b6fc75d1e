"""Make the shape of a static tree: `python -m dartree_exp.training.rank_paths --drafter FOLDER
--data TEXT --out FILE`.

Held-out prompts are decoded with a drafter whose depths are independent. In each round the target's
next tokens are looked up among the best tokens of their depths, which gives the accuracy of every
depth and rank. Medusa's greedy rule makes the tree of `--nodes` paths from them (arXiv 2401.10774,
section 2.3.3). `tree.paths=FILE` uses the shape.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dartree_exp.budgets.fixed import FixedBudget
from dartree_exp.training.command import Parser, output_file, positive, run
from dartree_exp.training.errors import InputError
from dartree_exp.training.halves import decode_watched
from dartree_exp.training.tau import add_prompt_arguments, held_out_prompts

if TYPE_CHECKING:
    from dartree_exp.interfaces import DraftTree, RoundResult, RoundView


@dataclass
class Ranks(FixedBudget):
    """A budget policy that verifies everything and notes the best tokens of each depth of a round,
    and the tokens that the target then wrote.
    """

    depths: int
    count: int
    hits: np.ndarray = field(init=False)  # int64 [depths, count]
    seen: np.ndarray = field(init=False)  # int64 [depths], tokens looked up
    _open: list[tuple[int, list[list[int]]]] = field(default_factory=list)  # roots to look up
    _start: int = 0  # position of the last root

    def __post_init__(self) -> None:
        self.hits = np.zeros((self.depths, self.count), dtype=np.int64)
        self.seen = np.zeros(self.depths, dtype=np.int64)

    def trim(self, view: RoundView, tree: DraftTree, scorer: Any) -> DraftTree:
        if view.index == 0:
            self._open = []  # of another text
        menus = [
            scorer.top(1, d, self.count)[0].flatten().tolist() for d in range(1, self.depths + 1)
        ]
        self._open.append((view.start[0], menus))
        self._start = view.start[0]
        return tree

    def observe(self, result: RoundResult) -> None:
        """The round wrote its accepted drafts and the bonus token after its root."""
        written = [*result.accepted.tokens[0], result.accepted.bonus[0]]
        for position, token in enumerate(written, start=self._start + 1):
            for root, menus in self._open:
                depth = position - root
                if depth <= self.depths:
                    self.seen[depth - 1] += 1
                    if token in menus[depth - 1]:
                        self.hits[depth - 1, menus[depth - 1].index(token)] += 1
        after = self._start + len(written)
        self._open = [(root, menus) for root, menus in self._open if after - root < self.depths]

    def accuracies(self) -> list[list[float]]:
        """[depths][count]: how often the token of a rank was the right one."""
        shares = self.hits / np.maximum(self.seen, 1)[:, None]
        return [[round(p, 4) for p in row] for row in shares.tolist()]


def main(argv: list[str] | None = None) -> int:
    parser = Parser("rank_paths", __doc__, "--drafter drafter --data text.jsonl --out shape.json")
    parser.add_argument("--method", default="ddtree", help="preset that decodes, such as medusa")
    parser.add_argument("--nodes", type=positive, default=63, help="paths of the shape")
    parser.add_argument("--depth", type=positive, default=4, help="longest path")
    parser.add_argument("--ranks", type=positive, default=10, help="ranks of a depth")
    parser.add_argument("--samples", type=positive, default=8, help="held-out prompts per domain")
    add_prompt_arguments(parser)
    parser.add_argument(
        "--out", type=output_file, required=True, help="write the shape here (JSON)"
    )
    args = parser.parse_args(argv)

    from dartree_exp.assemble import load_parts, make_sampler
    from dartree_exp.config import compose
    from dartree_exp.records.files import write_json
    from dartree_exp.trees.rank_paths import expected_length, greedy_paths

    given = [f"drafter.path={args.drafter.resolve()}", f"engine.threads={args.threads}", *args.set]
    config = compose([f"method={args.method}", *given])
    samples = held_out_prompts(args)
    target, method = load_parts(config)
    if config.tree.scoring != "marginal":
        raise InputError(
            f"--method {args.method}: tree.scoring={config.tree.scoring}; the accuracies are those "
            "of independent depths, so it must be marginal"
        )
    ranks = Ranks(min(args.depth, method.depth), args.ranks)
    how = config.decoding
    decode_watched(
        target, method, ranks, samples, args.cap, lambda sample: make_sampler(how, sample.id)
    )
    if not ranks.seen.all():
        raise InputError(f"{len(samples)} prompts gave no tokens to look up; use more --samples")
    accuracies = ranks.accuracies()
    paths = greedy_paths(accuracies, args.nodes)
    said = (
        f"greedy construction from the accuracies of {config.drafter.name} on "
        f"{config.model.name}, {int(ranks.seen[0])} tokens of {len(samples)} held-out prompts, "
        f"T = {how.temperature:g}"
    )
    write_json(args.out, {"how": said, "accuracies": accuracies, "paths": paths})
    print(f"{len(paths)} paths, {expected_length(accuracies, paths):.2f} tokens a round expected")
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
