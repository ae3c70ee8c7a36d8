"""Identity of this rank, its device, and its process groups.

The environment is read here, once. On CUDA there are two process groups: NCCL reduces gradients,
and Gloo carries the values that the host decides on. On the CPU one Gloo group does both. A single
rank has no group, which halves its start-up time.

Ranks exchange values as JSON and tensors, never as pickles.

Not here: the messages (``engine.strategies``), the numbers of a step (``engine.runtime.control``).
"""

from __future__ import annotations

import json
import math
import os
import resource
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import DebugLevel, Logger, get_debug_level, set_debug_level

from lockstep.domain.kinds.devices import HIDDEN
from lockstep.engine.runtime.device import is_accelerator, module_of, traits_of
from lockstep.engine.runtime.document import Place, decode, dtype_name, dtype_of, encode
from lockstep.engine.runtime.rendezvous import store_in, store_on_loopback
from lockstep.engine.runtime.scattered import Scattered, stride_of

LOOPBACK: Final = "127.0.0.1"
P = TypeVar(
    "P", bound=bool | int | float | str | list[Any] | tuple[Any, ...] | dict[str, Any] | None
)
"""Value that JSON keeps, floats to the last bit, except that tuples become lists."""


@dataclass(frozen=True)
class RankEnvironment:
    """Environment variables that the launcher sets, with torchrun's names.

    The defaults are those of a single process.
    """

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    threads: int | None = None
    """``OMP_NUM_THREADS``, if it is set."""
    visible_devices: bool = False
    """True if the process already sees this job's devices only."""
    host: str = LOOPBACK
    """``MASTER_ADDR``: the host of rank 0."""
    port: int = 0
    """``MASTER_PORT``; 0 without it."""

    @property
    def is_one_node(self) -> bool:
        """True if all ranks are on this node."""
        return self.local_world_size == self.world_size

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> RankEnvironment:
        threads = environ.get("OMP_NUM_THREADS", "")
        return cls(
            rank=int(environ.get("RANK", "0")),
            world_size=int(environ.get("WORLD_SIZE", "1")),
            local_rank=int(environ.get("LOCAL_RANK", "0")),
            local_world_size=int(environ.get("LOCAL_WORLD_SIZE", "1")),
            threads=int(threads) if threads.isdigit() and int(threads) > 0 else None,
            visible_devices=any(environ.get(name) for name in HIDDEN),
            host=environ.get("MASTER_ADDR") or LOOPBACK,
            port=int(environ.get("MASTER_PORT", "0")),
        )


