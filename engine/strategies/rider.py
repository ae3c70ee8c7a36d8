"""A few numbers of each rank that travel with the gradient: a message of their own would cost as much as a small model's.

DDP reduces whatever is a parameter of what it wraps. So it is given one more, the *rider*, whose gradient this rank writes
itself: its numbers in its own place, zeros in the others'. The sum over the ranks is then everybody's numbers.

The rider has a root of its own, recorded before any model's forward. Autograd takes what was recorded first last, so the
rider's gradient comes when all others are there: what a rank says of a step is then known, and DDP puts the rider into
the last bucket, which a rank that fails before it has not sent.

A number is sent as the four 16-bit parts of its float64, whole numbers below 65536. In each place one rank writes a part, the
rank after it a half, once and for all, and the others nothing. So cutting off the fraction finds the part again, also after
DDP has divided it by the ranks and the sum has been multiplied by them: what that leaves is far below the half.

All of this is done once per step, when the caches are full of other things: an operation then takes ten times as long as
in a loop of its own. So there are as few of them as can be.

Not here: what is said (``engine.runtime.control``), who sends it for a rank that fails (``engine.strategies.reducer``).
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
"""Numbers of one rank: enough for a loss of four terms. There are as many places, used or not."""
RANKS_MAX: Final = 256
"""With so many ranks the rider takes 52 KiB; with more, a message of its own is the cheaper one."""
_PARTS: Final = 4
_PLACES: Final = NUMBERS_MAX * _PARTS
_FORMATS: Final = {torch.float32: np.float32, torch.float64: np.float64}

Say = Callable[[], Sequence[float]]


class Rider:
    """The extra parameter of one rank.

    Parameters
    ----------
    rank, world_size : int
    dtype : torch.dtype
        Of the model's parameters: DDP has no buckets of mixed formats.
    """

    def __init__(self, rank: int, world_size: int, dtype: torch.dtype):
        self._world_size = world_size
        places = np.zeros((world_size, _PLACES), _FORMATS[dtype])
        places[rank - 1] = 0.5
        self._gradient = torch.from_numpy(places).view(-1)
        """What this rank sends. Autograd copies it, because it is held here too."""
        self._said_bytes = bytearray(_PLACES * 2)
        self._own, self._parts = places[rank], np.frombuffer(self._said_bytes, np.uint16)
        self._heard = np.zeros(world_size * _PLACES, np.uint16)
        self._rows = self._heard.view(np.float64).reshape(world_size, NUMBERS_MAX)
        self.parameter = nn.Parameter(torch.zeros(world_size * _PLACES, dtype=dtype))
        self.parameter.register_hook(self._written)  # type: ignore[no-untyped-call]
        self._said = 0
        self.say: Say | None = None
        """What is asked for this rank's numbers; None sends none."""
        self.meanwhile: Callable[[], None] | None = None
        """What is done once they are on their way, before backward waits for everybody's."""

    @staticmethod
    def fits(model: nn.Module, world_size: int) -> bool:
        """Whether the gradient of ``model`` can carry numbers: on the CPU, where the host has them and reads them."""
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        return 1 < world_size <= RANKS_MAX and all(
            parameter.device.type == "cpu" and parameter.dtype in _FORMATS for parameter in trained
        )

    def root(self) -> Tensor:
        """What each backward is to begin at, besides the objective: again and again, because a sum keeps nothing for it.

        Record it before the first forward. It is not kept here, where it would hold this rider, and be held by it, for ever.
        """
        root: Tensor = self.parameter.sum()
        return root

    def rides_last(self, buckets: list[GradBucket]) -> bool:
        """Whether the last of DDP's buckets has the rider in it."""
        return any(parameter is self.parameter for parameter in buckets[-1].parameters())

    def board(self, bucket: GradBucket) -> Tensor:
        """Write this rank's numbers into the last bucket as DDP would have; returns where everybody's will be."""
        (place,) = (
            gradient
            for gradient, parameter in zip(bucket.gradients(), bucket.parameters(), strict=True)
            if parameter is self.parameter
        )
        place.copy_(self._said_now() / self._world_size)
        return place

    def numbers(self, received: Tensor) -> list[list[float]]:
        """What each rank said, in rank order."""
        self._heard[:] = received.numpy() * self._world_size
        return [row[: self._said] for row in self._rows.tolist()]

    def _written(self, _: Tensor) -> Tensor:
        if self.meanwhile is not None:
            # Callbacks run at the end of a backward in the order of their queueing. DDP queues the one that waits when it
            # has sent its last bucket, which has the rider in it.
            Variable._execution_engine.queue_callback(self.meanwhile)
        return self._said_now()

    def _said_now(self) -> Tensor:
        if self.say is not None:
            # Autograd calls this without gradients, which whatever is asked may need for itself.
            with torch.enable_grad():
                numbers = self.say()
            self._said = len(numbers)
            struct.pack_into(f"{self._said}d", self._said_bytes, 0, *numbers)
            self._own[:] = self._parts
        return self._gradient
