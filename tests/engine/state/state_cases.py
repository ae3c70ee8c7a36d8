"""Tasks whose loss depends on state outside of the weights, one for each place to keep it."""

from __future__ import annotations

import copy
import itertools
import random
from collections import Counter, OrderedDict, deque
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from lockstep.engine.runtime.ranks import Ranks
from tests.engine.cases import whole
from tests.engine.spool import events
from tests.engine.start_cases import Line, train

SEEN = {"calls": 0}


class Stateful(Line):
    """Scales its loss by ``scale``, which changes some state in each call of training."""

    def model(self) -> nn.Module:
        return super().model().double()

    def loss(self, model: nn.Module, batch: Any) -> Any:
        x, y = batch
        base = super().loss(model, (x.double(), y.double()))
        return base * self.scale(model) if model.training else base

    def scale(self, model: Any) -> Any:
        raise NotImplementedError


class Counted(Stateful):
    def __init__(self) -> None:
        self.calls = 0

    def scale(self, model: Any) -> Any:
        self.calls += 1
        return 1 / self.calls


class Teacher(Stateful):
    def __init__(self) -> None:
        torch.manual_seed(5)
        self.teacher = nn.Linear(2, 1).double().requires_grad_(False)

    def scale(self, model: Any) -> Any:
        with torch.no_grad():
            self.teacher.weight.lerp_(model.weight, 0.3)
        return 1 + self.teacher.weight.sum()


class LateTeacher(Stateful):
    """Makes its teacher at the first call."""

    teacher: Any = None

    def scale(self, model: Any) -> Any:
        if self.teacher is None:
            self.teacher = copy.deepcopy(model).requires_grad_(False)
        with torch.no_grad():
            self.teacher.weight.lerp_(model.weight, 0.3)
        return 1 + self.teacher.weight.sum()


class DictOfTensors(Stateful):
    def __init__(self) -> None:
        self.kept: dict[Any, Any] = {"mean": torch.ones(1), ("a", 1): [3]}

    def scale(self, model: Any) -> Any:
        self.kept["mean"] *= 0.9
        self.kept["last"] = self.kept["mean"] + 1
        return float(self.kept["mean"]) + float(self.kept["last"])


class ByParameter(Stateful):
    """Keeps a number for each parameter, under the parameter itself."""

    def __init__(self) -> None:
        self.kept: dict[Any, Any] = {}

    def scale(self, model: Any) -> Any:
        for parameter in model.parameters():
            self.kept[parameter] = self.kept.get(parameter, 1.0) * 0.9
        return sum(self.kept.values())


class PlainAttribute(Stateful):
    def model(self) -> nn.Module:
        model: Any = super().model()
        model.k = 0
        return model

    def scale(self, model: Any) -> Any:
        model.k += 1
        return 1 / model.k


class Volatile(Stateful):
    def model(self) -> nn.Module:
        model = super().model()
        model.register_buffer("volatile", torch.ones(1), persistent=False)
        return model

    def scale(self, model: Any) -> Any:
        model.volatile = model.volatile * 0.9
        return float(model.volatile)


class Extra(Stateful):
    grows: ClassVar[bool] = False

    class Net(nn.Linear):
        def __init__(self) -> None:
            super().__init__(2, 1)
            self.seen = [1.0]

        def get_extra_state(self) -> Any:
            return torch.tensor(self.seen)

        def set_extra_state(self, state: Any) -> None:
            self.seen = state.tolist()

    def model(self) -> nn.Module:
        return self.Net().double()

    def scale(self, model: Any) -> Any:
        if self.grows:
            model.seen.append(0.5)
        else:
            model.seen[0] *= 0.5
        return sum(model.seen)


class GrowingExtra(Extra):
    grows = True


class Generators(Stateful):
    def __init__(self) -> None:
        self.torch = torch.Generator().manual_seed(1)
        self.numpy, self.legacy = np.random.default_rng(1), np.random.RandomState(1)
        self.python = random.Random(1)

    def scale(self, model: Any) -> Any:
        drawn = float(torch.rand((), generator=self.torch)) + self.numpy.random()
        return drawn + self.legacy.rand() + self.python.random()


class Scheduled(Stateful):
    """Holds an optimizer of its own and the schedule of it."""

    def __init__(self) -> None:
        self.own = nn.Parameter(torch.ones(1))
        self.optimizer = torch.optim.Adam([self.own], lr=0.1)
        self.schedule = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)

    def scale(self, model: Any) -> Any:
        self.own.grad = torch.ones(1)
        self.optimizer.step()
        self.schedule.step()
        return float(self.own.detach()) + self.schedule.get_last_lr()[0]


class Slotted:
    __slots__ = ("count", "unset")

    def __init__(self) -> None:
        self.count = 0


class Slots(Stateful):
    def __init__(self) -> None:
        self.slotted = Slotted()

    def scale(self, model: Any) -> Any:
        self.slotted.count += 1
        return 1 / self.slotted.count


class Pair(NamedTuple):
    calls: int
    mean: Tensor


class Phase(Enum):
    FIRST, SECOND = 1, 2


