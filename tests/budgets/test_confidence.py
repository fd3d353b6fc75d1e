"""The confidence budget on trees: whole paths end at the first doubtful draft, nothing else
goes.
"""

import pytest
import torch

from dartree_exp.budgets.confidence import ConfidenceBudget
from dartree_exp.interfaces import Block, DraftTree
from dartree_exp.trees.scorer import make_scorer

PARENTS = [-1, 0, 0, 1, 1, 2, 3, 5]
TOKENS = [9, 4, 5, 6, 7, 6, 8, 4]
DEPTHS = [0, 1, 1, 2, 2, 2, 3, 3]


class Told:
    """A confidence head that says, by (depth, token before), what it is told to."""

    def __init__(self, said: dict[tuple[int, int], float]) -> None:
        self.said = said

    def probability(self, hidden, previous, depth):
        assert hidden[:, 0].tolist() == (depth - 1).tolist(), (
            "the slot of a draft at depth d is d - 1"
        )
        return torch.tensor(
            [self.said.get(key, 0.9) for key in zip(depth.tolist(), previous.tolist(), strict=True)]
        )


def trimmed(said: dict, threshold: float) -> DraftTree:
    scores = -torch.tensor(DEPTHS, dtype=torch.float32)
    tree = DraftTree(
        *map(torch.tensor, (TOKENS, PARENTS, DEPTHS)), scores, torch.tensor([-1, *[0] * 7]), 7
    )
    hidden = torch.arange(3.0)[:, None]
    block = Block(hidden, torch.zeros(3, 10), None)
    scorer = make_scorer("marginal", block, None, 9, candidates=1, confidence=Told(said))
    return ConfidenceBudget(threshold).trim(None, tree, scorer).validate(7)


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ({}, [4, 5, 6, 7, 6, 8, 4]),
        ({(1, 9): 0.4}, []),  # the root's slot: a plain step
        ({(2, 4): 0.4}, [4, 5, 6, 4]),  # below token 4 at depth 1: both children and their subtree
        ({(2, 5): 0.4}, [4, 5, 6, 7, 8]),
        ({(3, 6): 0.4}, [4, 5, 6, 7, 6]),  # both tokens 6 at depth 2
        ({(2, 4): 0.5}, [4, 5, 6, 7, 6, 8, 4]),  # strictly below the threshold only
    ],
)
def test_paths_end_before_the_first_doubtful_draft(said: dict, left: list[int]):
    tree = trimmed(said, 0.5)
    assert tree.tokens[1:].tolist() == left
    assert tree.supertree_size == 7


def test_threshold_zero_keeps_all_and_asks_nothing():
    assert trimmed({(1, 9): 0.0}, 0.0).num_nodes == 7