@dataclass(frozen=True)
class Ranks:
    """This rank among the others."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    host_group: dist.ProcessGroup | None = None
    """Gloo; None for a single rank."""
    device_group: dist.ProcessGroup | None = None
    """Process group that reduces gradients: NCCL on CUDA, the host group on the CPU; None for a
    single rank."""
    stream_group: dist.ProcessGroup | None = None
    """Gloo, for the tensors of checkpoints alone, which a thread sends while training continues;
    None where rank 0 holds the whole state."""
    patience: timedelta | None = None
    """Timeout of further groups; None takes torch's own."""
    alike: tuple[tuple[int, ...], ...] = ()
    """Processes of this group, and of each that trains other slices of the model; empty without a
    cut."""
    host: str = ""
    """Address of rank 0, as other nodes reach it; empty if all ranks are on one node."""

    @property
    def first(self) -> bool:
        """True on the rank that writes shared files."""
        return self.rank == 0

    def sum_on_host(self, vector: torch.Tensor) -> None:
        """Add up a CPU tensor over all ranks, in place. All ranks must call this."""
        if self.host_group is not None:
            dist.all_reduce(vector, group=self.host_group)

    def sum_on_device(self, vector: torch.Tensor) -> None:
        """Add up a device tensor over all ranks, in place. All ranks must call this."""
        if self.device_group is not None:
            dist.all_reduce(vector, group=self.device_group)

    def part(self, divide: Callable[[list[int]], list[list[int]]]) -> dist.ProcessGroup:
        """Return the group of a part of these ranks, more than one. All ranks must call this.

        Those with other slices of the model, too: every process makes every group, in one order.

        Parameters
        ----------
        divide : callable
            Returns the parts of a list of processes, each process in one of them.
        """
        assert self.device_group is not None, "several ranks have a group"
        every = self.alike or (tuple(dist.get_process_group_ranks(self.device_group)),)
        found: dist.ProcessGroup | None = None
        for members in (part for alike in every for part in divide(list(alike))):
            group = dist.new_group(members, timeout=self.patience)
            found = group if dist.get_rank() in members else found
        assert found is not None, "each process is in one part"
        return found

    def from_first(self, value: P) -> P:
        """Rank 0's value, on every rank. All ranks must call this.

        Tuples arrive as lists.
        """
        if self.host_group is None:
            return value
        content = _bytes_of(value)
        size = torch.tensor([len(content)])
        dist.broadcast(size, group=self.host_group, group_src=0)
        if not self.first:
            content = torch.empty(int(size), dtype=torch.uint8)
        dist.broadcast(content, group=self.host_group, group_src=0)
        received: P = json.loads(content.numpy().tobytes())
        return received

    def gather(self, value: P) -> list[P]:
        """Every rank's value, in rank order, on every rank. All ranks must call this.

        Tuples arrive as lists.
        """
        if self.host_group is None:
            return [value]
        padded, sizes = self._padded(_bytes_of(value))
        received = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(received, padded, group=self.host_group)
        return [json.loads(each) for each in _cut(received, sizes)]

    def of_each(self, value: Any) -> list[Any]:
        """Every rank's value, in rank order, on every rank. All ranks must call this.

        Its tensors stay where they are: they are ``Scattered``, with one part.

        Parameters
        ----------
        value : object
            Tensors and plain values, in containers (``engine.runtime.document``).
        """
        if self.host_group is None:
            return [value]
        return list(self._decoded(value, lambda found: found))

    def to_first(self, value: Any) -> list[Any]:
        """Every rank's value, in rank order, on rank 0 alone, with its tensors on the host.

        The others get nothing. All ranks must call this.

        Parameters
        ----------
        value : object
            As in :meth:`of_each`.
        """
        if self.host_group is None:
            return [value]
        found = list(self._decoded(value, self._moved))
        return found if self.first else []

    def _decoded(self, value: Any, use: Callable[[Scattered], Any]) -> Iterator[Any]:
        """Yield every rank's value, with the results of ``use`` in the places of tensors."""
        own: list[torch.Tensor] = []

        def write(tensor: torch.Tensor, _: Place) -> dict[str, Any]:
            own.append(tensor.detach().resolve_conj().resolve_neg())
            dtype, stride = dtype_name(tensor.dtype), stride_of(tensor)
            return {
                "at": len(own) - 1,
                "dtype": dtype,
                "shape": list(tensor.shape),
                "stride": stride,
            }

        for rank, document in enumerate(self.gather(encode(value, write))):

            def read(found: dict[str, Any], rank: int = rank) -> Any:
                shape, stride = tuple(found["shape"]), found["stride"]
                return use(
                    Scattered(
                        dtype_of(found["dtype"]),
                        shape,
                        ((rank, math.prod(shape)),),
                        own[found["at"]] if rank == self.rank else None,
                        None if stride is None else tuple(stride),
                    )
                )

            yield decode(document, read)

    def _moved(self, found: Scattered) -> torch.Tensor | None:
        """Send a tensor of one part to rank 0, and return it there."""
        ((rank, elements),) = found.parts
        if rank != 0 and rank == self.rank and elements and found.own is not None:
            dist.send(found.own.cpu().contiguous(), group=self.host_group, group_dst=0)
        if not self.first:
            return None
        if found.own is not None:
            return found.own.cpu()
        moved = torch.empty(found.shape, dtype=found.dtype)
        if elements:
            dist.recv(moved, group=self.host_group, group_src=rank)
        if found.stride is None:
            return moved
        return torch.empty_strided(found.shape, found.stride, dtype=found.dtype).copy_(moved)

    def _padded(self, content: torch.Tensor) -> tuple[torch.Tensor, list[int]]:
        """Return the bytes, as long as those of the rank with the most, and each rank's size."""
        every = [torch.empty(1, dtype=torch.int64) for _ in range(self.world_size)]
        dist.all_gather(every, torch.tensor([len(content)]), group=self.host_group)
        sizes = [int(size) for size in every]
        padded = torch.empty(max(sizes), dtype=torch.uint8)
        padded[: len(content)] = content
        return padded, sizes

    def barrier(self) -> None:
        """Wait until every rank is here. All ranks must call this."""
        self.sum_on_host(torch.zeros(1))


def _bytes_of(value: object) -> torch.Tensor:
    return torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)


