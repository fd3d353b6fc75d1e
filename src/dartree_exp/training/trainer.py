"""One process of a training run: its data, optimiser, averages, checkpoints and log."""

from __future__ import annotations

import argparse
import sys

import torch
import torch.distributed as dist
from torch import Tensor

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
from dartree_exp.training.errors import InputError, first_line
from dartree_exp.training.model import (
    DraftModel,
    build_model,
    load_vocabulary,
    step_gradients,
    trained_parameters,
)
from dartree_exp.training.objective import objective_of
from dartree_exp.training.provenance import with_machine
from dartree_exp.training.settings import TrainSettings, from_json, to_json
from dartree_exp.training.start import starting_state
from dartree_exp.training.state import (
    append_line,
    load_state,
    optimizer_tensors,
    restore_optimizer,
    save_state,
)
from dartree_exp.training.validate import ANCHORS, validate

POLL_STEPS = 10


class Trainer:
    """See `dartree_exp.training.train`; `number` = optimiser steps done, `seconds` = wall clock
    spent on them.
    """

    def __init__(
        self, args: argparse.Namespace, settings: TrainSettings, ids: list[int], rank: int
    ) -> None:
        self.args, self.settings, self.rank = args, settings, rank
        self.vocabulary = load_vocabulary(args.target, ids, settings.mask_token_id)
        self.store = FeatureStore(args.features, settings.taps)
        self.held = load_captured(args.features, 0, settings.taps)
        if not self.held:
            raise InputError(f"{args.features}: no held-out sample has {MIN_OUTPUT} output tokens")
        self.order = Order(settings.seed)
        self.number, self.seconds, self.blocks = 0, 0.0, 0
        self.machines: list[dict] | None = with_machine([])
        self.running: dict[str, float] = {}

    def resume_or_start(self) -> None:
        """Continue from the run's checkpoint, else from --init, else from fresh seeded weights."""
        saved = load_state(self.args.out)
        start = (
            starting_state(self.args.init, self.vocabulary.ids)
            if self.args.init and not saved
            else None
        )
        if saved:
            self._check_settings(saved[1]["settings"])
            if saved[1].get("data") and saved[1]["data"] != self.args.record:
                raise InputError(
                    f"{self.args.out}: the checkpoint was trained on other features than "
                    f"{self.args.features}"
                )
        begun = saved or start
        scale = begun[0]["model"]["feature_scale"] if begun else feature_scale(self.held)
        self.model: DraftModel = build_model(self.args.target, self.settings, scale)
        self.model.head.bind(self.vocabulary.embed)
        try:
            if saved:
                self.model.load_state_dict(saved[0]["model"])
            elif start:
                self._start_from(*start)
        except (RuntimeError, KeyError) as error:  # tensors that are missing or of other sizes
            where = self.args.out if saved else f"--init {self.args.init}"
            raise InputError(
                f"{where}: weights of other sizes than these settings ({first_line(error)[:200]})"
            ) from error
        self.parameters = trained_parameters(self.model, self.settings.stage)
        # The confidence head's gradient must not shrink the others' by way of the common norm; Adam
        # forgives its size.
        apart = (
            []
            if self.model.confidence is None
            else [id(p) for p in self.model.confidence.parameters()]
        )
        self.clipped = [p for p in self.parameters if id(p) not in apart]
        for parameter in self.model.parameters():
            parameter.requires_grad_(False)
        for parameter in self.parameters:
            parameter.requires_grad_(True)
        self.optimizer = torch.optim.AdamW(
            self.parameters,
            lr=self.settings.lr,
            betas=(0.9, self.settings.beta2),
            weight_decay=self.settings.weight_decay,
            fused=True,
        )
        self.average = [p.detach().clone() for p in self.model.parameters()]
        if self.args.init and self.rank == 0:
            (self.args.out / "init.txt").write_text(f"{self.args.init.resolve()}\n")
        if saved:
            tensors, meta = saved
            restore_optimizer(self.optimizer, tensors["optimizer"])
            names = [name for name, _ in self.model.named_parameters()]
            self.average = [tensors["ema"][name].clone() for name in names]
            self.number, self.seconds, self.blocks = meta["step"], meta["seconds"], meta["blocks"]
            # A run begun without this record must not look as if this machine had done all of it.
            self.machines = with_machine(meta["machines"]) if meta.get("machines") else None
            self.store.grow(meta["shards"])
            self.order.restore(meta["order"])
        self._poll()

    def progress(self, args: argparse.Namespace) -> float:
        """Share of the budget used, 0..1."""
        used = self.number / args.steps if args.steps else self.seconds / (60 * args.minutes)
        return min(1.0, used)

    def step(self) -> None:
        """One optimiser step on one batch per process."""
        if self.number % POLL_STEPS == 0:
            self._poll()
        s, progress = self.settings, self.progress(self.args)
        rng = generator(s.seed, 2, self.number, self.rank)
        share = self.order.take(s.samples * self.args.workers)[self.rank :: self.args.workers]
        samples = [self.store.samples[i] for i in share]
        anchors = [random_anchors(sample, s.anchors, rng) for sample in samples]
        batch = make_batch(
            samples, anchors, s.block_at(progress), self.model.feature_scale, self.vocabulary
        )
        loss = step_gradients(self.model, batch, s, self.vocabulary, progress, rng)
        self._share_gradients()
        norm = torch.nn.utils.clip_grad_norm_(self.clipped, s.clip)
        for group in self.optimizer.param_groups:
            group["lr"] = s.lr_at(progress, self.number)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)
        decay = min(s.ema, (self.number + 1) / (self.number + 10))
        with torch.no_grad():
            torch._foreach_lerp_(self.average, list(self.model.parameters()), 1 - decay)
        self.number += 1
        self.blocks += s.samples * s.anchors * self.args.workers
        numbers = {
            "base": loss.base,
            "final": loss.final,
            "confidence": loss.confidence,
            "grad_norm": float(norm),
        }
        self._report(numbers, progress)

    def validate(self) -> None:
        """Held-out numbers of the averaged weights, appended to curve.jsonl (rank 0; the others
        wait at the next sum).
        """
        if self.rank:
            return
        corrected = self.settings.stage != "backbone"
        current = [p.detach().clone() for p in self.model.parameters()]
        with torch.no_grad():
            torch._foreach_copy_(list(self.model.parameters()), self.average)
            head = self.model.head if corrected else None
            scale, block = self.model.feature_scale, self.settings.block
            result = validate(
                self.model.backbone, head, scale, self.held, self.vocabulary, block, ANCHORS
            )
            torch._foreach_copy_(list(self.model.parameters()), current)
        row = {
            "step": self.number,
            "seconds": round(self.seconds, 1),
            "stage": self.settings.stage,
            **self.running,
            **result,
        }
        append_line(self.args.out / "curve.jsonl", row)
        print(
            f"\nvalidation at {self.number}: chain {result['chain']}, accuracy "
            f"{result['accuracy'][:6]}",
            flush=True,
        )

    def save(self) -> None:
        """Write the checkpoint."""
        names = [name for name, _ in self.model.named_parameters()]
        tensors = {
            "model": dict(self.model.state_dict()),
            "ema": dict(zip(names, self.average, strict=True)),
            "optimizer": optimizer_tensors(self.optimizer),
            "vocabulary": {"ids": self.vocabulary.ids},
        }
        meta = {
            "step": self.number,
            "seconds": self.seconds,
            "blocks": self.blocks,
            "settings": to_json(self.settings),
            "shards": self.store.shards,
            "samples": len(self.store.samples),
            "tokens": sum(len(x.ids) for x in self.store.samples),
            "order": self.order.state(),
            "workers": self.args.workers,
            "objective": objective_of(self.settings),
            "machines": self.machines,
            "data": self.args.record,
        }
        save_state(self.args.out, tensors, meta)

    def agree(self, value: float) -> float:
        """Rank 0's value on every process."""
        if self.args.workers == 1:
            return value
        tensor = torch.tensor([value], dtype=torch.float64)
        dist.broadcast(tensor, 0)
        return float(tensor)

    def _poll(self) -> None:
        """Take in shards that have landed; all processes take the same ones."""
        count = int(self.agree(self.store.available()))
        new = self.store.grow(count)
        if new:
            self.order.add(new)

    def _share_gradients(self) -> None:
        """Mean gradient over the processes, as one flat sum."""
        if self.args.workers == 1:
            return
        flat = torch.cat([p.grad.flatten() for p in self.parameters])
        dist.all_reduce(flat)
        flat /= self.args.workers
        for parameter, part in zip(
            self.parameters, flat.split([p.numel() for p in self.parameters]), strict=True
        ):
            parameter.grad.copy_(part.view_as(parameter))

    def _start_from(self, tensors: dict[str, dict[str, Tensor]], head: str | None) -> None:
        """Take averaged weights: all of them, or the backbone alone where they belong to another
        kind of head or none.
        """
        same = head == self.settings.head
        self.model.load_state_dict(
            tensors["model"] if same else _backbone_of(tensors["model"]), strict=same
        )
        average = tensors["ema"] if same else _backbone_of(tensors["ema"])
        parameters = dict(self.model.named_parameters())
        with torch.no_grad():
            for name, value in average.items():
                parameters[name].copy_(value)

    def _check_settings(self, stored: dict) -> None:
        """A resumed run must be the same run on the same features, apart from the size of a
        step.
        """
        free = {"samples", "anchors", "lr", "short_block", "short_until", "ema", "loss_slots"}
        mine, known = to_json(self.settings), to_json(from_json(stored))
        changed = [key for key in mine if key not in free and known[key] != mine[key]]
        if changed:
            raise InputError(
                f"{self.args.out}: the checkpoint was trained with other settings: "
                f"{', '.join(changed)}"
            )

    def _report(self, numbers: dict[str, float], progress: float) -> None:
        """Running means and a progress line."""
        for key, value in numbers.items():
            old = self.running.get(key, value)
            self.running[key] = round(old + 0.05 * (value - old), 4)
        if self.rank == 0 and self.number % 10 == 0:
            bar = "#" * round(20 * progress)
            text = "  ".join(f"{key} {value:.3f}" for key, value in self.running.items() if value)
            end = "" if sys.stdout.isatty() else "\n"
            line = f"[{bar:<20}] {100 * progress:5.1f} %  step {self.number}  {self.seconds:.0f} s"
            line += f"  {len(self.store.samples)} samples  {text}"
            print(f"\r{line}" if not end else line, end=end, flush=True)


def _backbone_of(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value for name, value in tensors.items() if name.startswith("backbone.")}
