"""Runs of ranks for particular strategies: models that differ, states of optimizers, simulated
GPUs."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn

from lockstep.domain.spec.job import Strategy
from lockstep.engine.loop.trainer import Trainer
from lockstep.engine.model.objective import Objective
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.strategies.experimental import data_parallel
from lockstep.engine.strategies.experimental.data_parallel import DataParallel, SummedDataParallel
from lockstep.engine.strategies.flat import FlatReduction
from lockstep.engine.strategies.manual import Manual
from tests.engine.cases import planned
from tests.engine.step.replica_cases import net, nudge
from tests.engine.toy import Net, Toy, toy_task

# --- manual


def wrapped_by_hand(ranks: Ranks, kind: str, odd: int) -> None:
    """Wrap a model by hand, a different one on one rank."""
    changes: dict[str, Any] = {}
    if ranks.rank == odd:
        changes = {
            "order": {"order": "acb"},
            "shape": {"b": nn.Linear(3, 4)},
            "fewer": {"order": "ab"},
        }.get(kind, {})
    model = net(**changes)
    if ranks.rank == odd and kind == "value":
        nudge(model["b"].weight)  # type: ignore[index]
    Manual(Objective(toy_task(Toy()), model), ranks, Strategy(name="manual"))


def buffers_of_rank_0(
    ranks: Ranks, wrapper: Callable[[Objective, Ranks, Strategy], Any]
) -> list[float]:
    """Start with a buffer that differs on each rank."""
    model = net()
    model.register_buffer("own", torch.full((2,), float(ranks.rank)))
    odd = {
        "count": torch.tensor(ranks.rank),
        "mask": torch.tensor([True, False]),
        "phase": torch.tensor([1j * ranks.rank]),
        "turned": torch.full((3, 2), float(ranks.rank)).T,
        "empty": torch.zeros(0),
    }
    for name, buffer in odd.items():
        model.register_buffer(name, buffer)
    wrapper(Objective(toy_task(Toy()), model), ranks, Strategy())
    assert (float(odd["count"]), complex(odd["phase"]), float(odd["turned"].sum())) == (
        0.0,
        0j,
        0.0,
    )
    found: list[float] = model.get_buffer("own").tolist()
    return found


def messages_of_a_step(ranks: Ranks) -> list[str]:
    """Reduce gradients of two number formats, one of them missing; return the formats of the
    messages."""
    wide, narrow = nn.Parameter(torch.ones(2, 3)), nn.Parameter(torch.ones(4, dtype=torch.float64))
    spare, idle = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(5))
    reduction = FlatReduction([wide, narrow, spare, idle], ranks)
    wide.grad = torch.full((2, 3), float(ranks.rank))
    narrow.grad = torch.ones(4, dtype=torch.float64)
    if ranks.rank == 1:
        spare.grad = torch.full((1,), 8.0)
    sent: list[str] = []
    reduce = dist.all_reduce

    def noted(tensor: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        sent.append(str(tensor.dtype))
        return reduce(tensor, *arguments, **options)

    with mock.patch.object(dist, "all_reduce", noted):
        reduction.reduce([True, True, ranks.rank == 1, False], drop_unused=True)
    assert wide.grad is not None
    assert wide.grad.tolist() == [[0.5] * 3] * 2
    assert spare.grad is not None
    assert spare.grad.tolist() == [4.0]
    assert idle.grad is None
    return sorted(sent)


@contextlib.contextmanager
def sum_without_division() -> Iterator[None]:
    """Sum over the ranks in place of the mean."""
    finish = Manual.finish_reduction

    def undivided(self: Manual) -> bool:
        done = finish(self)
        for parameter in self.model.parameters():
            assert parameter.grad is not None
            parameter.grad *= self.ranks.world_size
        return done

    with mock.patch.object(Manual, "finish_reduction", undivided):
        yield


# --- zero1


def moments(ranks: Ranks, toy: Toy, settings: dict[str, Any], folder: Path) -> dict[str, int]:
    """Train, and count the numbers that this rank's optimizer holds."""
    plan, spec = planned(settings, ranks.world_size)
    folder.mkdir(parents=True, exist_ok=True)
    trainer = Trainer(spec, plan, toy_task(toy, folder), ranks, folder)
    trainer.run()
    inner: Any = trainer._parts.step.optimizer.inner
    return {
        "inside": sum(_numbers(state) for state in getattr(inner, "optim", inner).state.values()),
        "outside": sum(_numbers(state) for state in inner.state.values())
        if hasattr(inner, "optim")
        else 0,
        "gathered": len(getattr(inner, "_all_state_dicts", [])),
        "parameters": sum(
            parameter.numel() for parameter in trainer._parts.step.strategy.model.parameters()
        ),
    }


