"""One step of a stage: its forwards and backwards, in the order that keeps all stages busy (1F1B).

Not here: the order (``domain.training.pipeline``), the messages (``engine.parallel.links``).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from lockstep.domain.training.pipeline import moves
from lockstep.engine.parallel.links import Links
from lockstep.engine.parallel.stages import Stage
from lockstep.engine.runtime.timeline import Timeline

T = TypeVar("T")


class Pipeline:
    """The forwards and backwards of one stage.

    Parameters
    ----------
    stage : Stage
    links : Links
    """

    def __init__(self, stage: Stage, links: Links):
        self.stage, self._links = stage, links
        self._inputs: dict[int, Tensor] = {}
        self._outputs: dict[int, Tensor] = {}

    def watch(self, timeline: Timeline) -> None:
        """Mark the waits for messages of steps in a timeline."""
        self._links.timeline = timeline

    def step(
        self,
        count: int,
        forward: Callable[[int], tuple[Hashable, Callable[[], Tensor]]],
        backward: Callable[[int, Callable[[], None]], None],
    ) -> None:
        """Run the micro-batches of a step.

        Parameters
        ----------
        count : int
            Their number.
        forward : callable
            Returns the key of a micro-batch, and the function that computes the activation for the
            next stage, on the last stage the objective.
        backward : callable
            Gets the index of a micro-batch and the function that runs its backward.
        """
        try:
            for move in moves(count, self.stage.count, self.stage.index):
                index = move.micro_batch
                if move.backward:
                    backward(index, partial(self._differentiate, index))
                else:
                    self._compute(index, *forward(index))
            self._links.finish()
        finally:
            self._inputs.clear()
            self._outputs.clear()

    def evaluate(self, evaluation: Callable[[Any], T], batch: Any) -> T:
        """Return the result of an evaluation, which only the last stage completes."""
        key = key_of(batch, trains=False)
        self.stage.begin()
        self.stage.receive = lambda: self._links.receive_activation(key)
        found = evaluation(batch)
        self.stage.require_ended()
        if self.stage.output is not None:
            self._links.send_activation(key, self.stage.output)
        self._links.finish()
        return found

    def _compute(self, index: int, key: Hashable, compute: Callable[[], Tensor]) -> None:
        stage = self.stage
        stage.begin()
        stage.receive = lambda: self._received(index, key)
        output = compute()
        stage.require_ended()
        if not stage.last:
            self._links.send_activation(key, output)
        self._outputs[index] = output
        stage.output = None

    def _received(self, index: int, key: Hashable) -> Tensor:
        found = self._inputs[index] = self._links.receive_activation(key)
        return found

    def _differentiate(self, index: int) -> None:
        output, received = self._outputs.pop(index), self._inputs.pop(index, None)
        self.stage.replayed = received
        try:
            if self.stage.last:
                output.backward()  # type: ignore[no-untyped-call]
            elif output.requires_grad:
                gradient = self._links.receive_gradient(output)
                torch.autograd.backward(output, gradient)
        finally:
            self.stage.replayed = None
        if received is not None and received.requires_grad:
            found = received.grad
            self._links.send_gradient(torch.zeros_like(received) if found is None else found)


def key_of(batch: Any, *, trains: bool) -> Hashable:
    """Return a key that is equal for batches whose tensors have equal shapes."""
    return trains, _shapes(batch)


def _shapes(value: Any) -> Hashable:
    if isinstance(value, Tensor):
        return value.dtype, tuple(value.shape)
    if isinstance(value, Mapping):
        return tuple((str(key), _shapes(each)) for key, each in value.items())
    if isinstance(value, tuple | list):
        return tuple(_shapes(each) for each in value)
    return type(value).__name__
