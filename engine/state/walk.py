"""Walk through a model, its task and the modules of the user's code.

Each value that a step may change becomes an :class:`Entry` with a name that its author knows:
``teacher.weight`` belongs to the model, ``task.calls`` to the task, ``train.SEEN`` to the module
``train`` of the user's code. Only dictionaries and slots are read, so no property runs. An object
that was met before is a reference to its first name, so shared state is one entry.

Not here: the rules (``engine.state.rules``), the values of single entries
(``engine.state.values``).
"""

from __future__ import annotations

import io
import types
from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import PurePath
from typing import Any, Final
from uuid import UUID

import numpy as np
from torch import Tensor, nn
from torch.utils.data import Dataset

from lockstep.engine.state.opaque import is_number_of_own_class, is_opaque
from lockstep.engine.state.parts import (
    HOOK,
    WRAPPERS,
    Child,
    attributes,
    dict_of,
    of_class,
    of_function,
    of_module,
    slots_of,
)
from lockstep.engine.state.rules import (
    UserCode,
    has_own_protocol,
    is_left_out,
)
from lockstep.engine.state.values import PLAIN_TYPES, all_plain, base_of, draws, is_plain, is_tensor

TASK: Final = "task"
"""Name of the task, the second root; the model has none."""
ENTRIES_MAX: Final = 50_000
DEPTH_MAX: Final = 24
"""A module inside a module does not count."""
FLAT_MAX: Final = 1_000_000
"""Entries of a container of plain values, which is one entry of the inventory."""
PRINTABLE: Final = (Decimal, Fraction, range, slice, array, date, time, timedelta, UUID)
"""Values with an exact ``repr`` and no form in a checkpoint."""

# Kinds of an entry. Leaves:
PLAIN, REFERENCE, OUT, OWN = "plain", "reference", "out", "own"
TENSOR, ARRAY, GENERATOR, PROTOCOL, FLAT = "tensor", "array", "generator", "protocol", "flat"
ITERATOR, ODD, UNREADABLE = "iterator", "odd", "unreadable"
# Structures:
MAPPING, SEQUENCE, TUPLE = "mapping", "sequence", "tuple"
MODULE, OBJECT, CLASS, NAMESPACE, FUNCTION = "module", "object", "class", "namespace", "function"
CONTAINERS: Final = frozenset({MAPPING, SEQUENCE, TUPLE})
ATTRIBUTES: Final = frozenset({MODULE, OBJECT, CLASS, NAMESPACE, FUNCTION})
STRUCTURES: Final = CONTAINERS | ATTRIBUTES

_CODE_KINDS: Final = (
    (types.ModuleType, NAMESPACE, "__name__"),
    (type, CLASS, "__module__"),
    (types.FunctionType, FUNCTION, "__module__"),
)
"""Type, kind, and the attribute with the module: entries if the module is the user's."""


@dataclass(eq=False, slots=True)  # Not frozen: a walk makes hundreds, and they would take thrice.
class Entry:
    """One value and its location; nothing changes it."""

    name: str
    owner: Entry | None
    key: Any
    """Attribute, index or key inside the owner."""
    value: Any
    kind: str
    target: str = ""
    """Name of the first entry of the same object, for a reference."""
    foreign: bool = False
    """True inside an object of a package that is not the user's own."""
    skip: frozenset[str] = frozenset()
    """Attributes that are left out."""

    @property
    def in_model(self) -> bool:
        """True below the model, the first root."""
        top = self
        while top.owner is not None:
            top = top.owner
        return not top.name

    @property
    def of_module(self) -> bool:
        """True for a parameter or a buffer of any module."""
        return self.owner is not None and self.owner.kind == MODULE and self.key[0] in "pb"


