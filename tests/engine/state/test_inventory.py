"""The inventory of state saves and restores all values that a task may hold, and runs none of its
code."""

from __future__ import annotations

import copy
import logging
import queue
import tempfile
import threading
import types
from array import array
from collections import ChainMap, OrderedDict, UserDict, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lockstep.engine.checkpoints import checkpoint
from lockstep.engine.runtime.errors import EngineError
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.state import inventory as inventory_module
from lockstep.engine.state import snapshot as snapshot_module
from lockstep.engine.state.inventory import Inventory
from lockstep.engine.state.reasons import listed
from lockstep.engine.state.step import StepState
from lockstep.engine.state.values import mark
from lockstep.engine.task.interface import Task


class Held(Task):
    """Holds state that ``move`` changes and ``read`` returns."""

    def move(self) -> None:
        raise NotImplementedError

    def read(self) -> Any:
        return dict(sorted(vars(self).items()))


class Cyclic(Held):
    def __init__(self) -> None:
        self.node = types.SimpleNamespace(count=0)
        self.node.me, self.node.all = self.node, [self.node]

    def move(self) -> None:
        self.node.count += 1

    def read(self) -> Any:
        return self.node.count


class Hostile:
    def __init__(self) -> None:
        self.count = 0

    @property
    def broken(self) -> Any:
        raise RuntimeError("a property ran")

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("__getattr__ ran")


class Proxy:
    __slots__ = ("count",)

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("__getattribute__ ran")


class Junk(Held):
    """Objects that are no state, and some beside them that are."""

    def __init__(self) -> None:
        self.proxy = Proxy()
        self.hostile, self.lock, self.thread = Hostile(), threading.Lock(), threading.Thread()
        self.log, self.local, self.view = logging.getLogger("x"), threading.local(), memoryview(b"")
        self.queue: Any = queue.Queue()
        self.bytes = bytearray(b"abc")

    def move(self) -> None:
        self.hostile.count += 1
        self.queue.put(5)
        self.bytes[0] += 1

    def read(self) -> Any:
        return self.hostile.count, list(self.queue.queue), bytes(self.bytes)


class Aliases(Held):
    """One tensor in five places, replaced by one of another shape."""

    def __init__(self) -> None:
        self.fill(torch.zeros(2))

    def fill(self, one: Tensor) -> None:
        self.one, self.twice, self.keyed, self.pair = one, [one, one], {"k": one}, (one, (one,))

    def move(self) -> None:
        self.fill(torch.cat([self.one, torch.ones(1)]))

    def read(self) -> Any:
        places = [*self.twice, self.keyed["k"], self.pair[0], self.pair[1][0]]
        return [self.one, [each is self.one for each in places]]


class Orders(Held):
    def __init__(self) -> None:
        self.plain: Any = {"a": 1, "b": torch.ones(1), "c": 3}
        self.ordered = OrderedDict(x=1, y=2)
        self.default: Any = defaultdict(list, {(1, 2): [1]})

    def move(self) -> None:
        self.plain["a"] = self.plain.pop("a") + 1
        self.ordered.move_to_end("x")
        self.default[1, 2].append(torch.ones(1))
        self.default["new"].append(3)

    def read(self) -> Any:
        return [list(each.items()) for each in (self.plain, self.ordered, self.default)]


class Numbers(Held):
    """Values that are not equal to themselves, or equal to others."""

    def __init__(self) -> None:
        self.nan, self.zero, self.large = float("nan"), 0.0, 2**200
        self.tensor, self.sparse = torch.tensor([torch.nan, -0.0]), torch.eye(2).to_sparse()
        self.repeated, self.empty = torch.ones(1).expand(4), torch.zeros(0)
        self.narrow, self.complex = torch.ones(2, dtype=torch.bfloat16), torch.ones(2) * 1j
        self.frozen, self.format, self.numpy = frozenset({1}), torch.float32, np.zeros(2)

    def move(self) -> None:
        self.zero, self.large, self.tensor = -self.zero, self.large * 3, self.tensor + 0.0
        self.sparse, self.repeated, self.empty = self.sparse * 2, self.repeated * 2, torch.ones(3)
        self.narrow += 1
        self.complex *= 1j
        self.frozen, self.format = self.frozen | {len(self.frozen) + 1}, torch.float64
        self.numpy[0] += np.nan

    def read(self) -> Any:
        return {**super().read(), "sparse": self.sparse.to_dense()}


