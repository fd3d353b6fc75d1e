"""What a user's own folder declares: a tree with a named method on it, and a head."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from dartree_exp.drafters.heads.config import HeadConfig, HeadSizes
from dartree_exp.drafters.heads.spec import HeadSpec
from dartree_exp.trees.spec import Published, TreeSpec


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
]
