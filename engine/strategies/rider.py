"""Numbers of each rank that are sent with the gradient.

A separate message for them would cost as much as the gradient of a small model.

DDP reduces every parameter of the module that it wraps. The *rider* is an additional parameter
whose gradient each rank writes itself: its numbers in its own row, zeros in the rows of the others.
The sum over the ranks then holds the numbers of all ranks.

The rider has a separate autograd root, recorded before the forward of any model. Autograd processes
the earliest record last, so the rider's gradient is computed after all others. The rank's status of
the step is then known. DDP puts the rider into the last bucket, and a rank that fails earlier has
not sent that bucket.

A number is sent as the four 16-bit parts of its float64, integers below 65536. For each element,
one rank writes a part, the next rank writes the constant 0.5, and the others write 0. Truncation
then recovers the part, also after DDP has divided by the number of ranks and the receiver has
multiplied the sum by it: the rounding error is far below 0.5.

The code runs once per step with cold caches, where an operation takes ten times as long as in a
tight loop. It therefore uses as few operations as possible.

Not here: the meaning of the numbers (``engine.runtime.control``), sending on behalf of a rank that
fails (``engine.strategies.reducer``).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.autograd import Variable

NUMBERS_MAX: Final = 13
"""Numbers per rank, enough for a loss of four terms. The rider always reserves this many."""
RANKS_MAX: Final = 256
"""Ranks up to which the rider is used. It takes 52 KiB at this number.

With more ranks a separate message is cheaper.
"""
_PARTS: Final = 4
_PLACES: Final = NUMBERS_MAX * _PARTS
_FORMATS: Final = {torch.float32: np.float32, torch.float64: np.float64}

Say = Callable[[], Sequence[float]]


class Rider:
    """Additional parameter of one rank.

    Parameters
    ----------
    rank, world_size : int
    dtype : torch.dtype
        Format of the model's parameters. DDP has no buckets of mixed formats.
    """

    def __init__(self, rank: int, world_size: int, dtype: torch.dtype):
        self._world_size = world_size
        places = np.zeros((world_size, _PLACES), _FORMATS[dtype])
        places[rank - 1] = 0.5
        self._gradient = torch.from_numpy(places).view(-1)
        """Gradient that this rank sends. Autograd copies it because of this second reference."""
        self._said_bytes = bytearray(_PLACES * 2)
        self._own, self._parts = places[rank], np.frombuffer(self._said_bytes, np.uint16)
        self._heard = np.zeros(world_size * _PLACES, np.uint16)
        self._rows = self._heard.view(np.float64).reshape(world_size, NUMBERS_MAX)
        self.parameter = nn.Parameter(torch.zeros(world_size * _PLACES, dtype=dtype))
        self.parameter.register_hook(self._written)  # type: ignore[no-untyped-call]
        self._said = 0
        self.log_line: Say | None = None
        """Callback that returns this rank's numbers; None sends no numbers."""
        self.meanwhile: Callable[[], None] | None = None
        """Callback after sending, before backward waits for the numbers of all ranks."""

    @staticmethod
    def fits(model: nn.Module, world_size: int) -> bool:
        """Return whether the gradient of ``model`` can carry numbers.

        It can on the CPU, where the host writes and reads them without a transfer.
        """
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        return 1 < world_size <= RANKS_MAX and all(
            parameter.device.type == "cpu" and parameter.dtype in _FORMATS for parameter in trained
        )

    def root(self) -> Tensor:
        """Return the second root of each backward, next to the objective.

        Record it before the first forward. It can be used by several backwards, because a sum
        saves no tensors. The rider does not store it, to avoid a reference cycle.
        """
        root: Tensor = self.parameter.sum()
        return root

    def rides_last(self, buckets: list[GradBucket]) -> bool:
        """Return whether the last of DDP's buckets contains the rider."""
        return any(parameter is self.parameter for parameter in buckets[-1].parameters())

    def board(self, bucket: GradBucket) -> Tensor:
        """Write this rank's numbers into the last bucket, as DDP would have.

        Returns the view of the bucket that will hold the numbers of all ranks.
        """
        (place,) = (
            gradient
            for gradient, parameter in zip(bucket.gradients(), bucket.parameters(), strict=True)
            if parameter is self.parameter
        )
        place.copy_(self._said_now() / self._world_size)
        return place

    def numbers(self, received: Tensor) -> list[list[float]]:
        """Return the numbers of each rank, in rank order."""
        self._heard[:] = received.numpy() * self._world_size
        return [row[: self._said] for row in self._rows.tolist()]

    def _written(self, _: Tensor) -> Tensor:
        if self.meanwhile is not None:
            # Callbacks run at the end of a backward in the order in which they were queued. DDP
            # queues its waiting callback after it has sent the last bucket, which has the rider.
            Variable._execution_engine.queue_callback(self.meanwhile)
        return self._said_now()

    def _said_now(self) -> Tensor:
        if self.log_line is not None:
            # Autograd calls this hook with gradients disabled, but the callback may need them.
            with torch.enable_grad():
                numbers = self.log_line()
            self._said = len(numbers)
            struct.pack_into(f"{self._said}d", self._said_bytes, 0, *numbers)
            self._own[:] = self._parts
        return self._gradient