def _numbers(state: dict[str, Any]) -> int:
    return sum(
        value.numel() for value in state.values() if isinstance(value, torch.Tensor) and value.ndim
    )


@contextlib.contextmanager
def warnings_are_errors() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@contextlib.contextmanager
def two_formats() -> Iterator[None]:
    build = Net.__init__

    def mixed(self: Net, toy: Toy) -> None:
        build(self, toy)
        self.scale = nn.Parameter(self.scale.detach().float())

    with mock.patch.object(Net, "__init__", mixed):
        yield


# --- data_parallel


class _Chunks:
    """Scatter without devices."""

    @staticmethod
    def apply(
        devices: list[int], sizes: Any, dim: int, tensor: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        return tensor.chunk(len(devices), dim)


@contextlib.contextmanager
def pretended_gpus(count: int) -> Iterator[None]:
    """Let data_parallel divide a micro-batch over a number of copies on the CPU.

    Torch's own scatter decides the part of each copy. Copies share the parameters themselves, which
    add up their gradients as the broadcast's backward does on devices.
    """

    def wrapped(self: DataParallel) -> SummedDataParallel:
        parallel = SummedDataParallel(self.objective)
        parallel.dim, parallel.device_ids = 0, list(range(count))
        parallel.src_device_obj, parallel.output_device = torch.device("cpu"), torch.device("cpu")  # type: ignore[assignment]
        parallel.replicate = lambda module, devices: [module] * len(devices)  # type: ignore[method-assign]
        parallel.parallel_apply = lambda copies, inputs, options: [  # type: ignore[method-assign]
            copy(*given, **named)
            for copy, given, named in zip(copies, inputs, options, strict=True)
        ]
        return parallel

    with (
        mock.patch.object(data_parallel, "_require_one_process_with_gpus"),
        mock.patch.object(DataParallel, "wrapped", wrapped),
        mock.patch("torch.nn.parallel.scatter_gather.Scatter", _Chunks),
    ):
        yield


@contextlib.contextmanager
def averaged_copies() -> Iterator[None]:
    """Return the mean of the copies' objectives, as a DataParallel of mean losses has it."""
    gather = SummedDataParallel.gather

    def mean(self: SummedDataParallel, outputs: Any, device: Any) -> Any:
        objective, sums = gather(self, outputs, device)
        return objective / len(outputs), sums

    with pretended_gpus(2), mock.patch.object(SummedDataParallel, "gather", mean):
        yield


@contextlib.contextmanager
def penalty_in_every_copy() -> Iterator[None]:
    scatter = SummedDataParallel.scatter

    def everywhere(self: SummedDataParallel, inputs: Any, options: Any, devices: Any) -> Any:
        scattered, given = scatter(self, inputs, options, devices)
        return scattered, [options] * len(given)

    with pretended_gpus(2), mock.patch.object(SummedDataParallel, "scatter", everywhere):
        yield


@contextlib.contextmanager
def both(*conditions: Callable[[], contextlib.AbstractContextManager[None]]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for condition in conditions:
            stack.enter_context(condition())
        yield