class Walk:
    """Walk over some roots.

    Parameters
    ----------
    code : UserCode
    own : mapping
        ``id`` → name of the objects that the model's ``state_dict`` holds.
    left_out : iterable
        Further objects to leave out: the datasets.
    not_state : frozenset of str
        Names of attributes of the task that are left out.
    datasets : bool
        True to walk through datasets, too.
    contents : mapping, optional
        Children of structures at an earlier time, by ``id``; the walk goes through these.
    """

    def __init__(
        self,
        code: UserCode,
        *,
        own: Mapping[int, str] | None = None,
        left_out: Iterable[object] = (),
        not_state: frozenset[str] = frozenset(),
        datasets: bool = False,
        contents: dict[int, list[Child]] | None = None,
    ):
        self._code, self._own, self._not_state = code, own or {}, not_state
        self._left_out, self._datasets = frozenset(map(id, left_out)), datasets
        self._contents = contents or {}
        self._met: dict[int, str] = {}
        self.entries: dict[str, Entry] = {}
        self.named: dict[str, str] = {}
        """Names that the walk cannot reach, with the reasons."""

    def root(self, name: str, value: object) -> None:
        """Walk through one object and everything below it, breadth first."""
        if id(value) in self._met:
            return
        skip = self._not_state if name == TASK else frozenset()
        while name in self.entries:  # A part of the model has the name of the task, or of a file.
            name = f"job.{name}"
        first = Entry(name, None, None, value, self._kind_of_root(value), skip=skip)
        self._add(first, value)
        waiting = deque([(first, 0)])
        while waiting:
            owner, depth = waiting.popleft()
            if depth > DEPTH_MAX:
                self.named[owner.name] = f"below {DEPTH_MAX} levels of attributes"
                continue
            if len(self.entries) > ENTRIES_MAX:
                self.named[name] = f"more than {ENTRIES_MAX:,} values"
                return
            for key, end, child in self.children(owner) + _own_attributes(owner):
                entry = self._entry(owner, key, end, child)
                if entry.kind == OUT and owner.kind == MODULE and key[0] == HOOK:
                    continue  # A library's own.
                self._add(entry, child)
                if entry.kind in STRUCTURES:
                    inside = entry.kind == owner.kind == MODULE
                    waiting.append((entry, depth if inside else depth + 1))

    def children(self, entry: Entry) -> list[Child]:
        """Return the children of a structure, now or at the time of ``contents``."""
        kept = self._contents.get(id(entry.value))
        found = children(entry) if kept is None else kept
        if entry.kind != MAPPING:
            return found
        return [
            (key, f"[{self.key_name(key, at)}]", value) for at, (key, _, value) in enumerate(found)
        ]

    def key_name(self, key: Any, at: int) -> str:
        """Return a key as names show it: an object by its own name, else by its position."""
        if is_plain(key):
            return repr(key)
        return f"<{self.name_of(key) or f'{type(key).__name__} {at}'}>"

    def name_of(self, value: object) -> str | None:
        """Return the name of an object that was met, or that ``state_dict`` holds."""
        return self._own.get(id(value)) or self._met.get(id(value))

    def local_classes(self) -> None:
        """Walk through the user's classes that no module holds, such as those inside functions."""
        for entry in list(self.entries.values()):
            kind = type(entry.value)
            if entry.kind in (OBJECT, MODULE) and self._code.owns(kind.__module__):
                self.root(f"{kind.__module__}.{kind.__qualname__}", kind)

    def _kind_of_root(self, value: object) -> str:
        if isinstance(value, nn.Module):
            return MODULE
        if isinstance(value, types.ModuleType):
            return NAMESPACE
        return CLASS if isinstance(value, type) else OBJECT

    def _add(self, entry: Entry, value: object) -> None:
        if entry.name in self.entries:
            self.named[entry.name] = "a name of two values"
            return
        self.entries[entry.name] = entry
        if entry.kind not in (PLAIN, OUT, REFERENCE):
            self._met[id(value)] = entry.name

    def _entry(self, owner: Entry, key: Any, end: str, value: Any) -> Entry:
        name = f"{owner.name}{end}" if owner.name else end.removeprefix(".")
        if type(value) in PLAIN_TYPES:  # Most attributes: never met, and not of any other kind.
            return Entry(name, owner, key, value, PLAIN, "", owner.foreign)
        met = self._met.get(id(value))
        if met is not None:
            return Entry(name, owner, key, value, REFERENCE, met)
        try:
            kind = self._kind(value)
        except Exception:  # noqa: BLE001 - of a proxy, whose every attribute is its own code
            kind = OUT
        if owner.foreign and kind == UNREADABLE:
            kind = OUT
        foreign = owner.foreign or (kind == OBJECT and self._code.is_foreign(value))
        return Entry(name, owner, key, value, kind, foreign=foreign)

    def _kind(self, value: Any) -> str:
        if id(value) in self._own:
            return OWN
        if id(value) in self._left_out:
            return OUT
        kind = kind_of(value)
        if kind != OBJECT:
            return kind
        for types_, kind, home in _CODE_KINDS:
            if isinstance(value, types_):
                return kind if self._code.owns(getattr(value, home)) else OUT
        if isinstance(value, WRAPPERS):
            return FUNCTION
        if is_opaque(value):
            return ODD
        if self._datasets and isinstance(value, Dataset):
            return OBJECT
        if is_left_out(value):
            return OUT
        return OBJECT if type(value).__dictoffset__ or slots_of(value) else UNREADABLE


