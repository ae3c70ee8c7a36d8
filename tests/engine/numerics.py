"""Runs of ranks for the tests of non-finite numbers: a toy with chosen items, and ends as data."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from lockstep.engine.loop.reporter import StepReporter
from lockstep.engine.loop.trainer import Trainer
from lockstep.engine.runtime.errors import EngineError
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.step.optimizer import Optimizer
from tests.engine import cases
from tests.engine.cases import Seen
from tests.engine.toy import Items, Net, Toy, ToyTask


@dataclass(frozen=True)
class Odd:
    """Items with unusual values."""

    nan: tuple[int, ...] = ()
    """Their loss is NaN."""
    steep: tuple[int, ...] = ()
    """Their loss is ordinary, and its gradient NaN."""
    far: tuple[int, ...] = ()
    """Their targets are a thousand times larger: in fp16 the scaled gradient overflows."""


class OddItems(Items):
    def __init__(self, toy: Toy, folder: Path | None, odd: Odd):
        super().__init__(toy, folder)
        self.odd = odd

    def __getitem__(self, index: int) -> Any:
        number, x, y, mask = super().__getitem__(index)
        if index in self.odd.nan:
            y = y * torch.nan
        return number, x, y * 1000 if index in self.odd.far else y, mask


class OddTask(ToyTask):
    def __init__(self, toy: Toy, folder: Path | None, odd: Odd):
        super().__init__(toy, folder)
        self.odd = odd

    def dataset(self, split: str) -> Dataset[Any]:
        return OddItems(self.toy, self.folder, self.odd)

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        loss = super().loss(model, batch)
        assert isinstance(loss, Tensor)
        if any(number in self.odd.steep for number in batch[0].tolist()):
            loss = (
                loss + (model(batch[1]) * 0).abs().sqrt().sum()
            )  # 0, whose slope is infinite times zero.
        return loss


@dataclass
class End:
    """The end of a run on one rank."""

    error: str = ""
    steps_done: int = 0
    weights: dict[str, Tensor] = field(default_factory=dict)
    micro_batches: list[list[int]] = field(default_factory=list)
    state: dict[Any, Any] = field(default_factory=dict)
    """State of the optimizer, for a run on one rank."""
    seen: Seen | None = None


def train(
    ranks: Ranks,
    toy: Toy,
    settings: dict[str, Any],
    folder: Path,
    odd: Odd,
    mutate: Callable[[], contextlib.AbstractContextManager[None]] | None = None,
) -> End:
    """Train once with unusual items.

    An error of the engine is returned, with the state of the model at that moment.
    """
    task = OddTask(toy, folder, odd)
    trainers: list[Trainer] = []
    before_the_loop: list[int] = []
    start, loop = Trainer.__init__, Trainer._train

    def noting(self: Trainer, *arguments: Any, **options: Any) -> None:
        start(self, *arguments, **options)
        trainers.append(self)

    def without_checks(self: Trainer) -> bool:
        before_the_loop.append(len(task.micro_batches))
        return loop(self)

    end = End()
    with (
        mock.patch.object(cases, "toy_task", return_value=task),
        mock.patch.object(Trainer, "__init__", noting),
        mock.patch.object(Trainer, "_train", without_checks),
        mutate() if mutate is not None else contextlib.nullcontext(),
    ):
        try:
            end.seen = cases.train(ranks, toy, settings, folder, kind=odd)
        except EngineError as error:
            end.error = f"{error.reason}: {error}"
    (trainer,) = trainers
    end.steps_done = trainer.steps_done
    end.micro_batches = task.micro_batches[before_the_loop[0] :]
    end.weights = {name: cases.whole(value) for name, value in task.built.state_dict().items()}
    if ranks.world_size == 1:
        end.state = trainer._parts.step.optimizer.inner.state_dict()["state"]
    return end


@contextlib.contextmanager
def as_on_a_device() -> Iterator[None]:
    """Mask steps in the optimizer's kernel and read values one step late, as on CUDA."""
    make, start = Optimizer.__init__, StepReporter.__init__

    def masking(self: Optimizer, *arguments: Any, **options: Any) -> None:
        make(self, *arguments, **options)
        self._masks = True

    def late(self: StepReporter, *arguments: Any, **options: Any) -> None:
        start(self, *arguments, **options | {"late": True})

    with (
        mock.patch.object(Optimizer, "__init__", masking),
        mock.patch.object(StepReporter, "__init__", late),
    ):
        yield


@contextlib.contextmanager
def update_anyway() -> Iterator[None]:
    """Update the weights whatever the loss and the gradient are."""
    with mock.patch(
        "lockstep.engine.step.optimizer.math", SimpleNamespace(isfinite=lambda _: True)
    ):
        yield


def initial_weights(toy: Toy) -> dict[str, Tensor]:
    from tests.engine.toy import initial

    model: Net = initial(toy)
    return {name: value.detach().clone() for name, value in model.state_dict().items()}