def _cut(received: list[torch.Tensor], sizes: list[int]) -> list[bytes]:
    return [each[:size].numpy().tobytes() for each, size in zip(received, sizes, strict=False)]


def use_threads(environment: RankEnvironment) -> None:
    """Let torch use the launcher's number of threads; without one, this rank's part of the cores.

    A forked rank's torch was imported where the number was another, so that it is not left to the
    variable.
    """
    torch.set_num_threads(
        environment.threads or max(1, (os.cpu_count() or 1) // environment.local_world_size)
    )


def compare_collectives() -> None:
    """Let ranks compare each collective before they enter it, and raise if it differs.

    Must come before :func:`connect`. DDP's own log of its construction is left out: over a group
    that compares, torch 2.13 takes the comparing wrapper for Gloo itself, and the process ends by
    SIGSEGV.
    """
    set_debug_level(DebugLevel.DETAIL)
    dist.Logger = _SilentLogger  # type: ignore[attr-defined] # where DDP looks for it


def compares_collectives() -> bool:
    """Return whether the environment sets ``TORCH_DISTRIBUTED_DEBUG=DETAIL``."""
    return get_debug_level() == DebugLevel.DETAIL


class _SilentLogger(Logger):
    def set_construction_data_and_log(self, *arguments: object) -> None:
        pass


def allow_files() -> None:
    """Let this process open as many files as it may.

    Each tensor that a loader worker hands over is one while it lives.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # Some kernels allow fewer than they report.
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def give_way() -> None:
    """Let this thread, and those that it starts, wake without taking a core from another thread.

    Gloo's thread of a connection polls it without a pause while another thread holds its lock. That
    thread sends and wakes the poller of its peer, which took its core: on ranks that share cores,
    most of their processor time was such polling.
    """
    with suppress(OSError):  # A container may forbid it.
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def connect(
    environment: RankEnvironment,
    *,
    kind: str,
    patience: timedelta,
    devices: list[int] | None = None,
    private: Path | None = None,
    streams: bool = False,
) -> Ranks:
    """Connect to the other ranks. All ranks must call this.

    Parameters
    ----------
    environment : RankEnvironment
    kind : str
        Kind of the devices to train on.
    patience : timedelta
        Timeout of every operation, including this one. A waiting rank cannot see the others; hangs
        are detected by ``engine.launcher.stall.stalls``, and this timeout must be longer.
    devices : list of int, optional
        The node's devices that the attempt holds, in rank order; used if no variable selects them.
    private : Path, optional
        Folder that the ranks of one node share with their launcher alone. Without one torch makes
        the store, as the environment says.
    streams : bool
        True if ranks send tensors of checkpoints to rank 0.
    """
    device = torch.device(kind)
    traits, on_host = traits_of(device), not is_accelerator(device)
    if not on_host:
        device = torch.device(kind, _device_index(environment, kind, devices))
        module_of(device).set_device(device)
    host_group = device_group = stream_group = None
    if environment.world_size > 1:
        if on_host:
            give_way()
        by_store: dict[str, Any] = {}
        if private is not None:
            rank, count = environment.rank, environment.world_size
            store = (
                store_in(private, count)
                if traits.store_in_file
                else store_on_loopback(environment.port, rank, count, patience)
            )
            by_store = {"store": store, "rank": rank, "world_size": count}
        dist.init_process_group(
            traits.backend, timeout=patience, device_id=None if on_host else device, **by_store
        )
        device_group = dist.group.WORLD
        host_group = device_group if on_host else dist.new_group(backend="gloo", timeout=patience)
        if streams:
            stream_group = dist.new_group(backend="gloo", timeout=patience)
    return Ranks(
        rank=environment.rank,
        world_size=environment.world_size,
        local_rank=environment.local_rank,
        device=device,
        host_group=host_group,
        device_group=device_group,
        stream_group=stream_group,
        patience=patience,
        host="" if environment.is_one_node else environment.host,
    )


def disconnect() -> None:
    """Leave the process groups.

    DDP's wrapper must be gone before: with it, torch 2.13 on Gloo deadlocks here.
    """
    if dist.is_initialized():
        dist.destroy_process_group()


def _device_index(environment: RankEnvironment, kind: str, devices: list[int] | None) -> int:
    if environment.visible_devices or not devices:
        # A launcher may show each rank its own device only; then that one has index 0.
        count = torch.get_device_module(kind).device_count()
        return environment.local_rank if environment.local_rank < count else 0
    return devices[environment.local_rank]
