"""Rules of the walk: the code that belongs to the user, and the objects that are left out.

Left out, without a word: datasets and loaders, files, locks, threads, loggers, streams, process
groups, weak references, configurations and tokenizers, and objects without a ``state_dict`` of
Python's library (``_WALKED_OF_PYTHON`` are walked) and of the packages in ``_LIBRARIES``. None of
them is the state of a training, or each has a check of its own (``engine.preflight.worker_items``).

Not here: the walk (``engine.state.walk``).
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import io
import logging
import os
import queue
import sys
import threading
import types
import weakref
from collections import ChainMap, UserDict, UserList
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

_LIBRARIES: Final = frozenset(
    {"torch", "numpy", "transformers", "tokenizers", "datasets", "pyarrow", "PIL", "lockstep"}
)
"""Packages whose objects are left out, except modules, containers and objects with a
``state_dict``, which the walk recognises first."""
_NOT_OF_USERS: Final = frozenset({"__main__"}) | _LIBRARIES | sys.stdlib_module_names
_WALKED_OF_PYTHON: Final = (
    types.SimpleNamespace,
    argparse.Namespace,
    UserDict,
    UserList,
    ChainMap,
    queue.Queue,
)
_NEVER: Final = (
    Dataset,
    DataLoader,
    Sampler,
    io.IOBase,
    logging.Logger,
    logging.Handler,
    threading.Thread,
    threading.Event,
    threading.Condition,
    threading.Semaphore,
    type(threading.Lock()),
    type(threading.RLock()),
    torch.Stream,
    torch.Event,
    dist.ProcessGroup,
    weakref.ref,
    weakref.ProxyType,
    types.MappingProxyType,
    types.CodeType,
    types.FrameType,
    types.GenericAlias,
    types.UnionType,
    torch.utils.hooks.RemovableHandle,
)


class UserCode:
    """The modules of the user's code.

    Parameters
    ----------
    folder : Path or None
        Folder of the job's code. None takes the modules that define the classes of ``objects``.
    objects : iterable
        The task, and the modules of the model.
    """

    def __init__(self, folder: Path | None, objects: Iterable[object]):
        self._folder = None if folder is None else folder.resolve()
        self._named = {base.__module__ for each in objects for base in type(each).__mro__}
        self._known: dict[str, bool] = {}
        self._owned: list[str] = []

    def modules(self) -> Iterator[types.ModuleType]:
        """Yield the user's modules that are imported now."""
        # Every walk asks, and a process has some thousand modules, of which few are new.
        if not sys.modules.keys() <= self._known.keys():
            new = sys.modules.keys() - self._known.keys()
            possible = new if self._folder is not None else new & self._named
            for name in [name for name in sys.modules if name in new]:
                self._learn(name, name in possible and self._is_of_user(name))
        for name in list(self._owned):
            module = sys.modules.get(name)
            if isinstance(module, types.ModuleType):
                yield module

    def owns(self, module_name: str | None) -> bool:
        """Return whether a module is one of the user's."""
        if not module_name:
            return False
        if module_name not in self._known:
            if module_name not in sys.modules:
                return False
            self._learn(module_name, self._is_of_user(module_name))
        return self._known[module_name]

    def _learn(self, name: str, owned: bool) -> None:
        self._known[name] = owned
        if owned:
            self._owned.append(name)

    def bring(self, names: Iterable[str]) -> dict[str, str]:
        """Import what a former start of the run had imported; return what fails, with reasons."""
        lost = {}
        for name in names:
            try:
                self._import(name)
            except Exception as error:  # noqa: BLE001 - importing runs the job's code
                lost[name] = f"it is not imported again: {type(error).__name__}: {error}"
        return lost

    def _import(self, name: str) -> None:
        if name in sys.modules:
            return
        found = importlib.util.find_spec(name.partition(".")[0])
        places = () if found is None else (found.origin, *(found.submodule_search_locations or ()))
        if self._folder is None or not any(
            place and Path(os.path.realpath(place)).is_relative_to(self._folder) for place in places
        ):
            raise ImportError("it is no module of the job's code")
        importlib.import_module(name)

    def _is_of_user(self, name: str) -> bool:
        if self._folder is None and name not in self._named:
            return False
        file = getattr(sys.modules.get(name), "__file__", None)
        if not file or _package(name) in _NOT_OF_USERS or f"{os.sep}site-packages{os.sep}" in file:
            return False
        return self._folder is None or Path(os.path.realpath(file)).is_relative_to(self._folder)

    def is_foreign(self, value: object) -> bool:
        """Return whether an object is of a package that is not the user's own."""
        return not self.owns(type(value).__module__)


def without_timer(value: Any) -> Any:
    """Return the user's ``Optimizer.step``, which torch wraps at the first construction."""
    if isinstance(value, types.FunctionType) and vars(value).get("hooked"):
        return vars(value).get("__wrapped__", value)
    return value


def is_inherited(owner: Any, name: str, value: Any) -> bool:
    """Return whether torch has put the method of a base, which it wraps, into a user's class."""
    plain = without_timer(value)
    if plain is value or not isinstance(owner, type):
        return False
    return any(plain is without_timer(vars(base).get(name)) for base in owner.__mro__[1:])


def has_own_protocol(value: object) -> bool:
    """Return whether an object saves and restores itself, as optimizers and schedules do."""
    kind = type(value)
    return not isinstance(value, nn.Module | type) and all(
        callable(getattr(kind, name, None)) for name in ("state_dict", "load_state_dict")
    )


def is_left_out(value: Any) -> bool:
    """Return whether an object that is not a container, module, class or function is no state."""
    if isinstance(value, _NEVER):
        return True
    package = _package(type(value).__module__)
    of_python = package in sys.stdlib_module_names and not isinstance(value, _WALKED_OF_PYTHON)
    return of_python or package in _LIBRARIES


def is_hook_of_library(hook: Any) -> bool:
    """Return whether a hook of a module is a library's, such as one that gathers parameters.

    These come and move during a forward, and are made again by the next start.
    """
    while isinstance(hook, functools.partial):
        hook = hook.func
    function = hook.__func__ if isinstance(hook, types.MethodType) else hook
    is_function = isinstance(function, types.FunctionType)
    home = function.__module__ if is_function else type(function).__module__
    return _package(home or "") in _LIBRARIES


def is_private_to_library(owner: nn.Module, name: str) -> bool:
    """Return whether an attribute is bookkeeping of a module's library, or of a wrapper."""
    if name.startswith(("__composable_api_state_key", "_is_fsdp_", "_fsdp_", "_forward_hooks")):
        return True
    return name.startswith("_") and _package(type(owner).__module__) in {"torch", "lockstep"}


def _package(module_name: str) -> str:
    return module_name.partition(".")[0]