class Containers(Stateful):
    """A named tuple, a deque, a Counter, an ordered dict, numbers of numpy, an Enum, sets."""

    def __init__(self) -> None:
        self.pair = Pair(0, torch.zeros(1))
        self.last: Any = deque([torch.ones(1)] * 2, maxlen=2)
        self.counted: Any = Counter()
        self.order = OrderedDict(a=1.0, b=2.0)
        self.array, self.number = np.zeros(2), np.float64(1.0)
        self.phase, self.met = Phase.FIRST, {0}

    def scale(self, model: Any) -> Any:
        calls = self.pair.calls + 1
        self.pair = Pair(calls, self.pair.mean + 1)
        self.last.append(self.last[0] * 0.5 + self.last[1])
        self.counted[calls % 3] += 1
        self.order.move_to_end(next(iter(self.order)))
        self.array += 1
        self.number = self.number * np.float64(0.9)
        self.phase = Phase.SECOND if calls > 6 else Phase.FIRST
        self.met.add(calls % 5)
        first, _ = self.order.values()
        numbers = float(self.array.sum()) + float(self.number) + self.counted[1] + len(self.met)
        return (
            float(self.last[1]) + float(self.pair.mean) + first + self.phase.value + numbers
        ) / 9


class InTheCode(Stateful):
    """A global, an attribute of the class, a closure, and a default of a function."""

    calls: ClassVar[int] = 0

    def __init__(self) -> None:
        InTheCode.calls, SEEN["calls"] = 0, 0
        count = 0

        def counting(kept: list[float]) -> float:
            nonlocal count
            count += 1
            kept[0] += count
            return kept[0]

        self.counting = counting
        self.kept = [0.0]

    def scale(self, model: Any) -> Any:
        InTheCode.calls += 1
        SEEN["calls"] += 1
        return 1 / (InTheCode.calls + SEEN["calls"] + self.counting(self.kept))


class Alias(Stateful):
    """A list that holds the model's own weight until the first call."""

    def model(self) -> nn.Module:
        model: Any = super().model()
        self.kept: list[Any] = [model.weight]
        return model

    def scale(self, model: Any) -> Any:
        self.kept[0] = self.kept[0].detach() * 0.9 + 0.1
        return float(self.kept[0].sum())


class ChangesMode(Stateful):
    """Switches a part to evaluation mode after some calls."""

    def model(self) -> nn.Module:
        model: Any = super().model()
        model.part = nn.Identity()
        return model

    def scale(self, model: Any) -> Any:
        calls = self.__dict__["calls"] = self.__dict__.get("calls", 0) + 1
        model.part.training = calls % 4 < 2
        return 1.0 if model.part.training else 0.5


class Freezes(Stateful):
    """Freezes its bias after some calls."""

    conditional = True

    def __init__(self) -> None:
        self.calls = 0

    def scale(self, model: Any) -> Any:
        self.calls += 1
        if self.calls == 5:
            model.bias.requires_grad_(False)
        return 1.0


class Phases(Stateful):
    """Puts an object of another class into an attribute after some calls."""

    class First:
        factor = 1.0

    class Second:
        factor = 2.0

    def __init__(self) -> None:
        self.phase: Any = self.First()
        self.calls = 0

    def scale(self, model: Any) -> Any:
        self.calls += 1
        if self.calls == 5:
            self.phase = self.Second()
        return self.phase.factor


class Iterating(Stateful):
    def __init__(self) -> None:
        self.numbers = itertools.count(1)

    def scale(self, model: Any) -> Any:
        return 1 / next(self.numbers)


class OwnPerRank(Stateful):
    """State that differs by rank: a buffer, and a deque of tensors."""

    batch_dependent, not_state = True, ("seen",)

    def __init__(self) -> None:
        self.last: Any = deque(maxlen=2)

    def model(self) -> nn.Module:
        model = super().model()
        model.register_buffer("count", torch.zeros(1, dtype=torch.float64))
        return model

    def scale(self, model: Any) -> Any:
        model.count += self.seen[0].sum() + len(self.last)
        self.last.append(self.seen[0].sum())
        return float(model.count) / 10 + float(sum(self.last))

    def loss(self, model: nn.Module, batch: Any) -> Any:
        self.seen = batch
        return super().loss(model, batch)


class LateBuffer(Stateful):
    """Makes buffers at the first call: one has been None, and model() lacks the other."""

    def model(self) -> nn.Module:
        model = super().model()
        model.register_buffer("empty", None)
        return model

    def scale(self, model: Any) -> Any:
        if model.empty is None:
            model.empty = torch.ones(1)
            model.register_buffer("late", torch.ones(1))
        model.empty *= 0.9
        return float(model.empty) + float(model.late)


SAVED = (
    Counted, Teacher, LateTeacher, DictOfTensors, ByParameter, PlainAttribute, Volatile, Extra,
    GrowingExtra, Generators, Scheduled, Slots, Containers, InTheCode, Alias, ChangesMode, Freezes,
    LateBuffer,
)  # fmt: skip


class Edited(Counted):
    """A number of the constructor that the user changes between two attempts."""

    factor = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.factor = type(self).factor
        self.path = f"/somewhere/{id(self)}"

    def scale(self, model: Any) -> Any:
        return super().scale(model) * self.factor


class Ended(NamedTuple):
    """Result of a run."""

    weights: dict[str, Tensor]
    warnings: list[str]
    resumed: list[dict[str, Any]]


def ended(ranks: Ranks, kind: type[Line], folder: Path, more: dict[str, Any]) -> Ended:
    trainer = train(kind(), folder, ranks, **{"steps": 8, "checkpoint": {"every_steps": 4}, **more})
    state = trainer._parts.step.strategy.model.state_dict()
    weights = {name: whole(state[name]) for name in ("weight", "bias", "count") if name in state}
    warnings = [event["message"] for event in events(folder, "warning")]
    return Ended(weights, warnings, events(folder, "resumed"))
