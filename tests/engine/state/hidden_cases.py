"""Tasks whose state is in objects that no checkpoint holds, or that are found by detours."""

from __future__ import annotations

import contextvars
import ctypes
import functools
import multiprocessing
import threading
import weakref
from array import array
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch import nn

from tests.engine.state.state_cases import Stateful

VARIABLE = contextvars.ContextVar("calls", default=0)


class Count(int):
    """A number of an own class."""


class Key:
    """Can be referred to weakly."""


class Hidden(Stateful):
    """Holds ``hidden``, which each call moves."""

    make: Callable[[], Any]

    def __init__(self) -> None:
        self.hidden = type(self).make()
        self.key = Key()

    def scale(self, model: Any) -> Any:
        return 1 / self.count()

    def count(self) -> float:
        self.hidden.value += 1
        return float(self.hidden.value)


class OfProcesses(Hidden):
    make = functools.partial(multiprocessing.Value, "i", 0)


class OfC(Hidden):
    make = ctypes.c_int


class OfContext(Hidden):
    make = staticmethod(lambda: VARIABLE)

    def __init__(self) -> None:
        super().__init__()
        VARIABLE.set(0)

    def count(self) -> float:
        VARIABLE.set(VARIABLE.get() + 1)
        return VARIABLE.get()


class OfThread(Hidden):
    make = threading.local

    def count(self) -> float:
        self.hidden.value = getattr(self.hidden, "value", 0) + 1
        return float(self.hidden.value)


class Cached(Hidden):
    """Keeps results of a pure function, which a resumed run computes again."""

    def __init__(self) -> None:
        self.calls = 0
        self.hidden = functools.lru_cache(lambda number: number + 1)

    def count(self) -> float:
        self.calls += 1
        return float(self.hidden(self.calls))


class Weak(Hidden):
    make = weakref.WeakKeyDictionary

    def count(self) -> float:
        self.hidden[self.key] = self.hidden.get(self.key, 0) + 1
        return float(self.hidden[self.key])


class Elapsed(Hidden):
    make = timedelta

    def count(self) -> float:
        self.hidden += timedelta(seconds=1)
        return self.hidden.total_seconds()


class OwnNumber(Hidden):
    make = Count

    def count(self) -> float:
        self.hidden = Count(self.hidden + 1)
        return float(self.hidden)


class Array(Hidden):
    make = staticmethod(lambda: array("d", [0.0]))

    def count(self) -> float:
        self.hidden[0] += 1
        return self.hidden[0]


class Aliased(Hidden):
    """Makes a second view of one memory at its first call."""

    def __init__(self) -> None:
        self.one, self.other = torch.zeros(1), torch.zeros(1)

    def count(self) -> float:
        if self.one.data_ptr() != self.other.data_ptr() and not float(self.one):
            self.other = self.one.view(1)
        self.one += 1
        return float(self.other)


class Rows(Stateful):
    """Keeps rows of one tensor, as a buffer of samples does. They share no number."""

    def __init__(self) -> None:
        self.kept: Any = deque([torch.zeros(1)], maxlen=3)

    def scale(self, model: Any) -> Any:
        self.kept.extend(torch.arange(2.0)[:, None] + 0.5 * self.kept[0])
        return float(sum(self.kept)) / 9


class KeepsActivation(Stateful):
    """Keeps what it computed last, with its graph and without."""

    def loss(self, model: nn.Module, batch: Any) -> Any:
        self.last = super().loss(model, batch)
        self.shown = self.last.detach()
        return self.last

    def scale(self, model: Any) -> Any:
        return 1.0


class InAHook(Stateful):
    """A hook of the model counts in its closure."""

    def model(self) -> nn.Module:
        model, calls = super().model(), [0]

        def hook(module: nn.Module, given: Any, out: Any) -> Any:
            calls[0] += module.training
            return out / max(1, calls[0])

        model.register_forward_hook(hook)
        return model

    def scale(self, model: Any) -> Any:
        return 1.0


def counting() -> property:
    calls = [0]

    def get(_: Any) -> float:
        calls[0] += 1
        return float(calls[0])

    return property(get)


class InAProperty(Stateful):
    """A property counts in its closure."""

    def __init__(self) -> None:
        type(self).calls = counting()  # type: ignore[method-assign, assignment]

    calls = counting()

    def scale(self, model: Any) -> Any:
        return 1 / self.calls  # type: ignore[operator]


NAMED = (
    OfProcesses, OfC, OfContext, OfThread, Weak, Elapsed, OwnNumber, Array, Aliased,
)  # fmt: skip
SAVED = (InAHook, InAProperty, Cached, Rows, KeepsActivation)
