"""Places of values inside structures: reading, writing, removing, refilling.

No code of the user's runs: attributes are read and written past ``__getattr__`` and properties.

Not here: the contents of single values (``engine.state.values``).
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from lockstep.engine.state.parts import HOOK, Child, dict_of, hooks_of
from lockstep.engine.state.values import base_of, is_plain
from lockstep.engine.state.walk import (
    CONTAINERS,
    MODULE,
    OBJECT,
    TENSOR,
    TUPLE,
    Entry,
    children,
)

ABSENT = object()
"""Value of an attribute that is not there."""


def tracked(entry: Entry) -> list[Child]:
    """Return the children of a structure, without those that belong to the strategy.

    ``fully_shard`` puts other objects in the place of the model's parameters.
    """
    found = children(entry)
    if entry.kind == MODULE and entry.in_model:
        return [child for child in found if child[0][0] != "p"]
    return found


def child_of(owner: Entry, key: Any, end: str, value: Any) -> Entry:
    """Return an entry for an attribute as such, whatever it holds."""
    name = f"{owner.name}{end}" if owner.name else end.removeprefix(".")
    return Entry(name, owner, key, value, TENSOR if isinstance(value, Tensor) else "attribute")


def key_of(key: Any) -> Any:
    """Return a key that can be compared: tensors compare by identity."""
    return key if is_plain(key) else id(key)


def get_child(owner: Entry, key: Any) -> Any:
    """Return an attribute or an entry as it is now; ``ABSENT`` if it is gone."""
    if owner.kind in CONTAINERS:
        return next((value for each, _, value in children(owner) if each is key), ABSENT)
    letter, name = key
    if owner.kind == MODULE:
        return _tables(owner.value)[letter].get(name, ABSENT)
    if letter == "a" and owner.kind == OBJECT and name in dict_of(owner.value):
        return dict_of(owner.value)[name]
    return next((value for each, _, value in children(owner) if each == key), ABSENT)


def _tables(module: nn.Module) -> dict[str, dict[str, Any]]:
    return {
        "r": {
            name: each.requires_grad
            for name, each in module._parameters.items()
            if each is not None
        },
        "p": module._parameters,
        "b": module._buffers,
        "m": module._modules,
        "a": module.__dict__,
        HOOK: hooks_of(module),  # To look at; they are not put back.
    }


def set_child(owner: Entry, key: Any, value: Any) -> None:
    """Put a value into a structure that is no tuple."""
    if owner.kind in CONTAINERS:
        base_of(owner.value).__setitem__(owner.value, key, value)
        return
    letter, name = key
    if letter == "r":
        owner.value._parameters[name].requires_grad_(value)
    elif owner.kind == MODULE:
        _tables(owner.value)[letter][name] = value
    elif letter == "c":
        code = owner.value.__code__
        owner.value.__closure__[code.co_freevars.index(name)].cell_contents = value
    elif letter == "a" and isinstance(owner.value, type):
        type.__setattr__(owner.value, name, value)
    elif letter == "a":
        object.__setattr__(owner.value, name, value)


def delete_child(owner: Entry, key: Any) -> None:
    """Remove an attribute of a structure."""
    letter, name = key
    if owner.kind == MODULE:
        _tables(owner.value)[letter].pop(name, None)
    elif letter == "a" and isinstance(owner.value, type):
        type.__delattr__(owner.value, name)
    elif letter == "a":
        object.__delattr__(owner.value, name)


def refill(entry: Entry, kept: list[tuple[Any, Any]], keep: frozenset[str] = frozenset()) -> None:
    """Give a structure these keys and values, and no others but those that are named."""
    now = [(key, value) for key, _, value in tracked(entry)]
    if _are_same(now, kept):
        return
    if entry.kind not in CONTAINERS:
        _refill_attributes(entry, now, kept, keep)
    elif entry.kind != TUPLE and entry.name not in keep:
        _refill_container(entry.value, kept)


def _are_same(now: list[tuple[Any, Any]], kept: list[tuple[Any, Any]]) -> bool:
    """Return whether two lists hold the same objects under the same keys, in order."""
    return len(now) == len(kept) and all(
        key_of(one) == key_of(other) and a is b
        for (one, a), (other, b) in zip(now, kept, strict=True)
    )


def _refill_attributes(
    entry: Entry, now: list[tuple[Any, Any]], kept: list[tuple[Any, Any]], keep: frozenset[str]
) -> None:
    stay = {key for key, end, _ in children(entry) if f"{entry.name}{end}".lstrip(".") in keep}
    before = {key for key, _ in kept}
    for key, _ in now:
        if key not in before and key not in stay:
            delete_child(entry, key)
    there = dict(now)
    for key, each in kept:
        if key not in stay and there.get(key, ABSENT) is not each:
            set_child(entry, key, each)


def _refill_container(value: Any, kept: list[tuple[Any, Any]]) -> None:
    base = base_of(value)
    base.clear(value)
    if isinstance(value, dict):
        for key, each in kept:
            base.__setitem__(value, key, each)
    else:
        base.extend(value, [each for _, each in kept])
