"""Batch of a spec: its division over ranks and micro-batches, and errors of that division.

Not here: the plan of a run (``domain.training.plan``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lockstep.domain import limits
from lockstep.domain.errors import FieldError

if TYPE_CHECKING:  # A list of jobs needs the plan, but no spec, whose import takes long.
    from lockstep.domain.spec.job import JobSpec


def ceil_div(a: int, b: int) -> int:
    """⌈a / b⌉ for positive ``b``, without floats."""
    return -(-a // b)


def accumulation_steps(batch_size: int, micro_batch_size: int, copies: int) -> int:
    """Micro-batches that every rank runs before one optimizer step: K = ⌈⌈B/D⌉/m⌉.

    Parameters
    ----------
    batch_size : int
        Samples in one optimizer step, over all ranks. This never changes while a job lives.
    micro_batch_size : int
        Samples in one forward and backward on one device, at most.
    copies : int
        Copies of the model that share the batch: ranks, if each holds a whole one.
    """
    return max(1, ceil_div(ceil_div(batch_size, copies), micro_batch_size))


def check_batch(spec: JobSpec) -> Iterator[FieldError]:
    """Yield the errors of a spec's batch on the requested ranks."""
    if spec.train is None:
        return
    unit = spec.train.parallel.ranks_per_copy
    copies = max(1, spec.world_size() // unit)
    size = spec.train.batch.size
    if size < copies:
        yield FieldError(
            "/train/batch/size",
            f"a batch of {size} cannot be split over {copies} {'ranks' if unit == 1 else 'copies'}"
            f": expected at least one sample per {'rank' if unit == 1 else 'copy of the model'}",
            size,
            f"request at most {size * unit} gpus, or a batch of at least {copies}",
        )
        return
    micro = spec.train.batch.micro_size
    if micro == "auto" and spec.train.strategy.kind.collective_forward:
        yield FieldError(
            "/train/batch/micro_size",
            f"auto tests sizes on each rank separately, and with {spec.train.strategy.name} "
            "no rank can compute separately",
            micro,
            "set the samples per device and micro-batch, such as micro_size: 8",
        )
    if micro != "auto" and accumulation_steps(size, micro, copies) > limits.ACCUMULATION_STEPS_MAX:
        yield FieldError(
            "/train/batch/micro_size",
            f"micro-batches of {micro} would need more than {limits.ACCUMULATION_STEPS_MAX} "
            "accumulation steps",
            micro,
            "use a larger micro_size, or a smaller batch.size",
        )
