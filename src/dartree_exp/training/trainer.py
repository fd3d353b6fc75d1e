"""One process of a training: its data, optimiser, averages and checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel

from dartree_exp.config.training import TrainConfig, needs_finals
from dartree_exp.drafters.heads.latent import LatentHead
from dartree_exp.engines.target import Target
from dartree_exp.training.average import ema
from dartree_exp.training.batches import (
    MIN_OUTPUT,
    Captured,
    FeatureStore,
    Order,
    feature_scale,
    generator,
    load_captured,
    make_batch,
    random_anchors,
)
from dartree_exp.training.drafted import own_head
from dartree_exp.training.errors import InputError, first_line
from dartree_exp.training.model import (
    DraftModel,
    build_model,
    load_vocabulary,
    pass_through,
    trained_parameters,
)
from dartree_exp.training.objective import objective_of
from dartree_exp.training.provenance import with_machine
from dartree_exp.training.settings import block_at, corrects, lr_at, to_json
from dartree_exp.training.start import read_start
from dartree_exp.training.state import (
    load_state,
    optimizer_tensors,
    restore_optimizer,
    save_state,
)
from dartree_exp.training.step import Step, draw
from dartree_exp.training.team import Team
from dartree_exp.training.validate import ANCHORS, validate

POLL_STEPS = 10  # between two looks for new shards


class Trainer:
    """`number` = optimiser steps done, `seconds` = CPU time that each process spent on them,
    `running` = running means of the losses.

    folder: where the checkpoint is. record: what `training.capture` wrote about the features. ids:
    the drafting vocabulary, ascending. Raises UserError.
    """

    def __init__(
        self,
        config: TrainConfig,
        target: Target,
        folder: Path,
        record: dict[str, Any],
        ids: list[int],
        team: Team,
    ) -> None:
        self.settings = s = config.training
        self.folder, self.record, self.team = folder, record, team
        self.taps = tuple(record["taps"])
        if s.samples < team.size:
            raise InputError(
                f"training.samples={s.samples}: must be at least the number of processes, "
                f"{team.size}"
            )
        if s.rkl and team.size > 1:
            raise InputError(
                f"training.rkl={s.rkl:g}: is clipped over a whole step, so it needs one process, "
                f"not {team.size}"
            )
        self.vocabulary = load_vocabulary(target, ids, s.mask_token_id)
        self.order = Order(s.seed)
        self._open(config, target)
        self.number, self.seconds, self.blocks = 0, 0.0, 0
        self.machines: list[dict] | None = with_machine([])
        self.running: dict[str, float] = {}
        saved, start = load_state(folder), None
        if saved is None and s.init is not None:
            start = read_start(Path(s.init).expanduser(), s, self.taps, self.vocabulary.ids)
        if saved is not None and saved[1].get("data") not in (None, record):
            raise InputError(
                f"{folder}: the checkpoint was trained on other data than {config.data} and "
                f"{config.features}"
            )
        scale: Tensor | None = start.scale if start else None
        if saved:
            scale = saved[0]["model"]["feature_scale"]
        if scale is None:
            scale = self._scale()
        self.model: DraftModel = build_model(target, s, self.taps, scale)
        own = own_head(self.model.backbone)
        if own is not None:
            own.data.copy_(self.vocabulary.head)
        where = folder if saved else f"training.init={s.init}"
        try:
            if saved:
                self.model.load_state_dict(saved[0]["model"])
            elif start:
                self.model.load_state_dict({**self.model.state_dict(), **start.under(scale)})
                pass_through(self.model, deeper_than=start.layers)
        except (RuntimeError, KeyError) as error:  # tensors that are missing or of other sizes
            raise InputError(
                f"{where}: weights of other sizes than these settings ({first_line(error)[:200]})"
            ) from error
        self._prepare()
        if saved:
            self._resume(*saved)

    def _open(self, config: TrainConfig, target: Target) -> None:
        """Where samples come from."""
        features = Path(config.features or "").expanduser()
        self.store = FeatureStore(features, self.taps, needs_finals(self.settings))
        self.held = load_captured(features, 0, self.taps, needs_finals(self.settings))
        if not self.held:
            raise InputError(f"{features}: no held-out sample has {MIN_OUTPUT} output tokens")

    def _scale(self) -> Tensor:
        """What features are multiplied by in a training that begins; float32 [n * H]."""
        return feature_scale(self.held)

    def _next(self) -> list[Captured]:
        """The samples of the next step."""
        if self.number % POLL_STEPS == 0:
            self._poll()
        return [self.store.samples[i] for i in self.order.take(self.settings.samples)]

    def _prepare(self) -> None:
        """Averages, optimiser, and what both and the losses need of the modules."""
        s = self.settings
        self.average = AveragedModel(self.model, multi_avg_fn=ema(s.ema))
        for model in (self.model, self.averaged):
            if model.head is not None:
                model.head.bind(self.vocabulary.embed, lm_head=self.vocabulary.head)
            model.requires_grad_(False)
        self.parameters = trained_parameters(self.model, s.stage)
        for parameter in self.parameters:
            parameter.requires_grad_(True)
        # The gradients of confidence and length head must not shrink the others' by way of the
        # common norm; Adam forgives their size.
        beside = [m for m in (self.model.confidence, self.model.length) if m is not None]
        apart = [id(p) for module in beside for p in module.parameters()]
        self.clipped = [p for p in self.parameters if id(p) not in apart]
        groups = [{"params": self.parameters, "peak": s.lr}]
        if self.model.length is not None:
            head = list(self.model.length.parameters())
            groups = [{"params": self.clipped, "peak": s.lr}, {"params": head, "peak": s.length_lr}]
        self.optimizer = torch.optim.AdamW(
            groups,
            lr=s.lr,
            betas=(0.9, s.beta2),
            weight_decay=s.weight_decay,
            fused=True,
        )
        self.loss = self.team.wrapped(Step(self.model, s, self.vocabulary))

    @property
    def averaged(self) -> DraftModel:
        """The model with the averaged weights."""
        model = self.average.module
        assert isinstance(model, DraftModel)
        return model

    def progress(self) -> float:
        """Share of the training that is done, 0..1."""
        s = self.settings
        used = self.number / s.steps if s.steps else self.seconds / (60 * (s.minutes or 1))
        return min(1.0, used)

    def step(self) -> None:
        """One optimiser step on one batch, of which each process has its share.

        Samples, anchors and slots depend on the step and on the place in the batch alone, so that
        the number of processes changes nothing but the order of additions.
        """
        s, team, progress = self.settings, self.team, self.progress()
        chosen = self._next()
        mine = range(team.rank, len(chosen), team.size)
        samples = [chosen[place] for place in mine]
        draws = [generator(s.seed, 2, self.number, place) for place in mine]
        anchors = [
            random_anchors(sample, s.anchors, rng)
            for sample, rng in zip(samples, draws, strict=True)
        ]
        scale = self.model.feature_scale
        batch = make_batch(samples, anchors, block_at(s, progress), scale, self.vocabulary)
        drawn = draw(batch, s, draws)
        # Gradients become means over the processes; of sums over all weights they must be a sum.
        totals = [total / team.size for total in team.sums(drawn.totals)]
        loss = self.loss(batch, drawn, totals, progress, self.number < s.prefit_steps)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.clipped, s.clip)
        for group in self.optimizer.param_groups:
            group["lr"] = lr_at(s, progress, self.number, group["peak"])
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)
        self.average.update_parameters(self.model)
        self.number += 1
        self.blocks += len(chosen) * s.anchors
        losses = {"base": loss.base, "final": loss.final, "confidence": loss.confidence}
        if self.model.length is not None:
            losses["length"] = loss.length
        if corrects(s.stage) and isinstance(self.model.head, LatentHead):
            losses["accepted"] = loss.accepted
        means = [x / team.size for x in team.sums(list(losses.values()))]
        for key, value in zip([*losses, "grad_norm"], [*means, float(norm)], strict=True):
            old = self.running.get(key, value)
            self.running[key] = round(old + 0.05 * (value - old), 4)

    def validate(self) -> dict[str, Any]:
        """A line of the curve: held-out numbers of the averaged weights."""
        s, model = self.settings, self.averaged
        head = model.head if corrects(s.stage) else None
        scale = model.feature_scale
        result = validate(model.backbone, head, scale, self.held, self.vocabulary, s.block, ANCHORS)
        where = {"step": self.number, "seconds": round(self.seconds, 1), "stage": s.stage}
        return {**where, **self.running, **result}

    def said(self, row: dict[str, Any]) -> str:
        """A line of the curve in words."""
        return (
            f"held out at step {row['step']}: {row['chain']} tokens per round of a linear draft, "
            f"accuracy {row['accuracy'][:6]}"
        )

    def seen(self) -> dict[str, Any]:
        """What was trained on, for the checkpoint."""
        return {
            "shards": self.store.shards,
            "samples": len(self.store.samples),
            "tokens": sum(len(x.ids) for x in self.store.samples),
        }

    def save(self) -> None:
        """Write the checkpoint."""
        tensors = {
            "model": dict(self.model.state_dict()),
            "ema": dict(self.averaged.named_parameters()),
            "optimizer": optimizer_tensors(self.optimizer),
            "vocabulary": {"ids": self.vocabulary.ids},
        }
        meta = {
            "step": self.number,
            "seconds": self.seconds,
            "blocks": self.blocks,
            "running": self.running,
            "settings": to_json(self.settings, self.taps),
            "init": self.settings.init and str(Path(self.settings.init).expanduser().resolve()),
            **self.seen(),
            "order": self.order.state(),
            "workers": self.team.size,
            "objective": objective_of(self.settings),
            "machines": self.machines,
            "data": self.record,
        }
        save_state(self.folder, {**tensors, **self._tensors()}, meta)

    def _tensors(self) -> dict[str, dict[str, Tensor]]:
        """Further groups of tensors of the checkpoint."""
        return {}

    def _resume(self, tensors: dict[str, dict[str, Tensor]], meta: dict[str, Any]) -> None:
        restore_optimizer(self.optimizer, tensors["optimizer"])
        self.averaged.load_state_dict(tensors["ema"], strict=False)  # it has no buffers
        self.number, self.seconds, self.blocks = meta["step"], meta["seconds"], meta["blocks"]
        self.average.n_averaged.fill_(self.number)
        self.running = dict(meta.get("running", {}))
        # A run begun without this record must not look as if this machine had done all of it.
        self.machines = with_machine(meta["machines"]) if meta.get("machines") else None
        self.order.restore(meta["order"])
        self._refill(tensors, meta)

    def _refill(self, tensors: dict[str, dict[str, Tensor]], meta: dict[str, Any]) -> None:
        """Take back the samples of a checkpoint."""
        self.store.grow(meta["shards"])

    def _poll(self) -> None:
        """Take in shards that have been captured since; all processes take the same ones."""
        [count] = self.team.follow([self.store.available()])
        new = self.store.grow(int(count))
        if new:
            self.order.add(new)
