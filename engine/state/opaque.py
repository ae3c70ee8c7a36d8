"""Objects whose content changes and has no form in a checkpoint.

Each is named once its content differs from that of the start, or always if its content cannot be
read.

Not here: objects that are no state (``engine.state.rules``).
"""

from __future__ import annotations

import contextvars
import ctypes
import io
import threading
import weakref
from collections.abc import Callable
from multiprocessing.managers import BaseProxy
from multiprocessing.sharedctypes import SynchronizedBase
from typing import Any, Final

from lockstep.engine.state.values import is_plain

UNKNOWN: Final = "?"
_NUMBERS: Final = (int, float, complex, str, bytes)
_CTYPES: Final = ctypes.c_int.__mro__[-2]
"""Base of all values of ``ctypes``."""


def _of_attributes(value: Any) -> str:
    held = threading.local.__getattribute__(value, "__dict__")
    return repr(held) if is_plain(tuple(held.values())) else UNKNOWN


def _of_variable(value: contextvars.ContextVar[Any]) -> str:
    held = value.get(None)
    return repr(held) if is_plain(held) else UNKNOWN


_MARKS: Final[tuple[tuple[Any, Callable[[Any], str]], ...]] = (
    (_CTYPES, lambda value: bytes(value).hex()),
    (SynchronizedBase, lambda value: bytes(value.get_obj()).hex()),
    (contextvars.ContextVar, _of_variable),
    (threading.local, _of_attributes),
    (
        (weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.WeakSet),
        lambda value: UNKNOWN if len(value) else "empty",
    ),
    ((io.BytesIO, io.StringIO), lambda value: repr(value.getvalue())),
    (BaseProxy, lambda _: UNKNOWN),
)
"""Type → text that differs if the content does."""


def is_opaque(value: Any) -> bool:
    """Return whether an object of Python's library is one of these."""
    return any(isinstance(value, kinds) for kinds, _ in _MARKS)


def is_number_of_own_class(value: Any) -> bool:
    """Return whether a value is a number or a text of a class that is derived from Python's."""
    return isinstance(value, _NUMBERS)


def mark_of_opaque(value: Any) -> str:
    """Return a text that differs if the content does; ``UNKNOWN`` if that cannot be told."""
    base = next((kind for kind in _NUMBERS if isinstance(value, kind)), None)
    if base is not None:
        return base.__repr__(value)
    try:
        return next(mark(value) for kinds, mark in _MARKS if isinstance(value, kinds))
    except Exception:  # noqa: BLE001 - closed, or an object of a package
        return UNKNOWN
