"""Tasks with state outside of the engine, and tasks that only seem to have some."""

from __future__ import annotations

import copy
import os
import random
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm
from torch.utils.data import Dataset, Subset

from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.task.dropout import Dropout
from lockstep.engine.task.interface import Task
from tests.engine.spool import events
from tests.engine.start_cases import Line, train

# --- datasets


class Items(Dataset[Any]):
    """Twelve items with noise; subclasses choose its source."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        x = torch.tensor([index / 12, 1.0]) + self.noise(index)
        return x, torch.tensor(index / 12)

    def noise(self, index: int) -> float:
        return 0.0


class NumpyGenerator(Items):
    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def noise(self, index: int) -> float:
        return float(self.rng.random())


class TorchGenerator(Items):
    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(0)

    def noise(self, index: int) -> float:
        return float(torch.rand((), generator=self.generator))


class Jitter:
    def __init__(self) -> None:
        self.draws = random.Random(0)

    def __call__(self) -> float:
        return self.draws.random()


class Transformed(Items):
    """The generator is that of a transform in a list."""

    def __init__(self) -> None:
        self.transforms = [abs, Jitter()]

    def noise(self, index: int) -> float:
        jitter: Any = self.transforms[1]
        return float(jitter())


class CoinToss(NumpyGenerator):
    """Differs in every second fetch only."""

    def noise(self, index: int) -> float:
        return float(self.rng.random() < 0.5)


class SystemRandomness(Items):
    def noise(self, index: int) -> float:
        return os.urandom(1)[0] / 256


class SeededByTheEngine(Items):
    def noise(self, index: int) -> float:
        return random.random() + float(np.random.rand()) + float(torch.rand(()))


class ReseededPerItem(TorchGenerator):
    """A generator of its own, but each item is a function of its number."""

    def noise(self, index: int) -> float:
        self.generator.manual_seed(index)
        return super().noise(index)


class SpawnedPerItem(Items):
    """As the documentation of ``Task.dataset`` recommends."""

    def noise(self, index: int) -> float:
        return float(np.random.default_rng(np.random.randint(2**31)).random())


class Given(Line):
    """Trains on a given dataset."""

    def __init__(self, items: Dataset[Any]):
        self.data = items

    def dataset(self, split: str) -> Dataset[Any]:
        return self.data


def subset_of(items: Dataset[Any]) -> Dataset[Any]:
    return Subset(items, range(12))


# --- state that a call of the loss changes


class Counting(Line):
    """Anneals its loss by the number of its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def loss(self, model: nn.Module, batch: Any) -> Any:
        self.calls += 1
        return super().loss(model, batch) / self.calls


class CountingInTheModel(Line):
    class Net(nn.Linear):
        calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls = self.calls + 1
            return super().forward(x) / self.calls

    def model(self) -> nn.Module:
        net = self.Net(2, 1)
        net.calls = 0
        return net


class CountingOneTerm(Line):
    """Of its two terms, one counts the calls."""

    def __init__(self) -> None:
        self.state = {"calls": 0}

    def loss(self, model: nn.Module, batch: Any) -> Any:
        self.state["calls"] += 1
        return {
            "fit": super().loss(model, batch),
            "kl": model(batch[0]).square().sum() * self.state["calls"],
        }


class CountingOutside(Line):
    """The counter is in the environment, which no walk finds."""

    def loss(self, model: nn.Module, batch: Any) -> Any:
        calls = int(os.environ.get("CALLS_OF_THE_TEST", "0")) + 1
        os.environ["CALLS_OF_THE_TEST"] = str(calls)
        return super().loss(model, batch) * calls


class OwnNoise(Line):
    """Draws in the loss, from a generator of its own."""

    def __init__(self) -> None:
        self.rng = torch.Generator().manual_seed(0)

    def loss(self, model: nn.Module, batch: Any) -> Any:
        x, y = batch
        return super().loss(model, (x + torch.rand(x.shape, dtype=x.dtype, generator=self.rng), y))


class Taught(Line):
    """Mean teacher inside the model, which begins as a copy of the student and is updated by the
    loss."""

    def model(self) -> nn.Module:
        torch.manual_seed(3)
        student = nn.Linear(2, 1)
        self.built = nn.ModuleDict(
            {"student": student, "teacher": copy.deepcopy(student).requires_grad_(False)}
        )
        return self.built

    def loss(self, model: Any, batch: Any) -> Any:
        self.move(model["teacher"], model["student"])
        with torch.no_grad():
            target = model["teacher"](batch[0])
        x, _ = batch
        return super().loss(model["student"], batch) + (model["student"](x) - target).square().sum()

    @torch.no_grad()
    def move(self, teacher: nn.Module, student: nn.Module) -> None:
        for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
            slow.lerp_(fast, 0.1)


class TaughtByData(Taught):
    """Updates ``.data``, which no version counter records."""

    def move(self, teacher: nn.Module, student: nn.Module) -> None:
        for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
            slow.data.mul_(0.9).add_(fast.data, alpha=0.1)


class TaughtByTheTask(Line):
    """The teacher belongs to the task instead of the model."""

    def model(self) -> nn.Module:
        torch.manual_seed(3)
        student = nn.Linear(2, 1)
        self.teacher = copy.deepcopy(student).requires_grad_(False)
        return student

    def loss(self, model: Any, batch: Any) -> Any:
        Taught.move(self, self.teacher, model)  # type: ignore[arg-type]
        with torch.no_grad():
            target = self.teacher(batch[0])
        return super().loss(model, batch) + (model(batch[0]) - target).square().sum()


