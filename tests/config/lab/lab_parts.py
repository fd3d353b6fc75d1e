"""What a user's own folder declares: a tree with a named method on it, a head, and one of each
other part.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from dartree_exp.budgets.spec import BudgetSpec
from dartree_exp.drafters.heads.config import HeadConfig, HeadSizes
from dartree_exp.drafters.heads.spec import HeadSpec
from dartree_exp.engines.spec import EngineSpec
from dartree_exp.trees.published import Published
from dartree_exp.trees.spec import ScorerSpec, TreeSpec
from dartree_exp.verify.spec import VerifierSpec


@dataclass(frozen=True)
class TanhConfig(HeadConfig):
    lab_rank: int
    kind = "tanh"
    pure_draft_prefix_len = 0

    @classmethod
    def read(
        cls, projector: str | None, get: Callable[..., Any], need: Callable[[str], Any]
    ) -> "TanhConfig":
        return cls(need("lab_rank"))

    @classmethod
    def fresh(cls, kind: str, sizes: HeadSizes) -> "TanhConfig":
        return cls(sizes.rank)

    def to_json(self) -> dict[str, Any]:
        return {"projector_type": "lab", **asdict(self)}


PARTS = [
    TreeSpec(
        name="tapered",
        target="lab_code:TaperedBuilder",
        meaning="level by level, each half as wide as the one above",
        reads=("children", "child_order", "narrow_by_budget"),
        published={
            "lab_tree": Published(
                "tanh", "conditional", {"normalise": "candidates"}, free=("candidates",)
            )
        },
    ),
    HeadSpec(
        name="tanh",
        target="lab_code:TanhHead",
        config="lab_parts:TanhConfig",
        drafter="lab",
        projectors=("lab",),
        meaning="squashed Markov head (lab)",
    ),
    ScorerSpec(name="mine", target="lab_code:MyScorer", meaning="base logits", corrects=False),
    BudgetSpec(name="half", target="lab_code:HalfBudget", meaning="half of tree.budget"),
    VerifierSpec(name="first", target="lab_code:FirstDraw", meaning="as exact", exact=True),
    EngineSpec(name="plain", target="lab_code:PlainEngine", meaning="as eager"),
]
