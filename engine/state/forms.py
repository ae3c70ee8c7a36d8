"""Marks and stored forms of the inventory's entries.

Not here: single values (``engine.state.values``, ``engine.state.stored``), restoring
(``engine.state.restore``).
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from torch import Tensor

from lockstep.engine.state.opaque import UNKNOWN, mark_of_opaque
from lockstep.engine.state.reasons import Reasons, a
from lockstep.engine.state.snapshot import content_of
from lockstep.engine.state.stored import UnsavableError, encode, factory_name, tensor_form
from lockstep.engine.state.values import is_plain, mark, plain_mark
from lockstep.engine.state.walk import (
    ARRAY,
    CONTAINERS,
    FLAT,
    GENERATOR,
    ITERATOR,
    MAPPING,
    MODULE,
    OBJECT,
    ODD,
    OUT,
    PLAIN,
    PRINTABLE,
    PROTOCOL,
    REFERENCE,
    TENSOR,
    TUPLE,
    UNREADABLE,
    Entry,
    Walk,
    children,
)

Form = list[Any]
"""Kind of an entry, name of its owner, key, and the value."""
_NAMED: Final = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType)
_LEAVES: Final = frozenset({PLAIN, TENSOR, ARRAY, GENERATOR, PROTOCOL, FLAT})


@dataclass
class Stored:
    """One rank's part of a checkpoint."""

    entries: dict[str, Form]
    """Name → kind, name of the owner, key, and the value."""
    gone: list[Form]
    """Owner and key of attributes that were deleted."""
    constants: dict[str, str]
    """Marks of numbers and tensors that have never moved."""
    unsaved: Reasons
    modules: list[str] = field(default_factory=list)
    """Modules of the user's code that the run has imported since its start."""
    parted: list[str] = field(default_factory=list)
    """Tensors and arrays that shared memory at the start and share none now."""
    buffers: list[str] = field(default_factory=list)
    """Buffers in ``state_dict()`` that the run was built without."""

    def document(self) -> dict[str, Any]:
        """As a checkpoint holds it."""
        names = ("entries", "gone", "constants", "modules", "parted", "buffers")
        return {name: getattr(self, name) for name in names}


def mark_of(entry: Entry, kept: Any = None) -> str:
    """Return a text that differs if the entry does; ``UNKNOWN`` if that cannot be told.

    Parameters
    ----------
    entry : Entry
    kept : object, optional
        Content of a leaf at an earlier moment.
    """
    kind, value = entry.kind, entry.value
    if kind in CONTAINERS:
        keys = [repr(key) if is_plain(key) else str(id(key)) for key, _, _ in children(entry)]
        return f"{type(value).__name__} {mark(keys)}"
    if kind == REFERENCE:
        return f"→ {entry.target}"
    if kind in (ITERATOR, UNREADABLE):
        return UNKNOWN
    if kind not in _LEAVES:
        return _odd_mark(value) if kind == ODD else f"{kind} {identity_of(entry)}".strip()
    try:
        content = content_of(entry) if kept is None else kept
    except UnsavableError:
        return UNKNOWN
    if kind == TENSOR and value.requires_grad and not entry.of_module:
        return f"{mark(content)} trained"  # Parameters of modules have an entry for it.
    return plain_mark(content) if kind == FLAT else mark(content)


def identity_of(entry: Entry) -> str:
    """Return the class of an object or module, or the name of a function or class.

    Empty for other values that are left out: a file may be opened again.
    """
    value = entry.value
    if entry.kind in (OBJECT, MODULE):  # fully_shard renames the classes of modules.
        return type(value).__qualname__.removeprefix("FSDP")
    if entry.kind == OUT and not issubclass(type(value), _NAMED):
        return ""
    code = getattr(value, "__code__", None)
    place = "" if code is None else f" line {code.co_firstlineno}"
    return f"{getattr(value, '__qualname__', type(value).__name__)}{place}"


def _odd_mark(value: Any) -> str:
    if isinstance(value, PRINTABLE):
        return repr(value)
    if isinstance(value, set | frozenset):
        return f"set {sorted(map(id, value))}"
    return mark_of_opaque(value)


def is_constant(entry: Entry) -> bool:
    """Return whether a value that never moved must be built equally by a resumed run.

    Text need not: most of it is a path or an address.
    """
    if entry.foreign and entry.kind not in (TENSOR, ARRAY):
        return False
    if entry.kind == PLAIN:
        return not _has_text(entry.value)
    if entry.kind == FLAT:
        value = entry.value
        return not any(map(_has_text, value.values() if isinstance(value, dict) else value))
    return entry.kind in (TENSOR, ARRAY, GENERATOR)


def _has_text(value: Any) -> bool:
    if isinstance(value, tuple | frozenset):
        return any(map(_has_text, value))
    return isinstance(value, str | bytes)


def form_of(entry: Entry, walk: Walk, kept: Any = None) -> Form:
    """Return an entry as a checkpoint holds it.

    Parameters
    ----------
    entry : Entry
    walk : Walk
        The walk that found it.
    kept : object, optional
        Content of a leaf at an earlier moment.

    Raises
    ------
    UnsavableError
        If it has no form.
    """
    assert entry.owner is not None
    return [entry.kind, entry.owner.name, _key(entry.key, walk), _payload(entry, walk, kept)]


def with_tuples(stored: Mapping[str, Form], walk: Walk) -> dict[str, Form]:
    """Add the tuples of stored entries and of references to such: a tuple is made as a whole."""
    found = dict(stored)
    parts = [
        (name, entry.target, entry.owner)
        for name, entry in reversed(walk.entries.items())
        if entry.owner is not None and entry.owner.kind == TUPLE
    ]
    more = True
    while more:
        more = False
        for name, target, owner in parts:
            if owner.name not in found and (name in found or target in found):
                found[owner.name] = form_of(owner, walk)
                more = True
    return {name: found[name] for name in walk.entries if name in found}


def _payload(entry: Entry, walk: Walk, kept: Any) -> Any:
    if entry.kind == REFERENCE:
        return entry.target
    if entry.kind == ITERATOR:
        raise UnsavableError(f"an iterator, {type(entry.value).__name__}")
    if entry.kind in (ODD, UNREADABLE):
        raise UnsavableError(a(type(entry.value).__name__))
    if entry.kind in CONTAINERS:
        return _container(entry, walk)
    if entry.kind == OUT:
        raise UnsavableError(f"{identity_of(entry)}, which was another one at the start")
    if entry.kind not in _LEAVES:
        return identity_of(entry)
    content = content_of(entry) if kept is None else kept
    if isinstance(entry.value, Tensor):
        kind, _, *flags = tensor_form(entry.value)
        return [kind, content.detach(), *flags]
    return encode(content)


def _container(entry: Entry, walk: Walk) -> Form:
    """Return class, extra argument, ends of the names, and keys.

    Each child has an entry of its own.
    """
    value, extra = entry.value, None
    if hasattr(value, "default_factory"):
        extra = factory_name(value.default_factory)
    elif hasattr(value, "maxlen"):
        extra = value.maxlen
    found = walk.children(entry)
    keys = [_key(key, walk) for key, _, _ in found] if entry.kind == MAPPING else []
    return [type(value).__name__, extra, [end for _, end, _ in found], keys]


def _key(key: Any, walk: Walk) -> Any:
    """Return the form of a key. A tensor or an object stands for its name."""
    if is_plain(key):
        return encode(key)
    name = walk.name_of(key)
    if name is None:
        raise UnsavableError(f"a key of the class {type(key).__name__}")
    return ["reference", name]
