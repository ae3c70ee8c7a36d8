"""What a run says about its memory and its arithmetic: the forecast when it has come, and at the end how it compares.

Only rank 0 says anything. The forecast is worked out beside the run (``engine.memory.aside``) and arrives some seconds
after the first steps; the plan is then announced again, with it.

What it is compared with is not the same everywhere. On CUDA it is the most that torch's allocator held during training:
the same tensors. On the CPU nothing counts tensors, so it is how much the process grew since it began to build the run:
libraries that were loaded on the way, the dataset and fetched samples are in it, and memory that was freed and not given
back. For a small model that is most of it.

Not here: how memory is measured (``engine.telemetry``), the series ``memory/peak_bytes`` (``engine.report``).
"""

from __future__ import annotations

import resource
import time
from pathlib import Path
from typing import Any, Final

import torch

from domain.memory import in_words
from domain.plan import BatchPlan
from domain.spec import Train
from engine import telemetry
from engine.flops import Arithmetic, peak_flops
from engine.memory.aside import Aside
from engine.ranks import Ranks
from engine.telemetry import Telemetry

_LOOKS_APART: Final = 1000
"""From one look at the memory to the next, as a multiple of what the look took."""


class Account:
    """Of one rank of one run. Create it before anything is built.

    Parameters
    ----------
    train : Train
    ranks : Ranks
    telemetry : Telemetry
    code : Path, optional
        Folder of the job's code; None has nothing foretold.
    """

    def __init__(self, train: Train, ranks: Ranks, telemetry: Telemetry, code: Path | None):
        self._train, self._ranks, self._telemetry, self._code = train, ranks, telemetry, code
        self._resident_before = resident_bytes()
        self._aside: Aside | None = None
        self._asked_size: int | None = None
        self.arithmetic: Arithmetic | None = None
        """Known once the forecast has come."""
        self._peak = self._look_again_at = 0.0

    def begin(self, plan: BatchPlan, sample: Any) -> None:
        """Everything is built: have its memory foretold, and measure from here on."""
        telemetry.forget_peak(self._ranks.device)
        telemetry.keep_freed_memory(self._ranks.device)
        if self._ranks.first and self._code is not None and plan.micro_batch_size is not None:
            self._asked_size = plan.micro_batch_size
            self._aside = Aside(
                self._train,
                self._code,
                micro_batch_size=plan.micro_batch_size,
                world_size=plan.world_size,
                sample=sample,
                forks=self._ranks.device.type == "cpu",
            )

    def peak_bytes(self) -> float:
        """Most memory that this rank has used, as of a moment ago.

        Asking takes the kernel up to half a millisecond for a process of many threads, and torch a tenth of it for a
        device: so it is asked only as often as takes a thousandth of the time.
        """
        began = time.monotonic()
        if began >= self._look_again_at:
            self._peak = telemetry.peak_bytes(self._ranks.device)
            ended = time.monotonic()
            self._look_again_at = ended + _LOOKS_APART * (ended - began)
        return self._peak

    def poll(self, plan: BatchPlan) -> BatchPlan:
        """The plan, with the forecast if it has just come. Never waits."""
        foretold = self._aside.arrived() if self._aside is not None else None
        if foretold is None:
            return plan
        self._aside = None
        if foretold.flops_per_sample is not None:
            self.arithmetic = Arithmetic(foretold.flops_per_sample, self._peak_flops())
        if plan.micro_batch_size != self._asked_size:
            return plan  # Halved since it was asked.
        if foretold.memory is None:
            self._telemetry.say(f"memory: no forecast: {foretold.why}")
            return plan
        self._telemetry.say(f"memory: {foretold.memory.sentence()}")
        return plan.model_copy(update={"memory": foretold.memory})

    def finish(self, plan: BatchPlan) -> None:
        """Say what training took, next to what was foretold."""
        self.close()
        measured = telemetry.peak_bytes(self._ranks.device)
        measure = "allocated"
        if self._ranks.device.type == "cpu":
            measured, measure = max(0.0, measured - self._resident_before), "process growth"
        forecast = plan.memory.peak if plan.memory is not None else None
        self._telemetry.event(
            "memory",
            measured_bytes=measured,
            measure=measure,
            forecast_bytes=forecast,
            flops_per_sample=self.arithmetic.flops_per_sample if self.arithmetic else None,
            peak_flops=self.arithmetic.peak if self.arithmetic else None,
        )
        foretold = f"{in_words(forecast)} were foretold" if forecast is not None else "no forecast"
        self._telemetry.say(f"memory: {in_words(measured)} at most on rank 0 ({measure}); {foretold}")

    def close(self) -> None:
        """Give up a forecast that has not come."""
        if self._aside is not None:
            self._aside.close()
            self._aside = None

    def _peak_flops(self) -> float | None:
        device = self._ranks.device
        if device.type != "cuda":
            return None
        one = peak_flops(torch.cuda.get_device_name(device), self._train.precision, tf32=self._train.tf32)
        return one * self._ranks.world_size if one is not None else None


def resident_bytes() -> float:
    """Memory that this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return float(pages * resource.getpagesize())