@dataclass(frozen=True)
class Frozen:
    count: int
    mean: Tensor


class OwnList(list[Any]):
    extra = 0


class Classes(Held):
    """Containers and objects of other classes than Python's own."""

    def __init__(self) -> None:
        self.frozen, self.own, self.user = Frozen(1, torch.zeros(1)), OwnList(), UserDict(a=1)
        self.chain: Any = ChainMap({}, {"a": 1})
        self.own.extra = 1

    def move(self) -> None:
        self.frozen = Frozen(self.frozen.count + 1, self.frozen.mean + 1)
        self.own.append(torch.ones(1))
        self.own.extra += 1
        self.user["b"] = self.chain["b"] = len(self.own)

    def read(self) -> Any:
        frozen = self.frozen.count, self.frozen.mean
        return [frozen, list(self.own), self.own.extra, dict(self.user), dict(self.chain)]


class Removed(Held):
    def __init__(self) -> None:
        self.number, self.tensor = 1, torch.ones(1)
        self.nested: Any = {"x": [1, torch.ones(1)]}

    def move(self) -> None:
        for name in ("number", "tensor"):
            self.__dict__.pop(name, None)
        self.nested.pop("x", None)
        self.__dict__["new"] = {"n": torch.ones(1)}


class Freezing(Held):
    """Freezes a weight of its own module, and switches the function that it calls."""

    def __init__(self) -> None:
        self.layer = nn.Linear(1, 1)
        nn.init.zeros_(self.layer.weight)
        nn.init.zeros_(self.layer.bias)

    def move(self) -> None:
        self.layer.weight.requires_grad_(not self.layer.weight.requires_grad)

    def read(self) -> Any:
        return self.layer.weight.requires_grad


class Parted(Held):
    """Values leave memory that they share at the start; one of them has moved nothing."""

    def __init__(self) -> None:
        self.numbers = np.zeros(4)
        self.first, self.last = self.numbers[:2], (self.numbers[2:3], 1)
        self.whole = torch.zeros(2)
        self.view = self.whole[:1]

    def move(self) -> None:
        self.numbers += 1
        self.first, self.last = self.first.copy() * 2, (self.last[0].copy() * 3, 1)
        self.whole, self.view = self.whole + 1, torch.zeros(1)


KINDS = (Freezing, Cyclic, Junk, Aliases, Orders, Numbers, Classes, Removed, Parted)


def built(kind: type[Held]) -> tuple[Any, Inventory]:
    task = kind()
    inventory = Inventory(nn.Linear(2, 2), task)
    inventory.model.load_state_dict({"weight": torch.eye(2), "bias": torch.ones(2)})
    inventory.remember()
    return task, inventory


