"""State that a task and its model hold between calls of ``loss``: tensors, numbers, generators.

A walk through the attributes finds it, under the names that its author uses: ``teacher.weight``
belongs to the model, ``task.calls`` to the task. Globals, closures and attributes of classes are
not searched.

Not here: the reaction to a change (``engine.preflight.repeatability``,
``engine.preflight.additivity_check``).
"""

from __future__ import annotations

import copy
import math
import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FunctionType, MethodType, ModuleType
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

_DEPTH_MAX: Final = 6
"""Depth of the walk through attributes. A module inside a module does not count."""
_OBJECTS_MAX: Final = 100_000
_ENTRIES_MAX: Final = 1_000
"""Entries of a container. A longer one is a log of values or an index of files."""
_NUMBERS_MAX: Final = 10_000_000
"""Numbers in a tensor outside of modules. A larger one is a table of samples."""
_PLAIN: Final = (int, float, complex, bool, str, bytes, type(None))
_NOT_WALKED: Final = (type, ModuleType, FunctionType, MethodType, DataLoader, Tensor)
_LIBRARIES: Final = frozenset(
    {"torch", "numpy", "builtins", "collections", "functools", "random", "pathlib", "lockstep"}
)
"""Packages whose objects are not walked, except for their modules."""
_OF_EVERY_MODULE: Final = frozenset(vars(nn.Module()))


@dataclass(frozen=True)
class HiddenState:
    """One value, its location, and a copy of its former state."""

    name: str
    owner: Any
    """Module, container, or any object with attributes."""
    key: Any
    """Name of the attribute, or key of the entry."""
    value: Any
    kept: Any

    @property
    def of_module(self) -> bool:
        """True for a parameter or a buffer, which evaluations and checkpoints read."""
        return isinstance(self.value, Tensor) and isinstance(self.owner, nn.Module)

    @property
    def draws(self) -> bool:
        """True for a random generator."""
        return _state_of(self.value) is not None

    def changed(self) -> bool:
        """Return whether the location now holds another value. Synchronises with the device."""
        now = _get(self.owner, self.key)
        if self.draws:
            return now is not self.value or not equal(_state_of(now), self.kept)
        return not equal(now, self.kept)

    @torch.no_grad()
    def put_back(self) -> None:
        """Restore the value."""
        if isinstance(self.value, Tensor):
            if not equal(
                self.value, self.kept
            ):  # Some tensors are not writable, such as expanded ones.
                self.value.data.copy_(self.kept)
        elif self.draws:
            _set_state(self.value, self.kept)
        elif isinstance(self.value, list | dict | set | deque):
            self.value.clear()
            (self.value.update if isinstance(self.value, dict | set) else self.value.extend)(
                self.kept
            )
        if _get(self.owner, self.key) is not self.value:
            _set(self.owner, self.key, self.value)


def held_by(
    *roots: tuple[str, object],
    datasets: bool = False,
    skip: Callable[[Tensor], bool] = lambda _: False,
) -> list[HiddenState]:
    """Return all values held in ``roots``, each once, with a copy of its value.

    Parameters
    ----------
    *roots : tuple of str and object
        The prefix of the names, and the object.
    datasets : bool
        True if datasets are walked, too.
    skip : callable, optional
        Returns whether a tensor is left out and not copied.
    """
    return list(_walk(roots, datasets, skip))


def put_back(held: list[HiddenState]) -> None:
    """Restore all values that have changed."""
    for each in held:
        if each.changed():
            each.put_back()


