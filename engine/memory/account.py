"""Report of a run's memory and FLOPs: the forecast when it arrives, and a comparison at the end.

Only rank 0 reports. The forecast is computed beside the run (``engine.memory.forecast_process``)
and arrives some seconds after the first steps; the loop reads it between two steps, and announces
the plan again, with the forecast.

Forecast and measurement are the same quantity: the bytes that tensors hold. On CUDA torch's
allocator has the peak of the whole run. On the CPU tensors are counted in the first two steps
(``engine.memory.tensors``), which take up to twice as long; the growth of the process would include
libraries, the dataset and freed memory. Steps are numbered over the whole job, so an attempt that
starts later is not measured and computes its steps as the attempts before it did.

Not here: the memory probe (``engine.runtime.telemetry``), the series ``memory/peak_bytes``
(``engine.loop.report``).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

from lockstep.domain.spec.train import Train
from lockstep.domain.training.memory import compared
from lockstep.domain.training.plan import BatchPlan
from lockstep.engine.data.loader import RankBatch
from lockstep.engine.memory.forecast_process import PredictionProcess
from lockstep.engine.memory.tensors import TensorCount
from lockstep.engine.runtime import telemetry
from lockstep.engine.runtime.device import is_accelerator, module_of
from lockstep.engine.runtime.flops import FlopCount, peak_flops
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.runtime.telemetry import Telemetry

_MEASURES_APART: Final = 1000
"""Interval between two readings of the memory, as a multiple of the duration of one reading."""

COUNTED_STEPS: Final = 2
"""First steps of a job in which tensors are counted on the CPU. The first finds the existing
tensors; the peak is that of the second."""


class MemoryReport:
    """Memory and arithmetic of one rank of one run.

    Parameters
    ----------
    train : Train
    ranks : Ranks
    telemetry : Telemetry
    code : Path, optional
        Folder of the job's code; None predicts nothing.
    """

    def __init__(self, train: Train, ranks: Ranks, telemetry: Telemetry, code: Path | None):
        self._train, self._ranks, self._telemetry, self._code = train, ranks, telemetry, code
        self._prediction: PredictionProcess | None = None
        self._requested_size: int | None = None
        self.flop_count: FlopCount | None = None
        """Known once the forecast has come."""
        self._peak = self._measure_again_at = 0.0
        self._count: TensorCount | None = None
        """Of the first steps, where their tensors are counted."""
        self._measured_bytes: int | None = None
        self._why_not = (
            f"on the CPU, tensors are counted in the first {COUNTED_STEPS} steps of a job"
        )

    def begin(self, plan: BatchPlan, sample: Any) -> None:
        """Everything is built: predict its memory beside the run, and measure from here on."""
        telemetry.forget_peak(self._ranks.device)
        telemetry.keep_freed_memory(self._ranks.device)
        if self._ranks.first and self._code is not None and plan.micro_batch_size is not None:
            self._requested_size = plan.micro_batch_size
            self._prediction = PredictionProcess(
                self._train,
                self._code,
                micro_batch_size=plan.micro_batch_size,
                world_size=plan.world_size,
                sample=sample,
                forks=not is_accelerator(self._ranks.device)
                and not self._train.strategy.kind.shards_model,
            )
        self._micro_batch_size = plan.micro_batch_size

    def counting(self, batch: RankBatch) -> AbstractContextManager[None]:
        """Count tensors inside the block if ``batch`` belongs to one of the first steps.

        Wraps a step.
        """
        counts = batch.step < COUNTED_STEPS and self._counts()
        return self._counting(batch) if counts else nullcontext()

    @contextmanager
    def _counting(self, batch: RankBatch) -> Iterator[None]:
        if batch.step == 0:
            self._count = TensorCount()
        if self._count is None:  # A run that resumes between the two steps.
            yield
            return
        # The samples of a whole step wait on the host; on a GPU one micro-batch of them would be
        # there.
        self._count.ignore([micro_batch.batch for micro_batch in batch.micro_batches[1:]])
        with self._count:
            yield
        if batch.step == COUNTED_STEPS - 1:
            if self._count.is_complete:
                self._measured_bytes = self._count.peak_bytes
            else:
                self._why_not = "some tensors, such as sparse ones, cannot be measured"
            self._count = None

    def uncounted(self) -> AbstractContextManager[None]:
        """Exclude work that is no part of a step, such as fetching the next samples."""
        return self._count.paused() if self._count is not None else nullcontext()

    def peak_bytes(self) -> float:
        """Most memory that this rank has used, as of a moment ago.

        Asking takes the kernel up to half a millisecond for a process of many threads, and torch a
        tenth of it for a device: so it is asked only as often as takes a thousandth of the time.
        """
        began = time.monotonic()
        if began >= self._measure_again_at:
            self._peak = telemetry.peak_bytes(self._ranks.device)
            ended = time.monotonic()
            self._measure_again_at = ended + _MEASURES_APART * (ended - began)
        return self._peak

    def poll(self, plan: BatchPlan) -> BatchPlan:
        """The plan, with the forecast if it has just come. Never waits."""
        predicted = self._prediction.arrived() if self._prediction is not None else None
        if predicted is None:
            return plan
        self._prediction = None
        if predicted.flops_per_sample is not None:
            self.flop_count = FlopCount(predicted.flops_per_sample, self._peak_flops())
        if plan.micro_batch_size != self._requested_size:
            return plan  # Halved since it was asked.
        if predicted.memory is None:
            self._telemetry.log_line(f"memory: no forecast: {predicted.why}")
            return plan
        self._telemetry.log_line(f"memory: {predicted.memory.sentence()}")
        return plan.model_copy(update={"memory": predicted.memory})

    def finish(self, plan: BatchPlan) -> None:
        """Report the measured memory next to the predicted one."""
        self.close()
        measured, measure = self._measured(plan)
        forecast = plan.memory.on_stage(0) if plan.memory is not None else None  # Of rank 0.
        self._telemetry.event(
            "memory",
            measured_bytes=measured,
            measure=measure,
            forecast_bytes=forecast,
            flops_per_sample=self.flop_count.flops_per_sample if self.flop_count else None,
            peak_flops=self.flop_count.peak if self.flop_count else None,
        )
        self._telemetry.log_line("memory: " + compared(measured, measure, forecast))

    def _measured(self, plan: BatchPlan) -> tuple[float | None, str]:
        """Peak bytes of tensors and the kind of measurement, or None and the reason."""
        if is_accelerator(self._ranks.device):
            return telemetry.peak_bytes(self._ranks.device), "allocated"
        if self._train.compile:
            return None, "tensors of a compiled model cannot be counted on the CPU"
        if self._measured_bytes is None:
            return None, self._why_not
        if self._micro_batch_size != plan.micro_batch_size:
            return (
                None,
                f"tensors were counted with micro-batches of up to {self._micro_batch_size}",
            )
        return float(self._measured_bytes), "tensors"

    def _counts(self) -> bool:
        """True if tensors are counted in the first steps."""
        return (
            self._ranks.first and not is_accelerator(self._ranks.device) and not self._train.compile
        )

    def close(self) -> None:
        """Give up a forecast that has not come."""
        if self._prediction is not None:
            self._prediction.close()
            self._prediction = None

    def _peak_flops(self) -> float | None:
        device = self._ranks.device
        if not is_accelerator(device):
            return None
        one = peak_flops(
            module_of(device).get_device_name(device), self._train.precision, tf32=self._train.tf32
        )
        return one * self._ranks.world_size if one is not None else None