def through_a_file(document: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        saved = checkpoint.save(Path(folder), 1, {"held": document}).folder
        return copy.deepcopy(checkpoint.load(saved)["held"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_snapshot_restores_everything(kind: type[Held]) -> None:
    task, inventory = built(kind)
    before = mark(copy.deepcopy(task.read()))
    snapshot = inventory.snapshot()
    assert snapshot.changes() == []
    task.move()
    assert snapshot.changes()
    assert mark(task.read()) != before
    snapshot.put_back()
    assert mark(task.read()) == before
    assert snapshot.changes() == []


@pytest.mark.parametrize("kind", KINDS)
def test_stored_state_makes_a_new_task_equal(kind: type[Held]) -> None:
    task, inventory = built(kind)
    for _ in range(3):
        task.move()
    document = through_a_file(inventory.stored(Ranks()))
    again, other = built(kind)
    assert other.restore(document, Ranks()) == {}
    assert mark(again.read()) == mark(task.read())
    # The new task's own checkpoint holds the same.
    assert mark(other.stored(Ranks())["entries"]) == mark(document["entries"])


@pytest.mark.parametrize("kind", KINDS)
def test_one_rank_alone_saves_the_state_before_the_step(kind: type[Held]) -> None:
    task, inventory = built(kind)
    state = StepState(inventory)
    with state.warm_up():
        task.move()
    task.move()
    expected = mark(inventory.stored(Ranks())["entries"])
    state.begin(7)
    task.move()
    assert state.at_begin(8) is None
    document = inventory.stored_alone(state.at_begin(7), Ranks())
    assert mark(document["entries"]) == expected


def test_a_value_that_left_the_memory_of_a_weight_leaves_the_weight_alone() -> None:
    def start() -> tuple[Any, Inventory]:
        model: Any = nn.Sequential(nn.Linear(2, 1))
        nn.init.ones_(model[0].weight)
        model.norm = model[0].weight.data  # As torch.nn.utils.spectral_norm() begins.
        inventory = Inventory(model, Task())
        inventory.remember()
        return model, inventory

    model, inventory = start()
    model.norm = model.norm / 2
    again, other = start()
    assert other.restore(through_a_file(inventory.stored(Ranks())), Ranks()) == {}
    assert (again.norm.tolist(), again[0].weight.tolist()) == ([[0.5, 0.5]], [[1.0, 1.0]])


class Broken:
    def state_dict(self) -> Any:
        raise RuntimeError("not now")

    def load_state_dict(self, state: Any) -> None:
        raise AssertionError(state)


class Large(Held):
    def __init__(self) -> None:
        self.table, self.replay, self.doubled = torch.zeros(100), torch.zeros(100), {}
        self.broken, self.nested = Broken(), [torch.zeros(1)]
        for _ in range(40):
            self.nested = [self.nested]

    def move(self) -> None:
        self.replay += 1
        self.doubled[object()] = torch.ones(1)


def test_state_that_cannot_be_saved_is_named_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inventory_module, "STORED_BYTES_MAX", 100)
    task, inventory = built(Large)
    task.move()
    unsaved = inventory.unsavable()
    assert unsaved["task.replay"] == "0.0 GB, limit 0 GiB for a checkpoint"
    assert unsaved["task.doubled"] == "a key of the class object"
    assert any("below 24 levels" in why for why in unsaved.values())
    assert unsaved["task.broken"] == "its state_dict() raised RuntimeError: not now"
    assert "task.table" not in unsaved, "it has not moved"
    inventory.snapshot().put_back()


class WarmUp:
    factor = 1.0


class Main:
    factor = 2.0


class Phases(Held):
    """Replaces an object, a function and a member of a set by others."""

    def __init__(self) -> None:
        self.phase: Any = WarmUp()
        self.rule: Any = torch.relu
        self.own: Any = through_a_file
        self.done: set[Any] = {WarmUp}
        self.numbers = array("d", [1.0])

    def move(self) -> None:
        self.phase, self.rule, self.own = Main(), torch.tanh, built
        self.done.add(Main)
        self.numbers[0] += 1


def test_an_object_of_another_class_and_another_function_are_named() -> None:
    task, inventory = built(Phases)
    task.move()
    document = through_a_file(inventory.stored(Ranks()))
    _, other = built(Phases)
    lost = other.restore(document, Ranks())
    assert lost["task.phase"] == document["unsaved"]["task.phase"]
    assert document["unsaved"]["task.phase"] == "Main in place of object WarmUp"
    assert lost["task.own"].startswith("built line")
    assert {"task.rule", "task.done", "task.numbers"} <= set(document["unsaved"])


@pytest.mark.parametrize("wrong", ["cache", None, 3])
def test_not_state_must_be_a_tuple(wrong: Any) -> None:
    class Mistaken(Task):
        not_state = wrong

    with pytest.raises(EngineError, match="write a tuple of names"):
        Inventory(nn.Linear(1, 1), Mistaken())


class Tables(Held):
    """Two large tensors, of which one call changes the second."""

    def __init__(self) -> None:
        self.first, self.second, self.count = torch.zeros(100), torch.zeros(100), 0

    def move(self) -> None:
        self.count += 1


def test_a_change_of_state_too_large_to_copy_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(snapshot_module, "COPIES_BYTES_MAX", 500)
    task, inventory = built(Tables)
    snapshot = inventory.snapshot()
    task.move()
    snapshot.put_back()
    assert task.count == 0
    task.second += 1
    assert [entry.name for entry in snapshot.changes()] == ["task.second"]
    with pytest.raises(EngineError, match=r"loss\(\) changes task.second, and the 0.0 GB are too"):
        snapshot.put_back()


def test_many_reasons_are_counted_and_not_all_listed() -> None:
    found = listed({f"task.table[{index}]": "a set" for index in range(100)})
    assert (found[0], found[-1], len(found)) == ("task.table[0]: a set", "and 80 more", 21)
