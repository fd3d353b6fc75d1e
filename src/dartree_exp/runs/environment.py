"""The warm-up of a run, and its environment.json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from dartree_exp.decode import Method
from dartree_exp.engines.target import Target
from dartree_exp.prompts import Prompt
from dartree_exp.records.environment import describe_environment
from dartree_exp.records.folder import RunFolder
from dartree_exp.runs.arms import Arms, shared_baseline
from dartree_exp.runs.costs import with_costs
from dartree_exp.runs.warm_up import Machine, warm_up


def settle(arms: Arms, prompts: Sequence[Prompt], folder: RunFolder) -> Arms:
    """Warm up on the first prompt that fits, and write environment.json. Returns the arms with the
    measured costs, the tolerance and the shared baseline.
    """
    shared = shared_baseline(arms, folder.path.parent) if arms.config.baseline == "shared" else None

    def settle_threads(measured: int) -> int:
        """The same number for a resumed run, and for runs that share a baseline."""
        if (held := folder.threads_of_samples()) is not None:
            return held
        return measured if shared is None else shared.agree("threads", measured)

    _, ids = next(arms.fitting(prompts), (None, None))
    machine = warm_up(arms.target, arms.method, arms.config, arms.clock, ids, settle_threads)
    if held := folder.costs_of_samples():
        machine = replace(machine, costs=held)
    folder.write_environment(environment(arms.target, arms.method, machine))
    if shared is not None:
        shared = shared.under(threads=machine.threads, row_invariant=machine.row_invariant)
    method = with_costs(arms.method, machine.costs, arms.config.budget)
    return replace(arms, method=method, shared=shared, tolerance=machine.tolerance)


def environment(target: Target, method: Method, machine: Machine) -> dict[str, Any]:
    """The contents of environment.json for this process."""
    weights = {"target": target.weights_sha256, "drafter": method.drafter.weights_sha256}
    name = torch.cuda.get_device_name(target.device) if target.device.type == "cuda" else None
    edges = getattr(method.policy, "edges", None)
    known = {} if edges is None else {"edge_calibration": edges.record()}
    return known | describe_environment(
        device=str(target.device),
        dtype=str(target.dtype).removeprefix("torch."),
        threads=machine.threads,
        engine=target.engine,
        device_details={} if name is None else {"name": name},
        weights={role: digest for role, digest in weights.items() if digest is not None},
        machine=machine.record(),
        row_invariant=machine.row_invariant,
        tolerance=machine.tolerance,
    )