def equal(one: Any, other: Any, depth: int = 0) -> bool:
    """Return whether two values agree in every bit.

    NaN equals NaN, and values of unknown types count as equal.
    """
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return _equal_tensors(one, other)
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        same = one.dtype == other.dtype and one.shape == other.shape
        return bool(same and (one.dtype.hasobject or one.tobytes() == other.tobytes()))
    if isinstance(one, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, (*_PLAIN, set, frozenset)):
        return bool(one == other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(
            equal(one[key], other[key], depth + 1) for key in one
        )
    if isinstance(one, list | tuple | deque):
        return len(one) == len(other) and all(
            equal(a, b, depth + 1) for a, b in zip(one, other, strict=True)
        )
    if depth < _DEPTH_MAX and hasattr(one, "__dict__"):  # A batch of another type, such as a graph.
        return equal(vars(one), vars(other), depth + 1)
    return True


def _equal_tensors(one: Tensor, other: Tensor) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape or one.layout != other.layout:
        return False
    if one.layout != torch.strided or torch.equal(one, other):
        return True
    return one.is_floating_point() and torch.allclose(
        one, other, rtol=0.0, atol=0.0, equal_nan=True
    )


def _walk(
    roots: tuple[tuple[str, object], ...], datasets: bool, skip: Callable[[Tensor], bool]
) -> Iterator[HiddenState]:
    seen: set[int] = set()
    waiting = deque((name, root, 0) for name, root in roots)
    while waiting and len(seen) < _OBJECTS_MAX:
        prefix, owner, depth = waiting.popleft()
        if id(owner) in seen:
            continue
        seen.add(id(owner))
        for key, value in _entries(owner):
            name = f"{prefix}.{key}" if prefix else str(key)
            if isinstance(value, Tensor) or _state_of(value) is not None:
                if id(value) not in seen and not (
                    isinstance(value, Tensor) and (_is_data(owner, value) or skip(value))
                ):
                    seen.add(id(value))
                    yield HiddenState(name, owner, key, value, _copy(value))
            elif isinstance(value, _PLAIN) or _is_plain_container(value):
                yield HiddenState(name, owner, key, value, _copy(value))
            elif depth < _DEPTH_MAX and _is_walked(value, datasets):
                within = isinstance(value, nn.Module) and isinstance(owner, nn.Module)
                waiting.append((name, value, depth if within else depth + 1))


def _entries(owner: Any) -> list[tuple[Any, Any]]:
    """Return the entries of a container, or the attributes of an object.

    For a module, also its tensors and modules.
    """
    if isinstance(owner, dict | list | tuple):
        if len(owner) > _ENTRIES_MAX:
            return []
        return list(owner.items() if isinstance(owner, dict) else enumerate(owner))
    if not isinstance(owner, nn.Module):
        return list(vars(owner).items())
    found = [
        (name, value)
        for kind in (owner._parameters, owner._buffers, owner._modules)
        for name, value in kind.items()
        if value is not None
    ]
    return found + [
        (name, value) for name, value in vars(owner).items() if name not in _OF_EVERY_MODULE
    ]


def _is_data(owner: Any, tensor: Tensor) -> bool:
    """Return whether a tensor is too large for state: a dataset that is kept on the task."""
    return not isinstance(owner, nn.Module) and tensor.numel() > _NUMBERS_MAX


def _is_walked(value: Any, datasets: bool) -> bool:
    if isinstance(value, nn.Module):
        return True
    if isinstance(value, list | tuple | dict):
        return len(value) <= _ENTRIES_MAX
    if isinstance(value, _NOT_WALKED) or not hasattr(value, "__dict__"):
        return False
    if isinstance(value, Dataset):
        return datasets
    return type(value).__module__.partition(".")[0] not in _LIBRARIES


def _is_plain_container(value: Any) -> bool:
    if not isinstance(value, list | dict | set | deque) or len(value) > _ENTRIES_MAX:
        return False
    return all(
        isinstance(each, _PLAIN) for each in (value.values() if isinstance(value, dict) else value)
    )


def _copy(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    state = _state_of(value)
    return copy.copy(value) if state is None else state


def _state_of(value: Any) -> Any:
    """Return the state of a random generator; None for any other value."""
    if isinstance(value, torch.Generator):
        return value.get_state()
    if isinstance(value, np.random.Generator):
        return value.bit_generator.state
    if isinstance(value, np.random.RandomState):
        return value.get_state(legacy=False)
    return value.getstate() if isinstance(value, random.Random) else None


def _set_state(generator: Any, state: Any) -> None:
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    else:
        generator.set_state(state)


def _get(owner: Any, key: Any) -> Any:
    """Return the current value, or None if it is gone."""
    if isinstance(owner, dict):
        return owner.get(key)
    if isinstance(owner, list | tuple):
        return owner[key] if key < len(owner) else None
    return next((value for name, value in _entries(owner) if name == key), None)


def _set(owner: Any, key: Any, value: Any) -> None:
    if isinstance(owner, dict | list):
        owner[key] = value
    elif not isinstance(owner, tuple):
        setattr(owner, key, value)
