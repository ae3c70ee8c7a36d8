"""The inventory with random state: a resume is equal, shared objects included, or it is named.

A seed creates a tree of containers, objects, tensors and arrays in which some values are shared.
The reference is a picture of the tree: each object by the order of its first visit.
"""

from __future__ import annotations

import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.state.inventory import Inventory
from lockstep.engine.task.interface import Task
from tests.engine.state.test_inventory import through_a_file

SEEDS_PER_TEST = 50


class Thing:
    """An object of a user's class."""


class Slotted:
    __slots__ = ("one", "two")


class Pair(NamedTuple):
    one: Any
    two: Any


class Holder(Task):
    """Holds a random tree, and changes it at random."""

    def __init__(self, seed: int) -> None:
        self._make = Maker(random.Random(seed))
        for name in "abcd":
            setattr(self, name, self._make.value(3))

    not_state = ("_make",)

    def move(self, seed: int) -> None:
        draw = random.Random(seed)
        self._make.draw = draw
        for _ in range(draw.randint(1, 4)):
            self._make.change(draw.choice([self, *self._make.pool]))

    def picture(self) -> Any:
        return Picture().of([getattr(self, name, None) for name in "abcd"])


class Maker:
    """Random values; about one in five is an object that was made before."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.pool: list[Any] = []

    def value(self, depth: int) -> Any:
        if self.pool and self.draw.random() < 0.2:
            return self.draw.choice(self.pool)
        kinds: list[Callable[[int], Any]] = [self.leaf]
        if depth:
            kinds += [self.sequence, self.mapping, self.pair, self.thing]
        made = self.draw.choice(kinds)(depth)
        if not isinstance(made, int | float | str | None):
            self.pool.append(made)
        return made

    def leaf(self, _: int) -> Any:
        number = self.draw.randint(0, 5)
        makers = (int, float, str, lambda n: torch.full((n % 3 + 1,), float(n)), np.arange)
        return self.draw.choice([*makers, lambda _: None])(number)

    def values(self, depth: int) -> list[Any]:
        return [self.value(depth - 1) for _ in range(self.draw.randint(0, 3))]

    def sequence(self, depth: int) -> Any:
        return self.draw.choice([list, list, deque, tuple])(self.values(depth))

    def mapping(self, depth: int) -> Any:
        kind = self.draw.choice([dict, dict, OrderedDict, "default", "counter"])
        if kind == "counter":
            return Counter(f"{self.draw.randint(0, 3)}")
        pairs = {self.draw.choice(["x", "y", 1, (1, 2)]): each for each in self.values(depth)}
        return defaultdict(list, pairs) if kind == "default" else kind(pairs)

    def pair(self, depth: int) -> Any:
        return Pair(self.value(depth - 1), self.value(depth - 1))

    def thing(self, depth: int) -> Any:
        made = self.draw.choice([Thing, Slotted])()
        made.one = self.value(depth - 1)
        return made

    def change(self, target: Any) -> None:
        """Change one value in place; an immutable one stays."""
        if isinstance(target, Tensor | np.ndarray):
            target += 1
        elif isinstance(target, Counter):
            target["9"] += 1
        elif isinstance(target, dict):
            self._change_mapping(target)
        elif isinstance(target, list | deque):
            self._change_sequence(target)
        elif isinstance(target, Holder):
            setattr(target, self.draw.choice("abcd"), self.value(2))
        elif isinstance(target, Thing | Slotted):
            setattr(target, self.draw.choice(["one", "two"]), self.value(2))

    def _change_mapping(self, target: Any) -> None:
        if target and self.draw.random() < 0.3:
            target.pop(self.draw.choice(list(target)))
        else:
            target[self.draw.choice(["x", "y", "z", 1])] = self.value(2)

    def _change_sequence(self, target: Any) -> None:
        choice = self.draw.randrange(4)
        if choice == 0 or not target:
            target.append(self.value(2))
        elif choice == 1:
            target.pop()
        elif choice == 2:
            target[self.draw.randrange(len(target))] = self.value(2)
        else:
            target.reverse()


class Picture:
    """Represents a value as text, where a second visit of an object is its number."""

    def __init__(self) -> None:
        self._visited: dict[int, int] = {}
        self._alive: list[Any] = []

    def of(self, value: Any) -> Any:
        if value is None or isinstance(value, int | float | str):
            return repr(value)
        if not isinstance(value, tuple):
            if id(value) in self._visited:
                return f"#{self._visited[id(value)]}"
            self._visited[id(value)] = len(self._visited)
            self._alive.append(value)
        kind = type(value).__name__
        if isinstance(value, Tensor | np.ndarray):
            return kind, value.tolist()
        if isinstance(value, dict):
            return kind, [(repr(key), self.of(each)) for key, each in value.items()]
        if isinstance(value, list | tuple | deque):
            return kind, [self.of(each) for each in value]
        names = ["one", "two"] if isinstance(value, Slotted) else sorted(vars(value))
        return kind, [(name, self.of(getattr(value, name, "unset"))) for name in names]


def built(seed: int) -> tuple[Holder, Inventory]:
    holder = Holder(seed)
    inventory = Inventory(nn.Linear(1, 1), holder)
    inventory.remember()
    return holder, inventory


def outcome(seed: int) -> str:
    """Return "equal" or "named" for the resume of one random task."""
    holder, inventory = built(seed)
    for move in range(seed % 3):
        holder.move(1000 * seed + move)
    before, snapshot = holder.picture(), inventory.snapshot()
    holder.move(-seed - 1)
    snapshot.put_back()
    assert holder.picture() == before, f"seed {seed}: the snapshot"
    document = through_a_file(inventory.stored(Ranks()))
    again, other = built(seed)
    lost = {**document["unsaved"], **other.restore(document, Ranks())}
    if again.picture() == before:
        return "false alarm" if lost else "equal"
    assert lost, f"seed {seed}: {again.picture()} in place of {before}, and nothing is named"
    return "named"


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(first, marks=pytest.mark.drill if first >= 100 else ())
        for first in range(0, 400, SEEDS_PER_TEST)
    ],
)
def test_a_random_task_resumes_equal_or_is_named(first: int) -> None:
    found = Counter(outcome(seed) for seed in range(first, first + SEEDS_PER_TEST))
    assert found["equal"] > SEEDS_PER_TEST / 2, found
    assert found["false alarm"] <= 1, found
