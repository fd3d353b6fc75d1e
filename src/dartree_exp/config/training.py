"""The settings of `python -m dartree_exp.train`: schema, conflicts, and the settings that identify
a training. Defaults are in `conf/train.yaml` and `conf/training/`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from dartree_exp.config.knob import knob
from dartree_exp.config.method_schema import MOST_SEED
from dartree_exp.config.schema import MOST_THREADS, ModelConfig, TrackerConfig
from dartree_exp.config.validate import check_folder_name
from dartree_exp.drafters.heads.spec import HEADS, PRIORS
from dartree_exp.drafters.spec import FAMILIES
from dartree_exp.errors import ConfigError

ON_POLICY = "on_policy"
STAGES = ("backbone", "head", "joint", ON_POLICY)
TRAINED = tuple(name for name, family in FAMILIES.items() if family.trained)


@dataclass(kw_only=True)
class TrainingConfig:
    """The shape of the drafter, the objective and the optimiser. Heads trained on one backbone can
    be compared, because the steps do not depend on the head.
    """

    stage: str = knob(
        "part to train: backbone (DFlash), head (on the frozen backbone of init), joint (both, "
        "with Domino's curriculum), on_policy (the backbone of init and its length head, on text "
        "drafted with it: AdaFlash)",
        allowed=STAGES,
    )
    family: str = knob(
        "drafter family of the backbone: dflash (one block in parallel), eagle (EAGLE-3's layer, "
        "by training-time test), medusa (heads on the final hidden state)",
        allowed=TRAINED,
    )
    head: str = knob("correction head", allowed=HEADS)
    init: str | None = knob(
        "where to start: run folder of a training (averaged weights) or exported drafter (backbone)"
    )
    steps: int | None = knob("length of the training in optimiser steps", low=1)
    minutes: float | None = knob(
        "length of the training in minutes of each process's CPU time, earlier sessions included: "
        "a training that yields to other work is not shorter for it",
        above=0.0,
    )
    layers: int = knob("decoder layers of the backbone", low=1)
    block: int = knob(
        "slots per block, the root slot included: drafts after each root; steps of EAGLE's "
        "training-time test, Medusa's heads",
        low=2,
        high=1024,
    )
    causal: bool = knob("a slot sees only itself and earlier slots of its block (JetSpec)")
    short_block: int = knob("slots per block in the first part of the training", low=1)
    short_until: float = knob(
        "share of the training with short blocks, which teach as much for half the work",
        low=0.0,
        high=1.0,
    )
    ce: float = knob("weight of the cross-entropy with the text", low=0.0)
    l1: float = knob("weight of the L1 distance to the target's distribution (DSpark)", low=0.0)
    kl: float = knob("weight of KL(target, drafter), the forward KL (JetSpec)", low=0.0)
    rkl: float = knob(
        "weight of the clipped KL(drafter, target), the reverse KL; the cross-entropy is then with "
        "the target's likeliest id (AdaFlash)",
        low=0.0,
    )
    rkl_clip: float = knob(
        "largest reverse KL of a slot, after division by the sum of all weights of the step",
        above=0.0,
    )
    rkl_temperature: float = knob("temperature of both laws of the reverse KL", above=0.0)
    accept: float = knob(
        "weight of the expected accepted length of a latent mixture, sum_d P_d; P_d: the chance "
        "that d drafts of it are the text's (DBLast)",
        low=0.0,
    )
    accept_form: str = knob(
        "what falls as that length L grows: log, -log L; expected, -L", allowed=("log", "expected")
    )
    accept_threshold: float = knob(
        "a depth counts in that length only if it is reached with at least this probability",
        low=0.0,
        high=1.0,
    )
    gamma: float = knob("slot k of a block weighs exp(-k / gamma)", above=0.0)
    loss_slots: int = knob("slots drawn per block for the loss, in proportion to weight", low=1)
    vocab: int | None = knob(
        "drafting vocabulary: number of most frequent output ids kept; null: the target's", low=1
    )
    gru_width: int = knob("width of the GRU head's state", low=1)
    rank: int = knob("rank of the GRU head's output", low=1)
    markov_rank: int = knob("rank of a Markov head", low=1)
    swiglu_width: int = knob("inner width of the SwiGLU head", low=1)
    latents: int = knob("categories of a latent mixture", low=1)
    latent_rank: int = knob("rank of a latent mixture's offsets", low=1)
    latent_prior: str = knob(
        "what the prior of a latent mixture reads: the hidden state of the first drafting slot, or "
        "the root's embedding",
        allowed=PRIORS,
    )
    length_width: int = knob("inner width of the length head; 0: no such head", low=0)
    length_loss: str = knob(
        "error of the predicted length that is minimised: mse, mae", allowed=("mse", "mae")
    )
    length_lr: float = knob("peak learning rate of the length head", above=0.0)
    prefit_steps: int = knob("first steps, which train the length head alone", low=0)
    buffer: int = knob("on_policy: answers drafted before each phase of steps", low=1)
    passes: int = knob("on_policy: how often a phase visits every answer", low=1)
    cap: int = knob("on_policy: new tokens per prompt", low=8)
    draw_temperature: float = knob(
        "on_policy: temperature of the target that answers; 0: its likeliest tokens", low=0.0
    )
    pure_prefix: int = knob("first depths that the GRU head leaves alone", low=0)
    samples: int = knob("sequences per step, shared by the processes", low=1)
    anchors: int = knob("blocks per sequence", low=1)
    confidence_gradient: str = knob(
        "what the confidence loss trains: head, the confidence head alone; all, also W1 and a "
        "trained backbone (DSpark)",
        allowed=("head", "all"),
    )
    lr: float = knob("peak learning rate; it falls to 0", above=0.0)
    schedule: str = knob("how the learning rate falls", allowed=("linear", "cosine"))
    beta2: float = knob("second-moment decay of AdamW", low=0.0, high=1 - 1e-12)
    weight_decay: float = knob("weight decay of AdamW", low=0.0)
    warmup_steps: int = knob("steps over which the learning rate rises", low=1)
    clip: float = knob("largest norm of the gradient", above=0.0)
    ema: float = knob("decay of the averaged weights, which are exported", low=0.0, high=1.0)
    base_decay: float = knob(
        "share of a joint training over which the base loss fades out", low=0.0, high=1.0
    )
    mask_token_id: int = knob("token id of the target that fills a block", low=0)
    seed: int = knob("seed of weights, order and anchors", low=0, high=MOST_SEED)
    validate_every: int = knob("steps between two validations on held-out text", low=1)
    save_every: float = knob("seconds between two checkpoints", above=0.0)


@dataclass(kw_only=True)
class TrainConfig:
    """One training of a drafter for one target, on features that `training.capture` wrote."""

    model: ModelConfig
    training: TrainingConfig
    tracker: TrackerConfig
    data: str | None = knob("text that the target generated (.jsonl, .jsonl.gz), as captured")
    features: str | None = knob("folder of captured features")
    name: str | None = knob("name of the run folder; null: the configuration's hash")
    parts: list[str] = knob("Python modules to import first; they declare your own heads")
    threads: int = knob("CPU threads of each process", low=1, high=MOST_THREADS)
    force: bool = knob("train again even if done already or begun with other settings")
    output: str = knob("root folder of runs; trainings are in its subfolder `training`")


def check_training(config: TrainConfig) -> None:
    """Raise ConfigError for the first combination that cannot work or path that does not exist."""
    for message in _conflicts(config):
        raise ConfigError(message)


def _conflicts(config: TrainConfig) -> Iterator[str]:
    s = config.training
    if not config.output:
        yield "output=: must name a folder"
    if config.name is not None:
        check_folder_name("name", config.name)
    if (s.steps is None) == (s.minutes is None):
        yield (
            f"training.steps={_shown(s.steps)}, training.minutes={_shown(s.minutes)}: set exactly "
            "one of them"
        )
    if s.short_block > s.block:
        yield f"training.short_block={s.short_block}: must be at most training.block={s.block}"
    if s.pure_prefix >= s.block:
        yield f"training.pure_prefix={s.pure_prefix}: must be less than training.block={s.block}"
    if not s.ce + s.l1 + s.kl + s.rkl + s.accept:
        yield (
            "training.ce=0, training.l1=0, training.kl=0, training.rkl=0, training.accept=0: at "
            "least one must be above 0"
        )
    yield from _mixture_conflicts(s)
    if s.family != "dflash" and s.stage != "backbone":
        yield (
            f"training.family={s.family}, training.stage={s.stage}: correction heads are trained "
            "on dflash; the stage must be backbone"
        )
    if s.family != "dflash" and s.causal:
        yield f"training.family={s.family}, training.causal=true: only dflash has such blocks"
    if s.family == "medusa" and s.vocab is not None:
        yield (
            f"training.family=medusa, training.vocab={s.vocab}: Medusa's heads draft over the "
            "whole vocabulary; must be null"
        )
    yield from _length_conflicts(s)
    if s.stage == "head" and s.init is None:
        yield (
            "training.init=null: a head is trained on a backbone; give the run folder of its "
            "training, or an exported drafter"
        )
    if s.stage == ON_POLICY and s.init is None:
        yield (
            "training.init=null: on-policy distillation starts from a drafter; give an exported "
            "one, or the run folder of its training"
        )
    if s.stage == ON_POLICY and config.features is not None:
        yield (
            f"features={config.features}: training.stage={ON_POLICY} reads the features of its own "
            "rounds; leave it null"
        )
    wanted = {
        "data": "the text that the target generated (training.generate)",
        "features": "the folder that training.capture wrote",
    }
    if s.stage == ON_POLICY:
        del wanted["features"]
    for key, what in wanted.items():
        path = getattr(config, key)
        if path is None:
            yield f"{key}=null: give {what}"
        elif not os.path.exists(os.path.expanduser(path)):
            yield f"{key}={path}: does not exist; give {what}"
    if s.init is not None and not os.path.isdir(os.path.expanduser(s.init)):
        yield f"training.init={s.init}: no such folder"


def _mixture_conflicts(s: TrainingConfig) -> Iterator[str]:
    if s.stage not in ("head", "joint") or not HEADS[s.head].mixture:
        if s.accept:
            mixtures = ", ".join(name for name, head in HEADS.items() if head.mixture)
            yield (
                f"training.accept={s.accept:g}: is the accepted length of a mixture over blocks; "
                f"needs training.head={mixtures} and training.stage=head or joint, else 0"
            )
        return
    if s.l1 + s.kl + s.rkl:
        yield (
            f"training.l1={s.l1:g}, training.kl={s.kl:g}, training.rkl={s.rkl:g}, "
            f"training.head={s.head}: a mixture has no such loss; use training.ce and "
            "training.accept, and 0 here"
        )
    if s.loss_slots < s.block:
        yield (
            f"training.loss_slots={s.loss_slots}, training.head={s.head}: the slots of a mixture "
            f"depend on each other, so all of them are needed; use {s.block}"
        )
    if s.stage == "joint" and not s.ce:
        yield (
            f"training.ce=0, training.stage=joint, training.head={s.head}: the base loss is a "
            "cross-entropy; must be above 0"
        )


def _length_conflicts(s: TrainingConfig) -> Iterator[str]:
    if not s.length_width:
        if s.prefit_steps:
            yield (
                f"training.prefit_steps={s.prefit_steps}: there is no length head to fit; set "
                "training.length_width"
            )
        return
    if s.stage != ON_POLICY:
        yield (
            f"training.length_width={s.length_width}: only training={ON_POLICY} trains a length "
            "head; set it to 0"
        )
    if s.loss_slots < s.block or s.short_until:
        yield (
            f"training.loss_slots={s.loss_slots}, training.short_until={s.short_until}: a length "
            f"head needs every slot of whole blocks; use {s.block} and 0"
        )


def needs_finals(s: TrainingConfig) -> bool:
    """Whether the target's final hidden states are read: by the objective, or by the drafter."""
    return s.l1 > 0 or s.kl > 0 or s.rkl > 0 or s.family == "medusa"


def identity(config: TrainConfig) -> dict[str, Any]:
    """The settings that a training's result depends on, by dotted key."""
    plain = asdict(config)
    model = {key: value for key, value in plain["model"].items() if key != "drafters"}
    training = {key: value for key, value in plain["training"].items() if key != "save_every"}
    return {
        **{f"model.{key}": value for key, value in model.items()},
        **{f"training.{key}": value for key, value in training.items()},
        "data": config.data,
        "features": config.features,
    }


def _shown(value: object) -> str:
    return "null" if value is None else str(value)
