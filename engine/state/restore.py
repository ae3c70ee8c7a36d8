"""Restoring of stored values into objects that were built again.

A value is restored in place where the object has the same type and form, so everything that refers
to it follows. Otherwise a new tensor or container takes its place. Modules and objects of the
user's classes are never made: only their contents are restored.

Not here: which values are stored (``engine.state.inventory``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from torch import Tensor

from lockstep.engine.state.forms import identity_of
from lockstep.engine.state.places import delete_child, refill, set_child
from lockstep.engine.state.reasons import a
from lockstep.engine.state.snapshot import refill_flat
from lockstep.engine.state.stored import UnsavableError, decode, new_mapping, tensor_of
from lockstep.engine.state.values import fill, set_state
from lockstep.engine.state.walk import (
    ARRAY,
    ATTRIBUTES,
    CONTAINERS,
    FLAT,
    GENERATOR,
    MAPPING,
    PROTOCOL,
    REFERENCE,
    STRUCTURES,
    TENSOR,
    TUPLE,
    Entry,
)

_NEW: Final = {"list": list, "deque": deque}
_MISSING = object()


class Restoring:
    """One restoring of stored entries.

    Parameters
    ----------
    here : mapping of str to Entry
        The inventory as it is.
    stored : mapping of str to list
        Name → kind, owner, key and value, each owner before its children.
    gone : list
        Owner and name of attributes to delete.
    parted : frozenset of str
        Values that get memory of their own, because they share it here.
    """

    def __init__(
        self,
        here: Mapping[str, Entry],
        stored: Mapping[str, list[Any]],
        gone: list[list[Any]],
        parted: frozenset[str] = frozenset(),
    ):
        self._here, self._stored, self._gone, self._parted = here, stored, gone, parted
        self._objects: dict[str, Any] = {name: entry.value for name, entry in here.items()}
        self._replaced: dict[str, Any] = {}
        self._lost: dict[str, str] = {}

    def run(self) -> dict[str, str]:
        """Restore, and return what could not be restored, with the reasons."""
        for name, (kind, _, _, payload) in self._stored.items():
            if kind not in (REFERENCE, TUPLE):
                self._resolve(name, kind, payload)
        # Children before their owners. A tuple may also refer to one that comes before it.
        backwards = list(self._stored.items())[::-1]
        tuples = [(name, form[3]) for name, form in backwards if form[0] == TUPLE]
        while sum(self._tuple(name, payload) for name, payload in tuples):
            continue
        for name, (kind, *_, payload) in backwards:
            if kind in CONTAINERS and kind != TUPLE:
                self._fill(name, kind, payload)
        for name, (_, owner, key, _) in self._stored.items():
            self._put(name, owner, key)
        self._follow()
        for owner, attribute in self._gone:
            if owner in self._here:
                self._delete(self._here[owner], attribute)
        return self._lost

    def _resolve(self, name: str, kind: str, payload: Any) -> None:
        """Decide which object has a name, and restore the content of a leaf."""
        entry = self._here.get(name)
        current = self._current(name)
        try:
            if kind in ATTRIBUTES:
                if entry is None or entry.kind != kind or identity_of(entry) != payload:
                    raise UnsavableError(f"{payload}, which is not there at the start")
            elif kind in CONTAINERS:
                self._container(name, kind, payload, current)
            else:
                made = _leaf(kind, payload, current)
                if made is not current:
                    self._replace(name, made)
                elif isinstance(made, Tensor) and made.is_leaf and entry and not entry.of_module:
                    made.requires_grad_(payload[3])
        except UnsavableError as error:
            self._lost[name] = str(error)
        except Exception as error:  # noqa: BLE001 - load_state_dict() is the job's code
            self._lost[name] = f"{type(error).__name__}: {error}"

    def _current(self, name: str) -> Any:
        """Return the object that may keep its place."""
        entry = self._here.get(name)
        keeps = entry is not None and entry.kind != REFERENCE and name not in self._parted
        return entry.value if entry is not None and keeps else _MISSING

    def _container(self, name: str, kind: str, payload: list[Any], current: Any) -> None:
        class_name, extra, *_ = payload
        if current is not _MISSING and type(current).__name__ == class_name:
            return
        if kind == MAPPING:
            self._replace(name, new_mapping(class_name, extra, ()))
        elif class_name in _NEW:
            made: Any = deque(maxlen=extra) if class_name == "deque" else _NEW[class_name]()
            self._replace(name, made)
        else:
            raise UnsavableError(f"{a(class_name)} that is not there at the start")

    def _values(self, name: str, payload: list[Any]) -> list[Any] | None:
        """Return the children of a container; None if some are not there."""
        _, _, ends, keys = payload
        names = [f"{name}{end}" for end in ends]
        referred = [key[1] for key in keys if isinstance(key, list) and key[0] == "reference"]
        missing = [child for child in (*names, *referred) if self._object(child) is _MISSING]
        self._lost |= dict.fromkeys(missing, "it is not there at the start")
        if name in self._lost or missing:
            return None
        return [self._object(child) for child in names]

    def _object(self, name: str) -> Any:
        """Return the object of a name, through references."""
        stored, here = self._stored.get(name), self._here.get(name)
        if stored is not None and stored[0] == REFERENCE:
            return self._objects.get(stored[3], _MISSING)
        if stored is None and here is not None and here.kind == REFERENCE:
            return self._objects.get(here.target, _MISSING)
        return self._objects.get(name, _MISSING)

    def _fill(self, name: str, kind: str, payload: list[Any]) -> None:
        """Give a container its children, which are complete."""
        values = self._values(name, payload)
        if values is None:
            return
        keys = payload[3] if kind == MAPPING else list(range(len(values)))
        entry = Entry(name, None, None, self._objects[name], kind)
        refill(entry, list(zip(map(self._key, keys), values, strict=True)))

    def _tuple(self, name: str, payload: list[Any]) -> bool:
        """Make a tuple of its parts. Return whether it is another one than before."""
        class_name, current = payload[0], self._objects.get(name)
        values = self._values(name, payload)
        if values is None:
            return False
        kind: Any = type(current)
        there = isinstance(current, tuple) and kind.__name__ == class_name
        if there and list(map(id, current or ())) == list(map(id, values)):
            return False
        if class_name == "tuple":
            self._replace(name, tuple(values))
        elif there:
            self._replace(name, kind(*values))
        else:
            self._lost[name] = f"{a(class_name)} that is not there at the start"
            return False
        return True

    def _replace(self, name: str, made: Any) -> None:
        if name in self._here and self._here[name].kind != REFERENCE:
            self._replaced[name] = made
        self._objects[name] = made

    def _put(self, name: str, owner: str, key: Any) -> None:
        """Put a value into its owner, unless the owner is a container that was filled."""
        if name in self._lost or self._stored.get(owner, [""])[0] in CONTAINERS:
            return
        entry, value = self._here.get(owner), self._object(name)
        if value is _MISSING:
            self._lost[name] = f"it refers to {self._stored[name][3]}, which is not there"
        elif entry is None or owner in self._lost or entry.kind not in STRUCTURES:
            self._lost[name] = f"{owner} is not there at the start"
        elif name not in self._here or self._here[name].value is not value:
            set_child(entry, self._key(key), value)

    def _key(self, form: Any) -> Any:
        """Return a key; one that is an object of its own is stored by name."""
        if isinstance(form, list) and form[0] == "reference":
            return self._objects[form[1]]
        return decode(form)

    def _follow(self) -> None:
        """Let references to an object that was replaced follow it; tuples that refer are stored."""
        for name, entry in self._here.items():
            owner = entry.owner
            if entry.kind != REFERENCE or name in self._stored or owner is None:
                continue
            if entry.target in self._replaced and not self._is_complete(owner):
                set_child(owner, entry.key, self._replaced[entry.target])

    def _is_complete(self, owner: Entry) -> bool:
        """Return whether an owner got all its content from the checkpoint, or none."""
        if owner.kind == TUPLE or owner.name not in self._stored:
            return owner.kind == TUPLE
        return owner.kind not in ATTRIBUTES or self._stored[owner.name][0] != owner.kind

    def _delete(self, owner: Entry, attribute: str) -> None:
        name = f"{owner.name}.{attribute}" if owner.name else attribute
        entry = self._here.get(name)
        if entry is not None and owner.kind in ATTRIBUTES:
            delete_child(owner, entry.key)


def _leaf(kind: str, payload: Any, current: Any) -> Any:
    """Return the object that has the stored value: the current one where it can be kept."""
    if kind == TENSOR:
        device = current.device if isinstance(current, Tensor) else None
        if not isinstance(current, Tensor) or not fill(current, payload[1]):
            return tensor_of(payload, device)
        return current
    value = decode(payload, current)
    if kind == ARRAY and isinstance(current, np.ndarray) and _alike(current, value):
        current[...] = value
        return current
    if kind == GENERATOR:
        if current is _MISSING:
            raise UnsavableError("a generator that is not there at the start")
        set_state(current, value)
        return current
    if kind == PROTOCOL:
        if not hasattr(current, "load_state_dict"):
            raise UnsavableError("an object that is not there at the start")
        current.load_state_dict(value)
        return current
    if kind == FLAT and type(current) is type(value) and not isinstance(value, tuple | frozenset):
        refill_flat(current, value)
        return current
    return value


def _alike(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and one.flags.writeable
