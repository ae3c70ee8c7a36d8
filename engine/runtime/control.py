"""Control operation: the one small exchange after the last backward of a step.

It carries the flags and loss of this step and the weight of the next. The loader is one batch
ahead, so it has that weight already. A step therefore has its divisor before its first forward, and
all ranks take every decision (stop, divide by this) at the same step. On CUDA the loss stays on the
device and is summed there, and the host never waits for the device.

Not here: the connections (``engine.runtime.star``), the reduction of the gradient
(``engine.strategies``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from lockstep.engine.runtime.mesh import Mesh
from lockstep.engine.runtime.star import Star

Sums = tuple[float, ...] | Tensor
"""Sum of each loss term: numbers on the host, or a float64 tensor of shape (terms,) on a device, to
avoid a synchronization."""


def numbers_of(sums: Sums) -> tuple[float, ...]:
    """Sums as numbers; on a device this waits for them."""
    return tuple(sums.tolist()) if isinstance(sums, Tensor) else sums


class Flags(NamedTuple):
    """Flags of one rank; in a verdict, the flags that at least one rank has set."""

    stop: bool = False
    """Leave after this step."""
    out_of_memory: bool = False
    """The step did not fit; its gradient is void."""
    unreduced: bool = False
    """Some rank did not use every parameter; the step is repeated with usage tracked."""
    drawn: bool = False
    """The model may have drawn from generators that were not seeded; the step is repeated."""
    overflow: bool = False
    """The scaled gradient is not finite; its step may be repeated at a smaller scale."""

    @property
    def void(self) -> bool:
        """True if the step is repeated in any case."""
        return self.out_of_memory or self.unreduced or self.drawn


class RankStatus(NamedTuple):
    """Message of one rank in a control operation."""

    flags: Flags
    sums: Sums
    """Each loss term's sum over this rank's micro-batches."""
    next_weights: tuple[float, ...]
    """Units of each loss term in this rank's shard of the next batch."""
    peak_bytes: float
    """This rank's peak memory."""


@dataclass(frozen=True)
class StepDecision:
    """Result of a control operation. Equal on every rank."""

    flags: Flags
    sums: Sums
    """Each loss term's sum over the whole batch."""
    next_divisors: tuple[float, ...]
    """Units of each loss term in the whole next batch; zeros after the last."""
    peak_bytes: float
    """Largest peak memory of a rank."""


class Control:
    """The control operation of one run.

    Parameters
    ----------
    mesh : Mesh
    terms : int
        Loss terms of the task.
    """

    def __init__(self, mesh: Mesh, terms: int):
        self._ranks, self._terms = mesh.world, terms
        self._star = Star(mesh.world, sums=len(Flags()) + 2 * terms, maxima=1)
        self._counts, self._counts_losses = mesh.counts, mesh.counts_losses
        """False on ranks whose samples another rank of the same copy counts."""

    def exchange(self, status: RankStatus) -> StepDecision:
        """Exchange messages. All ranks must call this, once before step 0 and once per step."""
        flags, sums, next_weights, peak_bytes = status
        if self._ranks.world_size == 1:
            return StepDecision(flags, sums, next_weights, peak_bytes)
        if not self._counts_losses:
            sums = torch.zeros_like(sums) if isinstance(sums, Tensor) else (0.0,) * self._terms
        if not self._counts:
            next_weights = (0.0,) * self._terms
        numbers = [*map(float, flags), *next_weights]
        if isinstance(sums, Tensor):
            self._ranks.sum_on_device(sums)
            numbers += (0.0,) * self._terms
        else:
            numbers += sums
        values = self._star.reduce([*numbers, peak_bytes])
        first, last = len(flags), len(flags) + self._terms
        return StepDecision(
            flags=Flags(*(value > 0 for value in values[:first])),
            sums=sums if isinstance(sums, Tensor) else tuple(values[last:-1]),
            next_divisors=tuple(values[first:last]),
            peak_bytes=values[-1],
        )

    def close(self) -> None:
        """End the connections of this rank."""
        self._star.close()
