"""Verifiers by name (torch-free)."""

from __future__ import annotations

from dataclasses import dataclass

from dartree_exp.parts import Parts, Spec


@dataclass(frozen=True, kw_only=True)
class VerifierSpec(Spec):
    """A verifier, made with the knobs that it reads. exact: its answers have the target's own
    distribution; otherwise runs are marked as lossy. same_ids: at temperature > 0 it emits plain
    decoding's ids, so outputs can be judged by them; a greedy target's are judged always.
    proposals: the kinds of `DraftTree.proposal` that it is correct for.
    """

    exact: bool
    same_ids: bool = True
    proposals: tuple[str, ...] = ("best", "sampled", "distinct")


EXACT, REJECTION, TYPICAL = "exact", "rejection", "typical"
VERIFIERS = Parts(
    "verify.name",
    VerifierSpec(
        name=EXACT,
        target="dartree_exp.verify.exact:ExactMatch",
        meaning="a draft is accepted if it is the token that the target draws",
        exact=True,
    ),
    VerifierSpec(
        name=REJECTION,
        target="dartree_exp.verify.rejection:RejectionSampling",
        meaning="a sampled draft is accepted with probability min(1, p / q), else p - q is next",
        exact=True,
        same_ids=False,
        proposals=("sampled", "distinct"),
    ),
    VerifierSpec(
        name=TYPICAL,
        target="dartree_exp.verify.typical:TypicalAcceptance",
        meaning="LOSSY: a draft is accepted if p > min(threshold, alpha exp(-entropy)) (Medusa)",
        reads=("threshold", "alpha"),
        exact=False,
        same_ids=False,
    ),
)
