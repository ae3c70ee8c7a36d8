"""Parts of modules, functions, classes and objects, as children of the walk.

Only dictionaries and slots are read, so no property runs.

Not here: the walk (``engine.state.walk``).
"""

from __future__ import annotations

import functools
import types
from typing import Any, Final

from torch import nn

from lockstep.engine.state.rules import (
    is_hook_of_library,
    is_inherited,
    is_private_to_library,
    without_timer,
)
from lockstep.engine.state.values import all_plain, is_plain

Child = tuple[Any, str, Any]
"""Key, end of the name, value."""
HOOK: Final = "h"
"""First part of the key of a module's hook."""
_OF_EVERY_MODULE: Final = frozenset(vars(nn.Module())) | {"_is_full_backward_hook"}
_DESCRIPTORS: Final = (types.GetSetDescriptorType, types.MemberDescriptorType)
_WRAPPERS: Final[dict[type, tuple[str, ...]]] = {
    types.MethodType: ("__self__",),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    property: ("fget", "fset", "fdel"),
    functools.cached_property: ("func",),
    functools.partial: ("func", "args", "keywords"),
}
"""Callables that wrap others, with the attributes to walk."""
_HOOKS: Final = (
    "_forward_pre_hooks",
    "_forward_hooks",
    "_backward_pre_hooks",
    "_backward_hooks",
)
WRAPPERS: Final = tuple(_WRAPPERS)


def of_class(value: Any) -> list[Child]:
    """Return the values of a class or a module of code."""
    found: list[Child] = []
    for name, each in list(vars(value).items()):
        if name.startswith("__") or isinstance(each, _DESCRIPTORS):
            continue
        plain = without_timer(each)
        if not _is_stateless(plain) and not is_inherited(value, name, each):
            found.append((("a", name), f".{name}", plain))
    return found


def _is_stateless(value: Any) -> bool:
    """Return whether a value of a module or a class is a function that keeps nothing."""
    if isinstance(value, property | functools.cached_property):
        return all(_is_stateless(part) for _, _, part in of_function(value))
    if not isinstance(value, types.FunctionType):
        return isinstance(value, types.BuiltinFunctionType)
    if value.__closure__ or vars(value):
        return False
    return all_plain(value.__defaults__ or ()) and all_plain((value.__kwdefaults__ or {}).values())


def attributes(value: object) -> list[tuple[str, Any]]:
    """Return the attributes of an object, those in slots included."""
    found = list(dict_of(value).items())
    for name, slot in slots_of(value):
        try:
            found.append((name, slot.__get__(value)))
        except AttributeError:  # Not set.
            continue
    return found


def dict_of(value: object) -> dict[str, Any]:
    """Return the attributes of an instance that are not in slots; ``__getattr__`` does not run."""
    if not type(value).__dictoffset__:
        return {}
    found: dict[str, Any] = object.__getattribute__(value, "__dict__")
    return found


def slots_of(value: object) -> list[tuple[str, Any]]:
    """Return the slots of an object's classes."""
    return [
        (name, slot)
        for kind in type(value).__mro__
        if kind.__module__ != "builtins"
        for name, slot in vars(kind).items()
        if isinstance(slot, types.MemberDescriptorType) and not name.startswith("__")
    ]


def of_module(module: nn.Module) -> list[Child]:
    """Return the parameters, buffers, modules, hooks and attributes of a module."""
    found: list[Child] = [
        ((letter, name), f".{name}", value)
        for letter, kind in (
            ("p", module._parameters),
            ("b", module._buffers),
            ("m", module._modules),
        )
        for name, value in list(kind.items())
    ]
    found.append((("a", "training"), ".training", module.training))
    found += [
        (("r", name), f".{name}.requires_grad", value.requires_grad)
        for name, value in list(module._parameters.items())
        if value is not None
    ]
    found += [((HOOK, name), f".{name}", value) for name, value in hooks_of(module).items()]
    found += [
        (("a", name), f".{name}", value)
        for name, value in list(vars(module).items())
        if name not in _OF_EVERY_MODULE and not is_private_to_library(module, name)
    ]
    return found


def in_state_dict(model: nn.Module) -> dict[int, str]:
    """Return ``id`` → name of the parameters and buffers that ``state_dict()`` holds."""
    found = {id(parameter): name for name, parameter in model.named_parameters()}
    for prefix, module in model.named_modules():
        for name, buffer in module._buffers.items():
            if buffer is not None and name not in module._non_persistent_buffers_set:
                found.setdefault(id(buffer), f"{prefix}.{name}".lstrip("."))
    return found


def hooks_of(module: nn.Module) -> dict[str, Any]:
    """Return the hooks of a module, but for those of libraries, by their place."""
    found: dict[str, Any] = {}
    for kind in _HOOKS:
        if not (hooks := vars(module).get(kind)):
            continue
        own = [hook for hook in hooks.values() if not is_hook_of_library(hook)]
        found |= {f"{kind.strip('_')}[{place}]": hook for place, hook in enumerate(own)}
    return found


def of_function(value: Any) -> list[Child]:
    """Return the parts of a function that hold state: closure, mutable defaults, attributes."""
    for kind, names in _WRAPPERS.items():
        if isinstance(value, kind):
            parts = [(name, getattr(value, name)) for name in names]
            return [(("x", name), f".{name}", each) for name, each in parts if each is not None]
    found: list[Child] = []
    for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
        try:
            found.append((("c", name), f".{name}", cell.cell_contents))
        except ValueError:  # Not filled yet.
            continue
    defaults = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
    found += [
        (("x", str(index)), f".default[{index}]", each)
        for index, each in enumerate(defaults)
        if not is_plain(each)
    ]
    return found + [(("a", name), f".{name}", each) for name, each in list(vars(value).items())]
