"""One step of a stage: its forwards and backwards, in the order that keeps all stages busy (1F1B).

Not here: the order (``domain.training.pipeline``), the messages (``engine.parallel.links``).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from lockstep.domain.life.outcomes import Reason
from lockstep.domain.training.pipeline import Move, moves
from lockstep.engine.parallel.links import Links
from lockstep.engine.parallel.stages import Stage
from lockstep.engine.runtime.errors import reason_of, release
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
        self._received = self._sent = False
        """True once the message of the move under way was received, and sent."""

    def watch(self, timeline: Timeline) -> None:
        """Mark the waits for messages of steps in a timeline."""
        self._links.timeline = timeline

    def step(
        self,
        keys: Sequence[Hashable],
        forward: Callable[[int], Tensor],
        backward: Callable[[int, Callable[[], None]], None],
        *,
        drains: bool = False,
    ) -> None:
        """Run the micro-batches of a step.

        Parameters
        ----------
        keys : sequence
            Key of each micro-batch.
        forward : callable
            Gets the index of a micro-batch and computes its activation for the next stage, on the
            last stage the objective.
        backward : callable
            Gets the index of a micro-batch and the function that runs its backward.
        drains : bool
            True to exchange the messages of the whole step after this stage, or one before it, ran
            out of memory, and then raise that error.
        """
        failed = None
        try:
            for move in moves(len(keys), self.stage.count, self.stage.index):
                key = keys[move.micro_batch]
                self._received = self._sent = False
                if failed is None:
                    try:
                        self._run(move, key, forward, backward)
                        continue
                    except Exception as error:
                        if not drains or reason_of(error) is not Reason.OUT_OF_MEMORY:
                            raise
                        failed = error
                        self._let_go(error)
                self._pass_on(move, key)
            self._links.finish()
        finally:
            self._inputs.clear()
            self._outputs.clear()
        if failed is not None:
            raise failed

    def evaluate(self, evaluation: Callable[[Any], T], batch: Any) -> T:
        """Return the result of an evaluation, which only the last stage completes."""
        key = key_of(batch, trains=False)
        self.stage.begin()
        self.stage.receive = lambda: self._receive(0, key)
        found = evaluation(batch)
        self.stage.require_ended()
        if self.stage.output is not None:
            self._links.send_activation(key, self.stage.output)
        self._links.finish()
        self._inputs.clear()
        return found

    def _run(
        self,
        move: Move,
        key: Hashable,
        forward: Callable[[int], Tensor],
        backward: Callable[[int, Callable[[], None]], None],
    ) -> None:
        index = move.micro_batch
        if move.backward:
            backward(index, partial(self._differentiate, index))
            return
        stage = self.stage
        stage.begin()
        stage.receive = lambda: self._receive(index, key)
        output = forward(index)
        stage.require_ended()
        if not stage.last:
            self._links.send_activation(key, output)
            self._sent = True
        self._outputs[index] = output
        stage.output = None

    def _receive(self, index: int, key: Hashable) -> Tensor:
        found = self._links.receive_activation(key)
        self._received = True
        if found is None:
            raise torch.OutOfMemoryError("the stage before ran out of memory")
        self._inputs[index] = found
        return found

    def _let_go(self, error: Exception) -> None:
        """Free what a stage kept that ran out of memory."""
        self._inputs.clear()
        self._outputs.clear()
        self.stage.output = None
        release(error)

    def _pass_on(self, move: Move, key: Hashable) -> None:
        """Exchange the rest of the messages of a move without values."""
        links, stage = self._links, self.stage
        receive, send, source, target = (
            (links.receive_no_gradient, links.send_no_gradient, stage.last, stage.first)
            if move.backward
            else (links.receive_activation, links.send_no_activation, stage.first, stage.last)
        )
        if not (source or self._received):
            receive(key)
        if not (target or self._sent):
            send(key)

    def _differentiate(self, index: int) -> None:
        output, received = self._outputs.pop(index), self._inputs.pop(index, None)
        self.stage.replayed = received
        try:
            if self.stage.last:
                output.backward()  # type: ignore[no-untyped-call]
            elif output.requires_grad:
                gradient = self._links.receive_gradient(output)
                self._received = True
                torch.autograd.backward(output, gradient)
        finally:
            self.stage.replayed = None
        if received is not None and received.requires_grad:
            found = received.grad
            self._links.send_gradient(torch.zeros_like(received) if found is None else found)
            self._sent = True


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
