"""A model's buffers: running statistics, counters, codebooks. Put back where a pass must leave no trace in them.

A masked sample leaves none, nor does a try of a step that is repeated, nor a step that moves no parameter.

Not here: running statistics that have drifted apart between ranks (``engine.normalization``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from engine.ranks import Ranks


@dataclass(frozen=True)
class _Place:
    """A buffer by its name: ``self.count = self.count + 1`` puts another tensor there."""

    module: nn.Module
    name: str

    def buffer(self) -> Tensor:
        buffer: Tensor = getattr(self.module, self.name)
        return buffer


class Buffers:
    """What a model's buffers hold at a moment.

    Parameters
    ----------
    places : list
        Whose buffers.
    """

    def __init__(self, places: list[_Place]):
        self._found = [(place, buffer := place.buffer(), buffer.detach().clone(), buffer._version) for place in places]

    @classmethod
    def of(cls, model: nn.Module) -> Buffers:
        """All of them."""
        return cls(
            [
                _Place(module, name)
                for module in model.modules()
                for name, _ in module.named_buffers(recurse=False, remove_duplicate=False)
            ]
        )

    def written(self) -> list[_Place]:
        """Where something was put since, be it the same value: a mask or a table of positions may be large, and stays."""
        return [
            place
            for place, buffer, _, version in self._found
            if place.buffer() is not buffer or buffer._version != version
        ]

    @torch.no_grad()
    def put_back(self, where: Tensor | None = None) -> None:
        """Put the values back.

        Parameters
        ----------
        where : Tensor, optional
            One number on the device: where it is 0, everything stays. The host does not wait for it.
        """
        for place, buffer, value, _ in self._found:
            now = place.buffer()
            buffer.copy_(value if where is None else torch.where(where.bool(), value, now))
            setattr(place.module, place.name, buffer)


class StepBuffers:
    """The buffers of one step, which is tried once or several times."""

    def __init__(self) -> None:
        self._places: list[_Place] = []
        self._step: int | None = None
        self._before = Buffers([])

    def watch(self, places: list[_Place]) -> None:
        """From here on, these are the ones that a pass writes to."""
        self._places = places

    def begin(self, step: int) -> None:
        """A try of ``step`` begins: the first finds the buffers as they are, every other one as the first did."""
        if step == self._step:
            self._before.put_back()
        else:
            self._step, self._before = step, Buffers(self._places)

    def end(self, *, refused: bool | Tensor) -> None:
        """The step is over; where it moved nothing, buffers are what they were before."""
        if refused is not False:
            self._before.put_back(where=None if refused is True else refused)


@contextmanager
def unchanged_buffers(model: nn.Module) -> Iterator[Buffers]:
    """Put the model's buffers back at the end."""
    before = Buffers.of(model)
    try:
        yield before
    finally:
        before.put_back()


def share_buffers(model: nn.Module, ranks: Ranks) -> None:
    """Let every rank begin with rank 0's. All ranks must call this."""
    if ranks.device_group is None:
        return
    with torch.no_grad():
        for buffer in model.buffers():
            first = buffer.detach().clone(memory_format=torch.contiguous_format)
            # As bytes: not every number format is sent.
            dist.broadcast(first.flatten().view(torch.uint8), group=ranks.device_group, group_src=0)
            if not torch.equal(first, buffer):  # Some cannot be written to, such as those that repeat one number.
                buffer.copy_(first)
