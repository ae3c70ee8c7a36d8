"""A model's buffers: running statistics, counters, codebooks.

Put back where a pass must leave no trace in them.

A masked sample leaves none, nor does a try of a step that is repeated, nor a step that moves no
parameter.

Not here: running statistics that have drifted apart between ranks (``engine.model.normalization``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lockstep.engine.runtime.ranks import Ranks


@dataclass(frozen=True)
class BufferPath:
    """A buffer by its name: ``self.count = self.count + 1`` puts another tensor there."""

    module: nn.Module
    name: str

    def buffer(self) -> Tensor:
        buffer: Tensor = getattr(self.module, self.name)
        return buffer


def places_of(model: nn.Module) -> list[BufferPath]:
    """Of all buffers of a model."""
    return [
        BufferPath(module, name)
        for module in model.modules()
        for name, _ in module.named_buffers(recurse=False, remove_duplicate=False)
    ]


class Buffers:
    """Values of some buffers at a moment."""

    def __init__(self, found: list[tuple[BufferPath, Tensor, Tensor]]):
        self._found = found

    @classmethod
    def at(cls, places: list[BufferPath]) -> Buffers:
        return cls([(place, buffer := place.buffer(), buffer.detach().clone()) for place in places])

    @property
    def places(self) -> list[BufferPath]:
        return [place for place, *_ in self._found]

    def changed(self) -> Buffers:
        """Return the buffers with new values; the host waits for the device."""
        return Buffers(
            [
                (place, buffer, value)
                for place, buffer, value in self._found
                if (now := place.buffer()) is not buffer or not torch.equal(now, value)
            ]
        )

    @torch.no_grad()
    def put_back(self, where: Tensor | None = None) -> None:
        """Put the values back.

        Parameters
        ----------
        where : Tensor, optional
            One number on the device: where it is 0, everything stays. The host does not wait for
            it.
        """
        for place, buffer, value in self._found:
            buffer.copy_(
                value if where is None else torch.where(where.bool(), value, place.buffer())
            )
            setattr(place.module, place.name, buffer)


class StepBuffers:
    """The buffers of one step, which is tried once or several times.

    Only those that the warm-up was seen to change are kept: a mask or a table of positions may be
    large, and stays.

    Parameters
    ----------
    moved : sequence of Place
        Parameters, and tensors of the task's own modules, that the loss changes as it changes
        buffers.
    """

    def __init__(self, moved: Sequence[BufferPath] = ()) -> None:
        self._moved = list(moved)
        self._places: list[BufferPath] = []
        self._step: int | None = None
        self._before = Buffers.at([])

    @contextmanager
    def warm_up(self, model: nn.Module) -> Iterator[None]:
        """Put all buffers back at the end, and note which ones have changed."""
        before, moved = Buffers.at(places_of(model)), Buffers.at(self._moved)
        try:
            yield
        finally:
            changed = before.changed()
            # Of the others, some cannot be written to, such as those that repeat one number.
            changed.put_back()
            moved.put_back()
            self._places = changed.places + self._moved

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Put them back at the end."""
        before = Buffers.at(self._places)
        try:
            yield
        finally:
            before.put_back()

    def begin(self, step: int) -> None:
        """A try of ``step`` begins.

        The first finds the buffers as they are, every other one as the first did.
        """
        if step == self._step:
            self._before.put_back()
        else:
            self._step, self._before = step, Buffers.at(self._places)

    def end(self, *, refused: bool | Tensor) -> None:
        """End the step. If it was refused, restore the buffers."""
        if refused is not False:
            self._before.put_back(where=None if refused is True else refused)


def share_buffers(model: nn.Module, ranks: Ranks) -> None:
    """Let every rank begin with rank 0's. All ranks must call this."""
    if ranks.device_group is None:
        return
    with torch.no_grad():
        for buffer in model.buffers():
            first = buffer.detach().clone(memory_format=torch.contiguous_format)
            # As bytes: not every number format is sent.
            dist.broadcast(first.flatten().view(torch.uint8), group=ranks.device_group, group_src=0)
            if not torch.equal(
                first, buffer
            ):  # Some cannot be written to, such as those that repeat one number.
                buffer.copy_(first)
