"""The types of the decode loop: the values that a drafter, a builder, a policy, a verifier and an
engine exchange, and their protocols. Imports torch, jaxtyping and the standard library only.

`*R` are leading request axes. The loop always has one, of R requests (1 in a plain run). Scorers,
level-wise builders and masks act on the last axes alone, so they also take tensors of one request
without that axis. Requests of different size are padded to one shape; each has a length or size.
"""

from dartree_exp.interfaces.heads import ConfidenceHead, CorrectionHead, LengthHead
from dartree_exp.interfaces.parts import (
    Best,
    BudgetPolicy,
    Builder,
    Drafter,
    DraftSession,
    Draws,
    Engine,
    Sample,
    SamplingScorer,
    Scorer,
    Top,
    Verifier,
)
from dartree_exp.interfaces.tree import DraftLaws, DraftTree
from dartree_exp.interfaces.values import (
    NO_OVERHEAD,
    Accepted,
    Block,
    Commit,
    Forward,
    Limits,
    Opening,
    Overhead,
    Probes,
    RoundResult,
    RoundView,
    Rows,
)

__all__ = [
    "NO_OVERHEAD",
    "Accepted",
    "Best",
    "Block",
    "BudgetPolicy",
    "Builder",
    "Commit",
    "ConfidenceHead",
    "CorrectionHead",
    "DraftLaws",
    "DraftSession",
    "DraftTree",
    "Drafter",
    "Draws",
    "Engine",
    "Forward",
    "LengthHead",
    "Limits",
    "Opening",
    "Overhead",
    "Probes",
    "RoundResult",
    "RoundView",
    "Rows",
    "Sample",
    "SamplingScorer",
    "Scorer",
    "Top",
    "Verifier",
]