class RunningMean(Line):
    class Net(nn.Module):
        mean: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.out = nn.Linear(2, 1)
            self.register_buffer("mean", torch.zeros(2))

        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                with torch.no_grad():
                    self.mean.lerp_(x.mean(0).to(self.mean.dtype), 0.1)
            found: Tensor = self.out(x)
            return found

    def model(self) -> nn.Module:
        return self.Net()


class SpectrallyNormed(Line):
    def model(self) -> nn.Module:
        torch.manual_seed(3)
        return nn.Sequential(spectral_norm(nn.Linear(2, 5)), nn.Linear(5, 1))


class Clamped(Line):
    """Clips its gradient by value."""

    def model(self) -> nn.Module:
        model = nn.Linear(2, 1)
        model.weight.register_hook(lambda gradient: gradient.clamp(-0.1, 0.1))
        return model


class ClampedAfterwards(Line):
    def model(self) -> nn.Module:
        model = nn.Linear(2, 1)
        model.bias.register_post_accumulate_grad_hook(self.clamp)  # type: ignore[no-untyped-call]
        return model

    def clamp(self, parameter: Any) -> None:
        parameter.grad.clamp_(-0.1, 0.1)


class Levelled(Items):
    """Items with a level of difficulty, and with targets of their own."""

    def __init__(self, task: Task) -> None:
        self.task, self.level, self.targets = task, 0, torch.zeros(12)

    def noise(self, index: int) -> float:
        return self.level / 1000 + float(self.targets[index])


class Curriculum(Line):
    """Raises the level of its dataset."""

    def __init__(self) -> None:
        self.items, self.calls = Levelled(self), 0

    def dataset(self, split: str) -> Dataset[Any]:
        return Subset(self.items, range(12))

    def loss(self, model: nn.Module, batch: Any) -> Any:
        self.change()
        return super().loss(model, batch)

    def change(self) -> None:
        self.items.level += 1


class Refined(Curriculum):
    """Changes targets of its dataset."""

    def change(self) -> None:
        self.items.targets[:3] += 0.1


# --- no such state


class Counted(Curriculum):
    """Its dataset refers to the task, which counts."""

    def change(self) -> None:
        self.calls += 1


class Logging(Line):
    """Keeps numbers and tensors that its loss does not read."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.calls, self.total = 0, torch.zeros(())
        self.by_name = {"loss": torch.zeros(())}

    def loss(self, model: nn.Module, batch: Any) -> Any:
        found = super().loss(model, batch)
        self.calls += 1
        self.seen.append(len(batch[0]))
        self.total += found.detach().to(self.total.dtype)
        self.by_name["loss"] = found.detach()
        return found


class Caching(Line):
    """Makes a tensor at the first call, and keeps it."""

    mask: Tensor | None = None

    def loss(self, model: nn.Module, batch: Any) -> Any:
        if self.mask is None:
            self.mask = torch.ones(2)
        return super().loss(model, (batch[0] * self.mask.to(batch[0].dtype), batch[1]))


class EngineDropout(Line):
    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(2, 8), Dropout(0.5), nn.Linear(8, 1))


class NormedImages(Line):
    batch_dependent: ClassVar[bool] = True

    def model(self) -> nn.Module:
        return nn.Sequential(
            nn.Unflatten(1, (2, 1)), nn.BatchNorm1d(2), nn.Flatten(), nn.Linear(2, 1)
        )


class Tied(Line):
    """One weight under two names, and a frozen parameter that stays."""

    def model(self) -> nn.Module:
        one, two = nn.Linear(2, 2), nn.Linear(2, 2)
        two.weight = one.weight
        two.bias.requires_grad_(False)
        return nn.Sequential(one, two, nn.Linear(2, 1))


class FilledLater(Line):
    """A table of the model is made at its first call."""

    class Net(nn.Linear):
        def __init__(self) -> None:
            super().__init__(2, 1)
            self.register_buffer("table", None, persistent=False)

        def forward(self, x: Tensor) -> Tensor:
            if self.table is None:
                self.table = torch.arange(2.0)
            return super().forward(x * self.table)

    def model(self) -> nn.Module:
        return self.Net()


class Grown(FilledLater):
    """Its table grows to the length that a call needs, as that of rotary positions does."""

    class Net(FilledLater.Net):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.arange(1.0), persistent=False)

        def forward(self, x: Tensor) -> Tensor:
            if len(self.table) < 2:
                self.register_buffer("table", torch.arange(2.0), persistent=False)
            return super().forward(x)


class FrozenNorm(Line):
    """Its own train() keeps the statistics."""

    class Norm(nn.BatchNorm1d):
        def train(self, mode: bool = True) -> Any:
            return super().train(False)

    def model(self) -> nn.Module:
        return nn.Sequential(self.Norm(2), nn.Linear(2, 1))


class NamedAsTheTask(Line):
    """A layer has the name of the task."""

    def model(self) -> nn.Module:
        return nn.ModuleDict({"task": nn.Linear(2, 1)})

    def loss(self, model: Any, batch: Any) -> Any:
        return super().loss(model["task"], batch)


def warnings_of(task: Task, folder: Path, ranks: Ranks | None = None, **more: Any) -> list[str]:
    """Return the warnings of a short run, those of one on rank 0."""
    train(task, folder, ranks, **more)
    return [event["message"] for event in events(folder, "warning")]


def warnings_on(ranks: Ranks, task: type[Task], folder: Path, more: dict[str, Any]) -> list[str]:
    return warnings_of(task(), folder, ranks, **more)
