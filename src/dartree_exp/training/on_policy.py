"""On-policy distillation (AdaFlash, arXiv 2607.19223): the trainer drafts answers with the drafter
as it is now, trains on them, and begins again.

A phase drafts `training.buffer` answers through the decode loop, whose rounds carry the target's
features and hidden states, and then visits each of them `training.passes` times. An interrupted
training continues in the middle of a phase: its answers are in the checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, pvariance
from typing import Any, Self

import torch
from torch import Tensor

from dartree_exp.assemble import make_method
from dartree_exp.config import compose
from dartree_exp.config.training import ON_POLICY, TrainConfig
from dartree_exp.decode import Method
from dartree_exp.drafters.dflash.model import DFlashBackbone
from dartree_exp.drafters.dflash.session import DFlashDrafter
from dartree_exp.engines.target import Target
from dartree_exp.training.batches import MIN_OUTPUT, Captured, feature_scale, generator
from dartree_exp.training.corpus import Sample, load_samples, split_holdout
from dartree_exp.training.errors import InputError
from dartree_exp.training.provenance import file_record, target_record, text_record
from dartree_exp.training.rollout import draft_answer, read_prompt
from dartree_exp.training.start import read_given
from dartree_exp.training.target import check_samples, load
from dartree_exp.training.team import Team
from dartree_exp.training.trainer import Trainer
from dartree_exp.verify.sampling import Sampler

HOLDOUT = 8  # of each domain, the default of `capture`, for a drafter that does not record its own
SCALED = 8  # prompts that the scale of the features is measured on
_TENSORS = ("ids", "features", "finals", "roots")


@dataclass
class Buffer:
    """The answers of a phase, the visits that are left, and what all phases drafted."""

    answers: list[Captured] = field(default_factory=list)
    advanced: list[list[int]] = field(default_factory=list)  # tokens of each round of each answer
    visits: list[int] = field(default_factory=list)
    phase: int = 0
    samples: int = 0
    tokens: int = 0

    def add(self, answer: Captured, advanced: list[int]) -> None:
        self.answers.append(answer)
        self.advanced.append(advanced)
        self.samples, self.tokens = self.samples + 1, self.tokens + len(answer.ids)

    def tau(self) -> dict[str, float]:
        """Tokens advanced per round, the mean over answers of their means, of all and of each
        domain; the variance over domains.
        """
        domains: dict[str, list[float]] = {}
        for answer, advanced in zip(self.answers, self.advanced, strict=True):
            domains.setdefault(answer.domain, []).append(fmean(advanced))
        if not domains:
            return {}
        means = {domain: fmean(values) for domain, values in sorted(domains.items())}
        found = {"tau": fmean(x for values in domains.values() for x in values)}
        found |= {f"tau_{domain}": value for domain, value in means.items()}
        found["tau_variance"] = pvariance(means.values())
        return {key: round(value, 4) for key, value in found.items()}


class OnPolicyTrainer(Trainer):
    """One process. samples: whose prompts are answered; their own answers are not read."""

    def __init__(
        self,
        config: TrainConfig,
        target: Target,
        folder: Path,
        record: dict[str, Any],
        ids: list[int],
        team: Team,
        samples: Sequence[Sample],
    ) -> None:
        self.target, self.prompts, self.buffer = target, samples, Buffer()
        self._drafting: Method | None = None  # None: the weights have changed
        self._short = 0  # answers in a row that were too short
        super().__init__(config, target, folder, record, ids, team)

    @classmethod
    def begin(cls, config: TrainConfig, folder: Path, team: Team) -> Self:
        """Load the target and the prompts, and check the drafter. Raises UserError."""
        s = config.training
        if team.size > 1:
            raise InputError(f"training={ON_POLICY} needs one process, not {team.size}")
        data, init = Path(config.data or "").expanduser(), Path(s.init or "").expanduser()
        given = read_given(init)
        for key, there, here in (
            ("layers", given.layers, s.layers),
            ("block", given.block, s.block),
            ("vocab", len(given.ids), s.vocab or len(given.ids)),
        ):
            if there != here:
                raise InputError(f"training.{key}={here}: the drafter of {init} has {there}")
        if not given.anchor_first:
            raise InputError(
                f"training.init={init}: slot k of its blocks predicts root + k (fill-in); only "
                "anchor-first drafters can be trained"
            )
        target = load(config.model, config.threads, decodes=True)
        if s.vocab is None and len(given.ids) < target.vocab_size:
            raise InputError(f"training.vocab=null: the drafter of {init} has {len(given.ids)} ids")
        samples = load_samples(data)
        check_samples(samples, target, data)
        holdout, seed = given.held_out or (HOLDOUT, s.seed)
        train, _ = split_holdout(samples, holdout, seed)
        if not train:
            raise InputError(f"{data}: no sample is left beside {holdout} of each domain held out")
        need = max(len(sample.prompt_ids) for sample in train) + s.cap + s.block
        if need > target.max_positions:
            raise InputError(
                f"training.cap={s.cap}: the longest prompt needs {need} positions, the target has "
                f"{target.max_positions}"
            )
        record = {
            "text": file_record(data),
            "target": target_record(target),
            "taps": list(given.taps),
            "holdout": holdout,
            "seed": seed,
            "generation": text_record(data),
        }
        return cls(config, target, folder, record, given.ids.tolist(), team, train)

    def _open(self, config: TrainConfig, target: Target) -> None:
        self.order.add(list(range(len(self.prompts))))

    def _scale(self) -> Tensor:
        read = []
        for sample in self.prompts[:SCALED]:
            ids = torch.tensor(sample.prompt_ids)
            features, _ = read_prompt(self.target, self.taps, sample.prompt_ids)
            read.append(Captured(sample.id, sample.domain, ids, len(ids), features.float()))
        return feature_scale(read)

    def step(self) -> None:
        """One answer where answers are missing, else one optimiser step on them."""
        if not self.buffer.visits:
            self._collect()
            return
        super().step()
        self._drafting = None

    def _collect(self) -> None:
        s, buffer = self.settings, self.buffer
        if len(buffer.answers) == s.buffer:  # all were visited
            buffer.answers, buffer.advanced = [], []
        self._drafting = self._drafting or self._present()
        sample = self.prompts[self.order.take(1)[0]]
        sampler = Sampler(s.draw_temperature, 0, 1.0, s.seed, f"{buffer.phase}/{sample.id}")
        answer, advanced = draft_answer(self.target, self._drafting, sample, sampler, s.cap)
        if len(answer.ids) - answer.prompt < MIN_OUTPUT:
            self._short += 1
            # So many visits in a row hold a whole epoch, wherever they begin.
            if self._short >= 2 * len(self.prompts) - 1:
                raise InputError(f"no prompt has an answer of {MIN_OUTPUT} tokens")
            return
        self._short = 0
        buffer.add(answer, advanced)
        if len(buffer.answers) == s.buffer:
            buffer.phase += 1
            for i in range(s.passes):
                order = generator(s.seed, 3, buffer.phase, i)
                buffer.visits += torch.randperm(s.buffer, generator=order).tolist()

    def _present(self) -> Method:
        """DFlash's method with the weights as they are now."""
        trained = self.model.backbone
        assert isinstance(trained, DFlashBackbone)
        backbone = DFlashBackbone(trained.config)
        backbone.load_state_dict(self.model.folded_backbone())
        backbone.to(self.target.dtype).requires_grad_(False)
        drafter = DFlashDrafter(ON_POLICY, self.target, backbone, None, self.vocabulary.ids)
        chain = compose(["method=dflash"])
        return make_method(chain.tree, chain.budget, drafter, engine=self.target.engine)

    def _next(self) -> list[Captured]:
        buffer, count = self.buffer, self.settings.samples
        chosen, buffer.visits = buffer.visits[:count], buffer.visits[count:]
        return [buffer.answers[i] for i in chosen]

    def validate(self) -> dict[str, Any]:
        """A line of the curve: the losses, and the acceptance of the answers of this phase, which
        were drafted with the weights at its start.
        """
        where = {"step": self.number, "seconds": round(self.seconds, 1), "stage": ON_POLICY}
        return {**where, **self.running, "phase": self.buffer.phase, **self.buffer.tau()}

    def said(self, row: dict[str, Any]) -> str:
        return (
            f"step {row['step']}: {row.get('tau')} tokens per round on the answers of phase "
            f"{row['phase']}"
        )

    def seen(self) -> dict[str, Any]:
        buffer = self.buffer
        held = {
            "names": [answer.name for answer in buffer.answers],
            "domains": [answer.domain for answer in buffer.answers],
            "prompts": [answer.prompt for answer in buffer.answers],
            "advanced": buffer.advanced,
            "visits": buffer.visits,
            "phase": buffer.phase,
        }
        count = {"samples": buffer.samples, "tokens": buffer.tokens}
        return {"shards": 0, **count, "buffer": held}

    def _tensors(self) -> dict[str, dict[str, Tensor]]:
        rows = enumerate(self.buffer.answers)
        return {"buffer": {f"{i}.{name}": getattr(a, name) for i, a in rows for name in _TENSORS}}

    def _refill(self, tensors: dict[str, dict[str, Tensor]], meta: dict[str, Any]) -> None:
        held, stored = meta["buffer"], tensors.get("buffer", {})
        answers = [
            Captured(name, domain, stored[f"{i}.ids"], prompt, **_rest(stored, i))
            for i, (name, domain, prompt) in enumerate(
                zip(held["names"], held["domains"], held["prompts"], strict=True)
            )
        ]
        counts = held["phase"], meta["samples"], meta["tokens"]
        self.buffer = Buffer(answers, held["advanced"], held["visits"], *counts)


def _rest(stored: dict[str, Tensor], i: int) -> dict[str, Tensor]:
    return {name: stored[f"{i}.{name}"] for name in _TENSORS[1:]}
