"""Copies of the inventory at a moment, to put it back and to name what has changed since.

A snapshot keeps the live objects and a copy of their contents, so an object gets back its own
identity, whatever else refers to it.

Not here: the walk (``engine.state.walk``), checkpoints (``engine.state.stored``).
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from lockstep.engine.runtime.errors import BadSpecError
from lockstep.engine.state.parts import Child
from lockstep.engine.state.places import (
    ABSENT,
    child_of,
    delete_child,
    get_child,
    key_of,
    refill,
    set_child,
    tracked,
)
from lockstep.engine.state.stored import UnsavableError
from lockstep.engine.state.values import (
    bytes_of,
    copied,
    equal,
    fill,
    is_plain,
    local,
    mark,
    plain_mark,
    same_tensor,
    set_state,
    state_of,
)
from lockstep.engine.state.walk import (
    ARRAY,
    ATTRIBUTES,
    CONTAINERS,
    FLAT,
    GENERATOR,
    OWN,
    PROTOCOL,
    STRUCTURES,
    TENSOR,
    Entry,
    children,
)

COPIES_BYTES_MAX: Final = 2 << 30
"""Bytes that a snapshot copies beside the model's own tensors. Beyond it, a mark watches each."""


@dataclass(frozen=True)
class Watched:
    """In place of a copy: the mark of a large tensor, which cannot be put back."""

    mark: str


class Snapshot:
    """State of some entries.

    Parameters
    ----------
    entries : iterable of Entry
    skip : callable, optional
        Returns whether a tensor is left out and not copied.
    slots : iterable of Entry
        Attributes to put back one by one, without the others of their owners.
    """

    def __init__(
        self,
        entries: Iterable[Entry],
        skip: Callable[[Tensor], bool] = lambda _: False,
        slots: Iterable[Entry] = (),
    ) -> None:
        self._slots = list(slots)
        self._structures: list[tuple[Entry, list[Child]]] = []
        self._leaves: list[tuple[Entry, Any]] = []
        self._copies: dict[int, Tensor] = {}
        left = COPIES_BYTES_MAX
        for entry in entries:
            if entry.kind in STRUCTURES:
                self._structures.append((entry, tracked(entry)))
            elif entry.kind in _COPY and not (
                isinstance(entry.value, Tensor) and skip(entry.value)
            ):
                left -= 0 if entry.kind == OWN else bytes_of(entry.value)
                try:
                    kept = Watched(mark(entry.value)) if left < 0 else _COPY[entry.kind](entry)
                except UnsavableError:
                    continue
                self._leaves.append((entry, kept))
                if isinstance(kept, Tensor):
                    self._copies[id(entry.value)] = kept

    def changes(self) -> list[Entry]:
        """Return the entries that have changed. Synchronises with the device.

        A structure is among them if it has other keys; an attribute by its own entry.
        """
        found = [entry for entry, kept in self._leaves if not _same_leaf(entry, kept)]
        for entry, kept in self._structures:
            found += self._changed_children(entry, kept)
        return found

    def _changed_children(self, entry: Entry, kept: list[Child]) -> list[Entry]:
        children = tracked(entry)
        if _are_the_same(entry, kept, children):
            return []
        now = {key_of(key): value for key, _, value in children}
        before = {key_of(key): value for key, _, value in kept}
        if entry.kind in CONTAINERS and (
            list(now) != list(before)
            or any(not self._same(before[key], now[key]) for key in before)
        ):
            return [entry]
        found = []
        for key, end, value in kept if entry.kind in ATTRIBUTES else ():
            if not self._same(value, now.get(key_of(key), ABSENT)):
                found.append(child_of(entry, key, end, value))
        added = [(key, end, value) for key, end, value in children if key_of(key) not in before]
        return found + [child_of(entry, key, end, value) for key, end, value in added]

    def _same(self, before: Any, now: Any) -> bool:
        if before is now:
            return True
        if isinstance(before, Tensor) and isinstance(now, Tensor):
            return same_tensor(self._copies.get(id(before), before), now)
        return type(before) is type(now) and is_plain(before) and repr(before) == repr(now)

    def put_back_only(self, entries: Iterable[Entry]) -> None:
        """Put back these entries of :meth:`changes` alone."""
        names = {entry.name for entry in entries}
        for entry, kept in self._leaves:
            if entry.name in names:
                _restore_leaf(entry, kept)
        for entry, kept_children in self._structures:
            if entry.kind in ATTRIBUTES:
                _put_back_attributes(entry, kept_children, names)
            elif entry.name in names:
                refill(entry, [(key, value) for key, _, value in kept_children])

    def put_back(self, where: Tensor | None = None, keep: frozenset[str] = frozenset()) -> None:
        """Put everything back.

        Parameters
        ----------
        where : Tensor, optional
            One number on the device: where it is 0, everything stays. The host does not wait for
            it, and only tensors can be put back.
        keep : frozenset of str
            Names of objects that stay if they were made since.
        """
        for entry, kept in self._leaves:
            if where is None:
                _restore_leaf(entry, kept)
            elif isinstance(kept, Tensor):
                now = local(entry.value)
                now.copy_(torch.where(where.bool(), kept, now))
        for entry, kept_children in self._structures:
            if where is None:
                refill(entry, [(key, value) for key, _, value in kept_children], keep)
        for slot in self._slots:
            self._put_back_slot(slot, where)

    @torch.no_grad()
    def _put_back_slot(self, slot: Entry, where: Tensor | None) -> None:
        """Put back an attribute that may hold another value now, as after ``n = n + 1``."""
        assert slot.owner is not None
        now, copy_ = get_child(slot.owner, slot.key), self._copies.get(id(slot.value))
        if now is slot.value:
            return
        if where is not None:
            if copy_ is None or not isinstance(now, Tensor) or now.shape != copy_.shape:
                return
            slot.value.data.copy_(torch.where(where.bool(), copy_, now.detach()))
        if slot.value is ABSENT:
            delete_child(slot.owner, slot.key)
        else:
            set_child(slot.owner, slot.key, slot.value)

    def contents(self) -> dict[int, list[Child]]:
        """Return the children of structures at the time of the snapshot, by ``id``."""
        found = {id(entry.value): kept for entry, kept in self._structures}
        for slot in self._slots:
            assert slot.owner is not None
            kept = found.setdefault(id(slot.owner.value), children(slot.owner))
            found[id(slot.owner.value)] = [
                (key, end, slot.value if key == slot.key else value) for key, end, value in kept
            ]
        return found

    def names(self) -> set[str]:
        """Return the names of all entries."""
        entries = [entry for entry, _ in (*self._leaves, *self._structures)]
        return {entry.name for entry in (*entries, *self._slots)}

    def own(self) -> dict[str, Tensor]:
        """Return the tensors that the model's ``state_dict`` holds, by name."""
        return {entry.name: kept for entry, kept in self._leaves if entry.kind == OWN}

    def leaves(self) -> dict[int, Any]:
        """Return the contents of the leaves, by ``id``."""
        return {id(e.value): kept for e, kept in self._leaves if not isinstance(kept, Watched)}


