"""One process of a training: its data, optimiser, averages and checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel

from dartree_exp.config.training import TrainConfig, needs_finals
from dartree_exp.engines.target import Target
from dartree_exp.training.batches import (
    MIN_OUTPUT,
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
from dartree_exp.training.settings import block_at, lr_at, to_json
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
        features = Path(config.features or "").expanduser()
        self.vocabulary = load_vocabulary(target, ids, s.mask_token_id)
        self.store = FeatureStore(features, self.taps, needs_finals(s))
        self.held = load_captured(features, 0, self.taps, needs_finals(s))
        if not self.held:
            raise InputError(f"{features}: no held-out sample has {MIN_OUTPUT} output tokens")
        self.order = Order(s.seed)
        self.number, self.seconds, self.blocks = 0, 0.0, 0
        self.machines: list[dict] | None = with_machine([])
        self.running: dict[str, float] = {}
        saved, start = load_state(folder), None
        if saved is None and s.init is not None:
            start = read_start(Path(s.init).expanduser(), s, self.taps, self.vocabulary.ids)
        if saved is not None and saved[1].get("data") not in (None, record):
            raise InputError(
                f"{folder}: the checkpoint was trained on other features than {features}"
            )
        scale: Tensor | None = start.scale if start else None
        if saved:
            scale = saved[0]["model"]["feature_scale"]
        if scale is None:
            scale = feature_scale(self.held)
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
        self._poll()

    def _prepare(self) -> None:
        """Averages, optimiser, and what both and the losses need of the modules."""
        s = self.settings
        self.average = AveragedModel(self.model, multi_avg_fn=_ema(s.ema))
        for model in (self.model, self.averaged):
            if model.head is not None:
                model.head.bind(self.vocabulary.embed, lm_head=self.vocabulary.head)
            model.requires_grad_(False)
        self.parameters = trained_parameters(self.model, s.stage)
        for parameter in self.parameters:
            parameter.requires_grad_(True)
        # The confidence head's gradient must not shrink the others' by way of the common norm; Adam
        # forgives its size.
        confidence = self.model.confidence
        apart = [] if confidence is None else [id(p) for p in confidence.parameters()]
        self.clipped = [p for p in self.parameters if id(p) not in apart]
        self.optimizer = torch.optim.AdamW(
            self.parameters,
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
        if self.number % POLL_STEPS == 0:
            self._poll()
        s, team, progress = self.settings, self.team, self.progress()
        mine = range(team.rank, s.samples, team.size)
        chosen = self.order.take(s.samples)
        samples = [self.store.samples[chosen[place]] for place in mine]
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
        loss = self.loss(batch, drawn, totals, progress)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.clipped, s.clip)
        for group in self.optimizer.param_groups:
            group["lr"] = lr_at(s, progress, self.number)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)
        self.average.update_parameters(self.model)
        self.number += 1
        self.blocks += s.samples * s.anchors
        means = [x / team.size for x in team.sums([loss.base, loss.final, loss.confidence])]
        names = ("base", "final", "confidence", "grad_norm")
        for key, value in zip(names, [*means, float(norm)], strict=True):
            old = self.running.get(key, value)
            self.running[key] = round(old + 0.05 * (value - old), 4)

    def validate(self) -> dict[str, Any]:
        """A line of the curve: held-out numbers of the averaged weights."""
        s, model = self.settings, self.averaged
        head = None if s.stage == "backbone" else model.head
        scale = model.feature_scale
        result = validate(model.backbone, head, scale, self.held, self.vocabulary, s.block, ANCHORS)
        where = {"step": self.number, "seconds": round(self.seconds, 1), "stage": s.stage}
        return {**where, **self.running, **result}

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
            "shards": self.store.shards,
            "samples": len(self.store.samples),
            "tokens": sum(len(x.ids) for x in self.store.samples),
            "order": self.order.state(),
            "workers": self.team.size,
            "objective": objective_of(self.settings),
            "machines": self.machines,
            "data": self.record,
        }
        save_state(self.folder, tensors, meta)

    def _resume(self, tensors: dict[str, dict[str, Tensor]], meta: dict[str, Any]) -> None:
        restore_optimizer(self.optimizer, tensors["optimizer"])
        self.averaged.load_state_dict(tensors["ema"], strict=False)  # it has no buffers
        self.number, self.seconds, self.blocks = meta["step"], meta["seconds"], meta["blocks"]
        self.average.n_averaged.fill_(self.number)
        self.running = dict(meta.get("running", {}))
        # A run begun without this record must not look as if this machine had done all of it.
        self.machines = with_machine(meta["machines"]) if meta.get("machines") else None
        self.store.grow(meta["shards"])
        self.order.restore(meta["order"])

    def _poll(self) -> None:
        """Take in shards that have been captured since; all processes take the same ones."""
        [count] = self.team.follow([self.store.available()])
        new = self.store.grow(int(count))
        if new:
            self.order.add(new)


def _ema(decay: float) -> Any:
    """The update of `AveragedModel`: an exponential average whose decay grows to `decay`, so that
    the first weights do not stay in it for long.
    """

    @torch.no_grad()
    def update(averages: list[Tensor], current: list[Tensor], count: Tensor) -> None:
        n = int(count)
        torch._foreach_lerp_(averages, current, 1 - min(decay, (n + 1) / (n + 10)))

    return update
