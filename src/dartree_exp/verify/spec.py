"""Verifiers by name (torch-free)."""

from __future__ import annotations

from dataclasses import dataclass

from dartree_exp.parts import Parts, Spec


@dataclass(frozen=True, kw_only=True)
class VerifierSpec(Spec):
    """A verifier. exact: its answers have the target's own distribution; otherwise runs are marked
    as lossy.
    """

    exact: bool


EXACT = "exact"
VERIFIERS = Parts(
    "verify.name",
    VerifierSpec(
        name=EXACT,
        target="dartree_exp.verify.exact:ExactMatch",
        meaning="a draft is accepted if it is the token that the target draws",
        exact=True,
    ),
)
