"""Tensors on their way to rank 0, which writes the file of a checkpoint.

Each other rank sends its parts in the order of the file, a block at a time, while rank 0 writes the
block before. Gloo sends a block when rank 0 asks for it, so no rank keeps more than two. A group of
its own lets training use the other groups meanwhile.

1. The sender begins with a digest of the order and the sizes. Rank 0 compares it with its own:
   blocks of another order would be written in the places of others.
2. It sends all blocks, also if rank 0 could not write one.
3. Rank 0 answers once the checkpoint is durable, or given up. On a disk that was full, it asks for
   everything again.

Not here: the order (``engine.checkpoints.tensors``).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from lockstep.engine.checkpoints.tensors import block_sizes, blocks, pieces
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.runtime.scattered import BLOCK_BYTES, Scattered

_DONE: Final = 0
_AGAIN: Final = 1


def order_of(values: Sequence[Scattered]) -> int:
    """Return a number that differs if formats, shapes or holders do."""
    rows = [(str(each.dtype), tuple(each.shape), each.parts, each.columns) for each in values]
    return zlib.crc32(repr(rows).encode())


def send(ranks: Ranks, values: Sequence[Scattered]) -> None:
    """Send this rank's parts to rank 0, and wait until the checkpoint is durable or given up.

    All ranks but 0 must call this while rank 0 uses :class:`Receiver`.

    Parameters
    ----------
    ranks : Ranks
    values : sequence of Scattered
        In the order of the file.
    """
    group = _group(ranks)
    digest, answer = torch.tensor([order_of(values)]), torch.tensor([_AGAIN])
    while int(answer) == _AGAIN:
        dist.send(digest, group=group, group_dst=0)
        for value in values:
            for piece in pieces(value, ranks.rank):
                for block in blocks(piece):
                    dist.send(block, group=group, group_dst=0)
        dist.recv(answer, group=group, group_src=0)


class _Block(NamedTuple):
    rank: int
    bytes: int


class Receiver:
    """Rank 0's side for one checkpoint.

    Parameters
    ----------
    ranks : Ranks
    values : sequence of Scattered
        In the order of the file.
    """

    def __init__(self, ranks: Ranks, values: Sequence[Scattered]):
        self._group, self._others = _group(ranks), range(1, ranks.world_size)
        self._order = order_of(values)
        self._schedule = [
            _Block(rank, size)
            for value in values
            for rank, elements in value.parts
            if rank
            for size in block_sizes(elements * value.dtype.itemsize)
        ]
        self._buffers = [torch.empty(BLOCK_BYTES, dtype=torch.uint8) for _ in range(2)]
        self._blocks: Iterator[Tensor] = iter(())

    def begin(self) -> None:
        """Begin to receive. Call once before each try to write the file."""
        there = torch.tensor([0])
        for rank in self._others:
            dist.recv(there, group=self._group, group_src=rank)
            if int(there) != self._order:
                raise RuntimeError(f"rank {rank} sends other tensors than rank 0 expects")
        self._blocks = self._received()

    def next(self) -> Tensor:
        """Return the next block, valid until the one after it."""
        return next(self._blocks)

    def skip(self) -> None:
        """Receive what is left and drop it: the file could not be written."""
        for _ in self._blocks:
            continue

    def answer(self, *, again: bool) -> None:
        """Ask the other ranks for everything again, or release them."""
        for rank in self._others:
            dist.send(torch.tensor([_AGAIN if again else _DONE]), group=self._group, group_dst=rank)

    def _received(self) -> Iterator[Tensor]:
        """Yield the blocks. The next one arrives while one is used."""
        under_way = self._request(0)
        for index in range(len(self._schedule)):
            assert under_way is not None
            block, work = under_way
            work.wait()
            under_way = self._request(index + 1)
            yield block

    def _request(self, index: int) -> tuple[Tensor, dist.Work] | None:
        if index >= len(self._schedule):
            return None
        rank, size = self._schedule[index]
        block = self._buffers[index % 2][:size]
        work = dist.irecv(block, group=self._group, group_src=rank)
        assert work is not None, "rank 0 is in the group"
        return block, work


def _group(ranks: Ranks) -> dist.ProcessGroup:
    group = ranks.stream_group or ranks.host_group
    assert group is not None, "several ranks have a group"
    return group
