"""What a training run minimises, as data for checkpoints and cards, beside what was published for
that head.
"""

from __future__ import annotations

from typing import Any

from dartree_exp.config.training import TrainingConfig
from dartree_exp.drafters.heads.spec import HEADS
from dartree_exp.training.settings import corrects

BASE, CORRECTED = "cross-entropy of the base logits", "cross-entropy of the corrected logits"
MIXED = "cross-entropy of the mixture, its category summed out"
ACCEPTED = {
    "log": "negative logarithm of the mixture's expected accepted length",
    "expected": "negative expected accepted length of the mixture",
}
L1 = "L1 distance to the target's distribution"
KL = "KL divergence of the {logits} logits from the target's distribution"
REVERSE_KL = (
    "reverse KL divergence of the {logits} logits at temperature {temperature:g}, at most {clip:g} "
    "a slot after division by the sum of weights"
)
LIKELIEST = " with the target's likeliest id"
LENGTH = {"mse": "squared error of the length head", "mae": "absolute error of the length head"}
CONFIDENCE = "binary cross-entropy of the confidence head"
DSPARK = {
    "terms": [
        {"loss": CORRECTED, "weight": "0.1"},
        {"loss": L1, "weight": "0.9"},
        {"loss": CONFIDENCE, "weight": "1"},
    ],
    "schedule": "cosine",
}
DSPARK_GAMMA = {7: 4.0, 16: 7.0}
"""As published for DSpark's heads (arXiv 2607.05147 and its released configuration); gamma by slots
of a block.
"""


def objective_of(settings: TrainingConfig) -> dict[str, Any]:
    """`terms` (loss, weight), `gamma` of the slot weights exp(-k / gamma) (None: no term has them),
    `schedule` of the learning rate.
    """
    mixture = corrects(settings.stage) and HEADS[settings.head].mixture
    corrected = MIXED if mixture else CORRECTED
    if settings.stage == "joint":
        share = f"from 1 to 0 over {100 * settings.base_decay:g} % of the run"
        shares = [("base", BASE, share), ("corrected", corrected, "the rest")]
    else:
        head = corrects(settings.stage)
        shares = [("corrected", corrected, "") if head else ("base", BASE, "")]
    label = LIKELIEST if settings.rkl else ""
    terms = [
        {"loss": loss, "weight": share if share and weight == 1 else f"{weight:g} {share}".strip()}
        for logits, entropy, share in shares
        for loss, weight in (
            (entropy + label, settings.ce),
            (L1, settings.l1),
            (KL.format(logits=logits), settings.kl),
            (
                REVERSE_KL.format(
                    logits=logits, temperature=settings.rkl_temperature, clip=settings.rkl_clip
                ),
                settings.rkl,
            ),
        )
        if weight
    ]
    if mixture and settings.accept:
        terms.append(_acceptance(settings, shares[-1][2]))
    if settings.length_width:
        terms.append({"loss": LENGTH[settings.length_loss], "weight": "1"})
    if corrects(settings.stage) and HEADS[settings.head].confident:
        terms.append({"loss": CONFIDENCE, "weight": "1"})
    gamma = settings.gamma if settings.ce or not mixture else None
    return {"terms": terms, "gamma": gamma, "schedule": settings.schedule}


def _acceptance(settings: TrainingConfig, share: str) -> dict[str, str]:
    loss = ACCEPTED[settings.accept_form]
    if settings.accept_threshold:
        loss += f", of depths reached with probability {settings.accept_threshold:g} or more"
    weight = share if share and settings.accept == 1 else f"{settings.accept:g} {share}".strip()
    return {"loss": loss, "weight": weight}


def sentences(objective: dict[str, Any], head: str | None, block: int) -> str:
    """The objective in words; for a Markov head (None: no head was trained) also what differs from
    the published one.
    """
    weights = "" if objective["gamma"] is None else f"{_slots(objective['gamma'])}; "
    text = f"Objective: {_terms(objective)}; {weights}learning rate: {objective['schedule']} decay."
    if head is None or not HEADS[head].confident:
        return text
    gamma = DSPARK_GAMMA.get(block)
    published = (
        f"{_terms(DSPARK)}; "
        f"{'gamma not stated for this block' if gamma is None else _slots(gamma)}; cosine decay"
    )
    parts = {
        "the loss": objective["terms"] == DSPARK["terms"],
        "gamma": gamma is None or objective["gamma"] == gamma,
        "the schedule": objective["schedule"] == DSPARK["schedule"],
    }
    differing = [name for name, same in parts.items() if not same]
    verdict = (
        f"This run differs in {', '.join(differing)}." if differing else "This run has the same."
    )
    return f"{text} Published for DSpark with blocks of {block}: {published}. {verdict}"


def _terms(objective: dict[str, Any]) -> str:
    return " + ".join(f"{term['loss']} (weight {term['weight']})" for term in objective["terms"])


def _slots(gamma: float) -> str:
    return f"slot k weighs exp(-k/{gamma:g})"