def _put_back_attributes(owner: Entry, kept: list[Child], names: set[str]) -> None:
    """Put back the attributes with these names; remove those that were not there."""
    before = {key for key, _, _ in kept}
    for key, end, value in kept:
        if child_of(owner, key, end, value).name in names:
            set_child(owner, key, value)
    for key, end, value in tracked(owner):
        if key not in before and child_of(owner, key, end, value).name in names:
            delete_child(owner, key)


def _restore_flat(value: Any, kept: Any) -> None:
    if isinstance(value, frozenset | tuple):
        return
    refill_flat(value, kept)


def refill_flat(value: Any, kept: Any) -> None:
    """Give a container of plain values another content."""
    value.clear()
    if isinstance(value, list | deque | bytearray):
        value.extend(kept)
    else:
        value.update(kept)


_COPY: dict[str, Callable[[Entry], Any]] = {
    OWN: lambda entry: local(entry.value).clone(),
    TENSOR: lambda entry: local(entry.value).clone(),
    ARRAY: lambda entry: entry.value.copy(),
    GENERATOR: lambda entry: copied(content_of(entry)),
    PROTOCOL: lambda entry: copied(content_of(entry)),
    FLAT: lambda entry: copy.copy(entry.value),
}


def content_of(entry: Entry) -> Any:
    """Return the content of a leaf: the value itself, or the state of a generator or an object.

    Raises ``UnsavableError`` if the object does not tell its state.
    """
    if entry.kind == GENERATOR:
        return state_of(entry.value)
    if entry.kind != PROTOCOL:
        return entry.value
    try:
        return entry.value.state_dict()
    except Exception as error:
        raise UnsavableError(f"its state_dict() raised {type(error).__name__}: {error}") from error


def _are_the_same(entry: Entry, before: list[Child], now: list[Child]) -> bool:
    """Return whether a structure holds the same objects in the same order: no value is read."""
    by_name = entry.kind in ATTRIBUTES
    return len(before) == len(now) and all(
        old is new and (key is other or (by_name and key == other))
        for (key, _, old), (other, _, new) in zip(before, now, strict=True)
    )


def _same_leaf(entry: Entry, kept: Any) -> bool:
    if isinstance(kept, Watched):
        return mark(entry.value) == kept.mark
    if entry.kind in (OWN, TENSOR):
        return same_tensor(entry.value, kept)
    if entry.kind == FLAT:  # The order of a dict is state, too.
        return plain_mark(entry.value) == plain_mark(kept)
    return equal(content_of(entry), kept)


def _restore_leaf(entry: Entry, kept: Any) -> None:
    if _same_leaf(entry, kept):
        return
    if isinstance(kept, Watched):
        raise BadSpecError(
            f"loss() changes {entry.name}, and the {bytes_of(entry.value) / 1e9:.1f} GB are too "
            "much to put back after the passes before step 1: change it outside of loss(), or "
            "list it in the task's not_state",
        )
    if isinstance(entry.value, Tensor):
        fill(entry.value, kept)
    elif entry.kind == ARRAY:
        entry.value[...] = kept
    elif entry.kind == GENERATOR:
        set_state(entry.value, kept)
    elif entry.kind == PROTOCOL:
        entry.value.load_state_dict(copied(kept))  # Optimizers keep what they are given.
    else:
        _restore_flat(entry.value, kept)
