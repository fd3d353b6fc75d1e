"""Verifiers: which drafts the target's answer accepts (torch-free)."""

from __future__ import annotations

from dataclasses import dataclass

from dartree_exp.parts import Parts, Spec


@dataclass(frozen=True, kw_only=True)
class VerifierSpec(Spec):
    """A verifier. exact: its answers have the target's own distribution; one that is not exact is
    marked wherever it is shown.
    """

    exact: bool


EXACT = "exact"
VERIFIERS = Parts(
    "verify.name",
    VerifierSpec(
        name=EXACT,
        target="dartree_exp.verify.exact:ExactMatch",
        meaning="a draft is accepted where it is the token that the target draws",
        exact=True,
    ),
)
