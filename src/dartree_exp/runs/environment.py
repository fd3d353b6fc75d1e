"""What environment.json says of a run."""

from __future__ import annotations

from typing import Any

import torch

from dartree_exp.decode import Method
from dartree_exp.engines.target import Target
from dartree_exp.records.environment import describe_environment
from dartree_exp.runs.warm_up import Machine


def environment(target: Target, method: Method, machine: Machine) -> dict[str, Any]:
    """The stamp of this process: what the numbers were measured with."""
    weights = {"target": target.weights_sha256, "drafter": method.drafter.weights_sha256}
    name = torch.cuda.get_device_name(target.device) if target.device.type == "cuda" else None
    return describe_environment(
        device=str(target.device),
        dtype=str(target.dtype).removeprefix("torch."),
        threads=machine.threads,
        device_details={} if name is None else {"name": name},
        weights={role: digest for role, digest in weights.items() if digest is not None},
        machine=machine.record(),
        row_invariant=machine.row_invariant,
        tolerance=machine.tolerance,
    )
