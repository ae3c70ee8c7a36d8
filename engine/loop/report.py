"""Values of a step for its line in the spool.

On the CPU a step is reported at its end. On CUDA its values are still on the device then: their
copy to the host is queued behind the step, and it is reported after the launch of the next step.
Reading waits for that copy alone; a plain ``.item()`` would wait for everything queued since,
including the running step.

Not here: the files (``engine.runtime.telemetry``), the marks (``engine.runtime.timeline``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from lockstep.engine.data.loader import RankBatch
from lockstep.engine.loop.parts import Assembly
from lockstep.engine.model.objective import WHOLE
from lockstep.engine.runtime.control import StepDecision, Sums, numbers_of
from lockstep.engine.runtime.device import module_of
from lockstep.engine.runtime.flops import FlopCount
from lockstep.engine.runtime.timeline import StepMarks

_NOT_TRAINING = ("eval", "checkpoint")
"""Parts of a step's time that do not count for its throughput."""
_BUBBLE = ("activation", "gradient")
"""Parts in which a stage waits for another."""


@dataclass
class StepReport:
    """One step, before its values were read."""

    step: int
    """Counted from 1."""
    samples: int
    terms: tuple[str, ...]
    sums: Sums
    """Each term's sum over the whole batch."""
    divisors: tuple[float, ...]
    lr: float
    peak_bytes: float
    unit: str
    norm: Tensor | None = None
    """2-norm of the whole batch's gradient; None for a batch of weight zero."""
    loss_scale: float | None = None
    flop_count: FlopCount | None = None
    line: StepMarks | None = None
    evaluated: dict[str, float] = field(default_factory=dict)
    _copied: Any = None
    _losses: dict[str, float] | None = None
    _times: dict[str, float] | None = None

    def leave_device(self) -> None:
        """Queue the copy of the values to the host. Once per step, when the norm is there too."""
        if not isinstance(self.sums, Tensor):
            return
        self.sums = _copy(self.sums)
        self.norm = _copy(self.norm) if self.norm is not None else None
        self._copied = module_of(self.sums.device).Event()
        self._copied.record()

    @property
    def counted(self) -> bool:
        """True if the batch had any weight."""
        return any(divisor > 0 for divisor in self.divisors)

    def losses(self) -> dict[str, float]:
        """Weighted mean of each term over the whole batch; terms without weight are left out."""
        if self._losses is None:
            self._wait()
            self._losses = {
                term: total / divisor
                for term, total, divisor in zip(
                    self.terms, numbers_of(self.sums), self.divisors, strict=True
                )
                if divisor > 0
            }
        return self._losses

    def loss(self) -> float | None:
        """The batch's loss, over all its terms; None for a batch of weight zero."""
        losses = self.losses()
        return sum(losses.values()) if losses else None

    def grad_norm(self) -> float | None:
        """2-norm of the whole batch's gradient, before clipping.

        None for a batch of weight zero.
        """
        self._wait()
        return None if self.norm is None else float(self.norm)

    def results(self) -> dict[str, float]:
        """Everything but times."""
        values = {"train/lr": self.lr, "memory/peak_bytes": self.peak_bytes}
        loss = self.loss()
        if loss is not None:
            values["train/loss"] = loss
        self._wait()
        if self.norm is not None:
            values["train/grad_norm"] = float(self.norm)
        if self.loss_scale is not None:
            values["train/loss_scale"] = self.loss_scale
        if self.terms == (WHOLE,):
            values["train/weight"] = self.divisors[0]
        else:
            values |= {f"train/loss/{term}": mean for term, mean in self.losses().items()}
            values |= {
                f"train/weight/{term}": weight
                for term, weight in zip(self.terms, self.divisors, strict=True)
            }
        return values | {f"eval/{name}": value for name, value in self.evaluated.items()}

    def times(self) -> dict[str, float]:
        """Breakdown of the step's time, and the resulting throughput."""
        if self._times is None and self.line is not None:
            self._times = self._timed(self.line)
        return self._times or {}

    def _timed(self, line: StepMarks) -> dict[str, float]:
        parts = line.parts()
        whole = math.fsum(parts.values())
        values = {f"time/{part}_seconds": seconds for part, seconds in parts.items()} | {
            "time/step_seconds": whole
        }
        training = whole - sum(parts.get(part, 0.0) for part in _NOT_TRAINING)
        if training > 0:
            values["throughput/samples_per_second"] = self.samples / training
            if self.unit == "tokens" and len(self.divisors) == 1:
                values["throughput/tokens_per_second"] = self.divisors[0] / training
            if "tensor" in parts:
                values["perf/tensor"] = parts["tensor"] / training
            if waits := [parts[part] for part in _BUBBLE if part in parts]:
                values["perf/bubble"] = math.fsum(waits) / training
            if self.flop_count is not None:
                values |= self.flop_count.rates(self.samples / training)
        return values

    def _wait(self) -> None:
        if self._copied is not None:
            self._copied.synchronize()


def report_of(
    parts: Assembly,
    batch: RankBatch,
    divisors: tuple[float, ...],
    decision: StepDecision,
    flop_count: FlopCount | None,
) -> StepReport:
    """Return the report of the step that all ranks agreed on, before its update."""
    step = parts.step
    return StepReport(
        step=batch.step + 1,
        samples=batch.size,
        terms=step.gradient.terms,
        sums=decision.sums,
        divisors=divisors,
        lr=step.optimizer.rate(batch.step),
        peak_bytes=decision.peak_bytes,
        unit=step.strategy.objective.task.unit,
        loss_scale=parts.model.precision.loss_scale,
        flop_count=flop_count,
    )


def _copy(value: Tensor) -> Tensor:
    # Page-locked, because only then does the copy run behind the step instead of waiting for it.
    return torch.empty(value.shape, dtype=value.dtype, pin_memory=True).copy_(
        value, non_blocking=True
    )