def _is_flat(value: Any) -> bool:
    if isinstance(value, bytearray):
        return True
    if not isinstance(value, list | dict | set | frozenset | deque | tuple):
        return False
    if len(value) > FLAT_MAX or hasattr(value, "_fields") or type(value) not in EXACT:
        return False
    if isinstance(value, dict):
        return all_plain(value.keys()) and all_plain(value.values())
    return all_plain(value)


EXACT: Final = {list, dict, set, frozenset, deque, tuple, OrderedDict, defaultdict, Counter}
"""Containers that can be made; those of other classes are only filled in place."""

_KINDS: Final[tuple[tuple[str, Any], ...]] = (
    (PLAIN, lambda value: is_plain(value) or isinstance(value, np.generic | Enum)),
    (TENSOR, is_tensor),
    (OUT, lambda value: isinstance(value, Tensor | PurePath)),
    (ARRAY, lambda value: isinstance(value, np.ndarray)),
    (GENERATOR, draws),
    (MODULE, lambda value: isinstance(value, nn.Module)),
    (PROTOCOL, has_own_protocol),
    (FLAT, _is_flat),
    (MAPPING, lambda value: isinstance(value, dict)),
    (SEQUENCE, lambda value: isinstance(value, list | deque)),
    (TUPLE, lambda value: isinstance(value, tuple)),
    (ODD, lambda value: isinstance(value, (*PRINTABLE, set, frozenset))),
    (ODD, is_number_of_own_class),
    (ITERATOR, lambda value: isinstance(value, Iterator) and not isinstance(value, io.IOBase)),
)
"""The first that applies."""
_CODE_TYPES: Final = frozenset(
    {types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, type}
)
"""Types to which none of these kinds applies."""


def kind_of(value: Any) -> str:
    """Return the kind of a value; ``object`` where the user's code decides."""
    if type(value) in PLAIN_TYPES:  # Most attributes: no need to ask them all.
        return PLAIN
    if type(value) in _CODE_TYPES:  # Most values of a module or a class.
        return OBJECT
    return next((kind for kind, is_kind in _KINDS if is_kind(value)), OBJECT)


def children(entry: Entry) -> list[Child]:
    """Return the children of a structure. No code of the user's runs."""
    value = entry.value
    if entry.kind == MAPPING:
        return [(key, "[]", each) for key, each in list(base_of(value).items(value))]
    if entry.kind in (SEQUENCE, TUPLE):
        each_one = list(base_of(value).__iter__(value))
        return [(index, f"[{index}]", each) for index, each in enumerate(each_one)]
    if entry.kind == MODULE:
        return [child for child in of_module(value) if child[0][1] not in entry.skip]
    if entry.kind == FUNCTION:
        return of_function(value)
    if entry.kind == OBJECT:
        found = attributes(value)
        return [(("a", name), f".{name}", each) for name, each in found if name not in entry.skip]
    return of_class(value)


def _own_attributes(entry: Entry) -> list[Child]:
    """Return the attributes of a container of the user's own class, as one more mapping."""
    own = dict_of(entry.value) if entry.kind in CONTAINERS else {}
    return [(("x", "__dict__"), ".__dict__", own)] if own else []
