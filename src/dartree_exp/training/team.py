"""The processes of one training: one, or as many as `torchrun` started."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Team:
    """A context manager. rank: of this process; 0 writes records and speaks. size: processes.

    The others ignore Ctrl-C and SIGTERM, which `torchrun` sends to all: they stop when the first
    says so, or with `torchrun`.
    """

    def __init__(self) -> None:
        self.rank = int(os.environ.get("RANK", 0))
        self.size = int(os.environ.get("WORLD_SIZE", 1))

    def __enter__(self) -> Self:
        if self.size > 1:
            dist.init_process_group("gloo")
        if self.rank:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.size > 1:
            if kind is None:
                dist.barrier()  # gloo aborts a process whose peer is still connected when it ends
            dist.destroy_process_group()

    def follow(self, numbers: Sequence[float]) -> list[float]:
        """The first process's numbers, on every process."""
        return self._exchanged(numbers, lambda tensor: dist.broadcast(tensor, 0))

    def sums(self, numbers: Sequence[float]) -> list[float]:
        """Each number summed over the processes."""
        return self._exchanged(numbers, dist.all_reduce)

    def _exchanged(self, numbers: Sequence[float], exchange: Any) -> list[float]:
        if self.size == 1:
            return list(numbers)
        tensor = torch.tensor(numbers, dtype=torch.float64)
        exchange(tensor)
        return tensor.tolist()

    def wrapped(self, module: nn.Module) -> nn.Module:
        """The module, with gradients that are means over the processes."""
        if self.size == 1:
            return module
        return DistributedDataParallel(module, forward_sync_buffers=False)
