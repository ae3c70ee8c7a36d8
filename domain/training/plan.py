"""Batch plan: split of a promised batch into ranks, shards, micro-batches and steps.

The batch ``B`` is given. For ``D`` copies of the model and micro-batches of at most ``m`` samples:

* the batch is split into D contiguous *shards* that differ by at most one sample;
* each shard is split into the same number of *micro-batches*, K = ⌈⌈B/D⌉/m⌉, of near-equal size.
  Every rank runs K micro-batches and so enters every collective; a micro-batch may be empty, and
  then runs one masked sample of weight zero.

A copy is one rank, unless its layers are cut over several (``domain.training.layout``): these run
the same micro-batches.

Distributing whole micro-batches of ``m`` over the ranks instead would leave ranks idle for up to
half a step, and hang strategies that communicate in every micro-batch. The last batch of an
``epochs:`` run may be smaller; the same rule splits it.

Not here: the samples at the positions (``engine.data.order``), the weights of micro-batches
(``engine.step.gradient``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from pydantic import BaseModel, Field, computed_field

from lockstep.domain.spec.batch import accumulation_steps, ceil_div
from lockstep.domain.training.memory import MemoryForecast
from lockstep.domain.training.pipeline import BUBBLE_MAX, bubble, enough

if TYPE_CHECKING:
    from lockstep.domain.spec.job import JobSpec
    from lockstep.domain.spec.train import Train

_OPEN: Final = "; the first attempt chooses the micro-batch"


def part(size: int, parts: int, index: int) -> tuple[int, int]:
    """Bounds [start, stop) of part ``index`` of ``parts`` contiguous, near-equal parts.

    The larger parts come first; parts differ by at most one.
    """
    small, larger = divmod(size, parts)
    start = index * small + min(index, larger)
    return start, start + small + (1 if index < larger else 0)


class BatchPlan(BaseModel, frozen=True):
    """One job's batch on one number of ranks, in numbers.

    ``micro_batch_size`` and ``accumulation_steps`` are null until the first attempt settles
    ``micro_size: auto``.
    """

    batch_size: Annotated[int, Field(ge=1)]
    """Samples in one optimizer step, over all ranks: the promise."""
    micro_batch_size: Annotated[int, Field(ge=1)] | None
    """Samples in one forward and backward on one device, at most."""
    accumulation_steps: Annotated[int, Field(ge=1)] | None
    """Micro-batches that every rank runs before one optimizer step."""
    world_size: Annotated[int, Field(ge=1)]
    """Ranks, one per device."""
    tensor: Annotated[int, Field(ge=1)] = 1
    """Ranks that share every layer of one copy of the model."""
    pipeline: Annotated[int, Field(ge=1)] = 1
    """Stages that share the layers of one copy of the model."""
    blocks: tuple[int, ...] | None = None
    """Blocks of each stage; null without a pipeline, and where the first attempt finds them."""
    steps: int | None = None
    """Optimizer steps of the run; null where it is given in epochs, until the dataset's length is
    known."""
    memory: MemoryForecast | None = None
    """Null until the first attempt has worked it out, and where it cannot be."""

    @computed_field  # type: ignore[prop-decorator] # mypy supports no decorator above a property; pydantic's is meant there
    @property
    def copies(self) -> int:
        """Copies of the model, which share the batch."""
        return self.world_size // self.ranks_per_copy

    @property
    def ranks_per_copy(self) -> int:
        """Ranks that hold one copy of the model together."""
        return self.tensor * self.pipeline

    def micro_batches(self, copy: int, batch_size: int | None = None) -> list[tuple[int, int]]:
        """Return the bounds [start, stop) of each micro-batch of a copy of the model.

        A micro-batch with start == stop is empty.

        Parameters
        ----------
        copy : int
            Its index: the rank, unless ranks share a copy.
        batch_size : int, optional
            Samples of this batch; the last one of an ``epochs:`` run may be smaller than the
            plan's.
        """
        if self.micro_batch_size is None:
            raise ValueError("the micro-batch is not chosen yet")
        size = self.batch_size if batch_size is None else batch_size
        start, stop = part(size, self.copies, copy)
        count = accumulation_steps(size, self.micro_batch_size, self.copies)
        return [
            (start + a, start + b)
            for a, b in (part(stop - start, count, index) for index in range(count))
        ]

    def halved(self) -> BatchPlan | None:
        """The same batch in micro-batches of half the size.

        None where they hold one sample already.
        """
        largest = max(stop - start for start, stop in self.micro_batches(0))
        if largest == 1:
            return None
        return self.settled(ceil_div(largest, 2))

    def settled(self, micro_batch_size: int) -> BatchPlan:
        """The same batch in micro-batches of at most so many samples."""
        steps = accumulation_steps(self.batch_size, micro_batch_size, self.copies)
        return self.model_copy(
            update={
                "micro_batch_size": micro_batch_size,
                "accumulation_steps": steps,
                "memory": None,
            }
        )

    def sentence(self) -> str:
        """The plan in words: "64 = 2 ranks × 8 samples × 4 accumulation steps".

        Of a cut model: "64 = 2 copies × 8 samples × 4 accumulation steps on 16 ranks, tensor 2,
        pipeline 4 (8, 8, 8, 7 blocks), bubble 43%: 12 accumulation steps give 20%".
        """
        if self.ranks_per_copy == 1:
            return self._split(_count(self.world_size, "rank"))
        copies = "1 copy" if self.copies == 1 else f"{self.copies} copies"
        settled = self.accumulation_steps is not None
        split = self._split(copies) if settled else f"{self.batch_size} over {copies}"
        cut = [f"{split} on {self.world_size} ranks"]
        if self.tensor > 1:
            cut.append(f"tensor {self.tensor}")
        if self.pipeline > 1:
            blocks = f" ({', '.join(map(str, self.blocks))} blocks)" if self.blocks else ""
            cut.append(f"pipeline {self.pipeline}{blocks}")
            if self.accumulation_steps is not None:
                cut.append(self._bubble(self.accumulation_steps))
        return ", ".join(cut) + ("" if settled else _OPEN)

    def _bubble(self, count: int) -> str:
        found, least = bubble(count, self.pipeline), enough(self.pipeline)
        if count >= least:
            return f"bubble {found:.0%}"
        most = ceil_div(self.batch_size, self.copies)
        if most < least:
            return f"bubble {found:.0%}: the batch allows {_count(most, 'accumulation step')}"
        return f"bubble {found:.0%}: {least} accumulation steps give {BUBBLE_MAX:.0%}"

    def _split(self, ranks: str) -> str:
        if self.micro_batch_size is None or self.accumulation_steps is None:
            return f"{self.batch_size} over {ranks}{_OPEN}"
        steps = _count(self.accumulation_steps, "accumulation step")
        sizes = {
            stop - start
            for rank in {0, self.copies - 1}
            for start, stop in self.micro_batches(rank)
        }
        if len(sizes) == 1:
            return f"{self.batch_size} = {ranks} × {_count(sizes.pop(), 'sample')} × {steps}"
        shards = sorted(
            {
                stop - start
                for start, stop in (
                    part(self.batch_size, self.copies, copy) for copy in (0, self.copies - 1)
                )
            }
        )
        shard = " or ".join(map(str, shards))
        micro = f"{min(sizes)} to {max(sizes)}"
        return (
            f"{self.batch_size} over {ranks}: shards of {shard}, each in {steps} of {micro} samples"
        )


def plan_of(spec: JobSpec, world_size: int | None = None) -> BatchPlan | None:
    """The batch plan of a spec on ``world_size`` ranks (the spec's own by default).

    None for a script.

    A script owns its loop, so Lockstep promises nothing about its batch.
    """
    if spec.train is None:
        return None
    world = spec.world_size() if world_size is None else world_size
    batch, parallel = spec.train.batch, spec.train.parallel
    copies = max(1, world // parallel.ranks_per_copy)
    micro = (
        None if batch.micro_size == "auto" else min(batch.micro_size, ceil_div(batch.size, copies))
    )
    return BatchPlan(
        batch_size=batch.size,
        micro_batch_size=micro,
        accumulation_steps=None if micro is None else accumulation_steps(batch.size, micro, copies),
        world_size=world,
        tensor=parallel.tensor_size,
        pipeline=parallel.stages,
        blocks=_blocks(spec.train),
        steps=spec.train.steps,
    )


def _blocks(train: Train) -> tuple[int, ...] | None:
    """Return the blocks of each stage of a task that the spec describes."""
    stages, blocks = train.parallel.stages, train.blocks
    return None if stages == 1 or blocks is None else blocks_of_stages(blocks, stages)


def blocks_of_stages(blocks: int, stages: int) -> tuple[int, ...]:
    """Return the number of blocks of each stage."""
    bounds = [part(blocks, stages, stage) for stage in range(stages)]
    return tuple(stop - start for start, stop in bounds)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
