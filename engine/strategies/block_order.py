"""Order in which passes call a model's blocks, recorded before training and checked in every pass.

Under ``fsdp`` all ranks gather the parameters of a block together. If one rank calls a block that
another skips, the ranks gather different blocks. The result is a deadlock or, where the blocks have
equal shapes, wrong numbers without an error. Each rank therefore compares its own calls with the
recorded order, and fails before the first gather that its peers would not join. The check needs no
communication.

Backward is checked as well: a block whose output does not reach the loss is not gathered there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor, nn
from torch.autograd import Variable
from torch.autograd.graph import register_multi_grad_hook
from torch.utils._pytree import tree_leaves
from torch.utils.hooks import RemovableHandle

from lockstep.engine.runtime.errors import BadSpecError, EngineError


@dataclass(frozen=True)
class Order:
    """Indices of blocks in the order of their calls, and of the backward through their outputs."""

    forward: tuple[int, ...] = ()
    backward: tuple[int, ...] = ()


@dataclass(frozen=True)
class ModelUsage:
    """Parts of a model that its micro-batches use.

    Observed before training (``engine.preflight.usage``).
    """

    conditional: bool = False
    """True if micro-batches use different parameters or blocks."""
    train: Order = Order()
    evaluation: Order = Order()
    in_stages: bool = False
    """True if the model is one stage of a pipeline: several forwards come before a backward."""

    def of_stage(self, whole: Sequence[str], kept: Sequence[str]) -> ModelUsage:
        """Return the usage of a stage.

        Parameters
        ----------
        whole, kept : sequence of str
            Names of the blocks of the whole model, and of those of the stage.
        """
        places = {whole.index(name): place for place, name in enumerate(kept) if name in whole}

        def part(order: Order) -> Order:
            forward, backward = (
                tuple(places[index] for index in each if index in places)
                for each in (order.forward, order.backward)
            )
            return Order(forward, backward)

        return ModelUsage(self.conditional, part(self.train), part(self.evaluation), in_stages=True)


class Listener(Protocol):
    """Receiver of the calls of blocks, by the block's index."""

    def called(self, block: int) -> None:
        """Handle the start of a block's forward."""

    def reached(self, block: int) -> None:
        """Handle the first gradient of one call's outputs."""


def watch(blocks: Sequence[nn.Module], listener: Listener) -> list[RemovableHandle]:
    """Report every forward and backward of ``blocks`` to ``listener``, before other hooks."""
    return [hook for index, block in enumerate(blocks) for hook in _watch(block, index, listener)]


def _watch(block: nn.Module, index: int, listener: Listener) -> list[RemovableHandle]:
    def before(_module: nn.Module, _arguments: Any) -> None:
        listener.called(index)

    def after(_module: nn.Module, _arguments: Any, outputs: Any) -> None:
        tensors = [
            leaf for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor) and leaf.requires_grad
        ]
        if tensors:
            register_multi_grad_hook(tensors, lambda _gradient: listener.reached(index), mode="any")

    return [
        block.register_forward_pre_hook(before, prepend=True),
        block.register_forward_hook(after, prepend=True),
    ]


@dataclass
class Recorder:
    """Listener that records the order of one pass."""

    forward: list[int] = field(default_factory=list)
    backward: list[int] = field(default_factory=list)
    _in_backward: bool = False

    def called(self, block: int) -> None:
        if not self._in_backward:  # Activation checkpointing calls blocks again in backward.
            self.forward.append(block)

    def reached(self, block: int) -> None:
        self.backward.append(block)

    def begin_backward(self) -> None:
        """Stop recording forward calls. Calls in backward only repeat the forward."""
        self._in_backward = True

    def order(self) -> Order:
        """Return the recorded order."""
        return Order(tuple(self.forward), tuple(self.backward))


class OrderCheck:
    """Listener that compares each pass with the recorded order.

    Parameters
    ----------
    blocks : mapping of str to Module
        Blocks by their names in the model.
    train, evaluation : Order
        Recorded order of one training pass and of one evaluation pass.
    """

    def __init__(self, blocks: Mapping[str, nn.Module], train: Order, evaluation: Order):
        self._names = list(blocks)
        self._train, self._evaluation = train, evaluation
        self._forward: Iterator[int] | None = None
        self._backward: Iterator[int] | None = None
        self._hooks = watch(list(blocks.values()), self)

    @contextmanager
    def forward(self, *, evaluates: bool = False) -> Iterator[None]:
        """Check the calls inside the context, and at its end that none is missing."""
        self._forward = iter((self._evaluation if evaluates else self._train).forward)
        self._backward = None
        try:
            yield
            self._require_done(self._forward, "called")
        finally:
            self._forward = None

    def backward(self, objective: Tensor) -> Tensor:
        """Return ``objective`` in a form whose backward is checked."""
        checked = objective.view_as(objective)
        checked.register_hook(lambda _: self._begin_backward())  # type: ignore[no-untyped-call]
        return checked

    def called(self, block: int) -> None:
        if self._forward is not None:
            self._require_next(self._forward, block, "called")

    def reached(self, block: int) -> None:
        if self._backward is not None:
            self._require_next(self._backward, block, "reached the backward of")

    def close(self) -> None:
        """Remove the hooks."""
        for hook in self._hooks:
            hook.remove()

    def _begin_backward(self) -> None:
        self._backward = iter(self._train.backward)
        # Queued before the callback with which FSDP ends a backward. A rank that reached fewer
        # blocks fails before it takes part in a reduction.
        Variable._execution_engine.queue_callback(self._end_backward)

    def _end_backward(self) -> None:
        expected, self._backward = self._backward, None
        if expected is not None:
            self._require_done(expected, "reached the backward of")

    def _require_next(self, expected: Iterator[int], block: int, did: str) -> None:
        due = next(expected, None)
        if due != block:
            raise self._refused(f"{did} {self._names[block]}", due)

    def _require_done(self, expected: Iterator[int], did: str) -> None:
        due = next(expected, None)
        if due is not None:
            raise self._refused(f"ended before it {did} all of them", due)

    def _refused(self, what: str, due: int | None) -> EngineError:
        instead = "after the last one" if due is None else f"where {self._names[due]} was expected"
        return BadSpecError(
            f"under strategy fsdp every micro-batch must use the same blocks in the same order, "
            f"because ranks gather a "
            f"block's parameters together; this one {what} {instead}. Declare conditional = True "
            f"in the task: the whole "
            "model is then gathered at once. Or use strategy zero1 or ddp",
        )


@contextmanager
def recorded(blocks: Sequence[nn.Module]) -> Iterator[Recorder]:
    """Record the calls of ``blocks`` inside the context."""
    recorder = Recorder()
    hooks = watch(blocks, recorder)
    try:
        yield recorder
    finally:
        for hook in hooks:
            hook.remove()
