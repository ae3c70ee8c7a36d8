"""The gradient of one batch on one stage of a pipeline.

All forwards run as those of micro-batches that are not the last. The last backward reduces the
gradient, because the strategy is told so before it. Nothing that a forward changes by itself could
be put back in order, so models with such state are refused.

Not here: the order of forwards and backwards (``engine.parallel.pipeline``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from torch import Tensor

from lockstep.engine.data.loader import RankBatch
from lockstep.engine.parallel.pipeline import key_of
from lockstep.engine.parallel.staged import StageParallel
from lockstep.engine.runtime.device import to_device
from lockstep.engine.runtime.errors import BadSpecError, listed
from lockstep.engine.runtime.timeline import Timeline
from lockstep.engine.step.gradient import Accumulated, GradientStep
from lockstep.engine.step.requirements import without_gradients
from lockstep.engine.task.interface import Batch

_CONDITIONAL: Final = (
    "did not use every trainable parameter, and stages do not support conditional models yet: set "
    "pipeline to null"
)


class StagedGradientStep(GradientStep):
    """Runs the micro-batches of one stage.

    Takes the parameters of :class:`GradientStep`, and the stage.
    """

    def __init__(self, *arguments: Any, stage: StageParallel, **more: Any):
        super().__init__(*arguments, **more)
        self._stage, self._pipeline = stage, stage.pipeline
        self.stages = self._pipeline.stage.count

    def warm_up(self, masked: Batch, *, keep: frozenset[str] = frozenset()) -> bool:
        complete = super().warm_up(masked, keep=keep)
        found = self._stage.gather([self.state.moving, self.draws_on_host, complete])
        moving = sorted({name for names, *_ in found for name in names})
        if moving:
            raise BadSpecError(
                f"parallel.pipeline: a forward changes {listed(moving)}, which stages do not "
                "support yet: set pipeline to null",
            )
        if not all(used for *_, used in found):
            raise BadSpecError(f"parallel.pipeline: a sample {_CONDITIONAL}")
        self.draws_on_host = any(draws for _, draws, _ in found)
        return complete

    def accumulate(
        self, batch: RankBatch, divisors: tuple[float, ...], timeline: Timeline
    ) -> Accumulated:
        found = super().accumulate(batch, divisors, timeline)
        if not found.reduced:
            raise BadSpecError(
                f"parallel.pipeline: a micro-batch {_CONDITIONAL}",
            )
        return found

    def rehearse(self, batch: Batch, samples: int, count: int = 1) -> None:
        on_device = to_device(batch, self._ranks.device)

        def forward(_: int) -> Tensor:
            self.masks.begin_micro_batch(0, 0, samples)
            with self._strategy.micro_batch(last=False):
                found, _terms = self._strategy.forward(on_device, None, penalize=False)
            return self._precision.scaled(found) if self._pipeline.stage.last else found

        def backward(_: int, run: Callable[[], None]) -> None:
            self.masks.begin_backward_of(0, 0, samples)
            with self._strategy.backward(last=False):
                run()

        keys = [key_of(batch, trains=True)] * count
        try:
            self._pipeline.step(keys, forward, backward, drains=self.drains)
        finally:
            self.masks.end()

    def _masked_pass(self, batch: Batch) -> tuple[str, ...]:
        terms: list[str] = []
        weights = self._inventory.weights_of_task()

        def forward(_: int) -> Tensor:
            self.masks.begin_micro_batch(0, 0, self._masked_samples)
            seen = self._guard.look()
            with self._strategy.micro_batch(last=False):
                objective, sums = self._strategy.forward(batch, None, penalize=False)
            self._guard.require_unchanged(seen)
            terms[:] = sums
            return objective

        def backward(_: int, run: Callable[[], None]) -> None:
            self.masks.begin_backward()
            with self._strategy.backward(last=True), without_gradients(weights):
                run()

        self._pipeline.step([key_of(batch, trains=True)], forward, backward)
        lacking = [
            name
            for name, parameter in self._model.named_parameters()
            if parameter.requires_grad and parameter.grad is None
        ]
        unused = [name for names in self._stage.gather(lacking) for name in names]
        if unused:
            raise BadSpecError(
                f"parallel.pipeline: a sample does not use {listed(unused)}, and stages do not "
                "support conditional models yet: freeze it with requires_grad_(False), or set "
                "pipeline to null",
            )
        return tuple(self._stage.of_last_stage(terms))

    def _run_micro_batches(
        self, batch: RankBatch, scales: Mapping[str, float], timeline: Timeline
    ) -> None:
        micro_batches, step = batch.micro_batches, batch.step

        def forward(index: int) -> Tensor:
            micro_batch = micro_batches[index]
            timeline.mark("forward", then="forward")
            on_device = to_device(micro_batch.batch, self._ranks.device)
            self._seed_micro_batch(step, index)
            self.masks.begin_micro_batch(
                step, micro_batch.position, micro_batch.samples or self._masked_samples
            )
            empty = not micro_batch.samples
            with self._strategy.micro_batch(last=False, empty=empty):
                found = self._objective(on_device, {} if empty else scales)
            timeline.mark("forward", then="backward")
            return found

        def backward(index: int, run: Callable[[], None]) -> None:
            micro_batch, last = micro_batches[index], index == len(micro_batches) - 1
            timeline.mark("backward", then="backward")
            self.masks.begin_backward_of(
                step, micro_batch.position, micro_batch.samples or self._masked_samples
            )
            if last:
                self._on_last_gradient = lambda: timeline.mark("backward", then="communication")
            with self._strategy.backward(last=last, empty=not micro_batch.samples):
                run()
            reduces = last and self._ranks.world_size > 1
            timeline.mark("communication" if reduces else "backward", then="forward")

        keys = [key_of(each.batch, trains=True) for each in micro_batches]
        self._pipeline.step(keys, forward, backward, drains=self.drains)

    def _objective(self, batch: Batch, scales: Mapping[str, float]) -> Tensor:
        """Return the activation for the next stage, on the last one the scaled objective."""
        seen = self._guard.look()
        found, sums = self._strategy.forward(batch, scales, penalize=False)
        self._guard.require_unchanged(seen)
        if not self._pipeline.stage.last:
            return found
        terms = self._in_order(sums)
        if scales:
            self._counted += terms
        return self._precision.scaled(found)

    def _settle(self) -> None:
        super()._settle()
        self._stage.settle()
