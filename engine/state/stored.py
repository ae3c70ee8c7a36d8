"""Form of the inventory's values in a checkpoint: tensors and plain values, nothing that runs code.

A plain value of Python stands for itself. Everything else is a list whose first item is its kind:
``["deque", 3, [...]]``. The file is read with ``weights_only=True``, which accepts exact types
only.

Not here: what is saved (``engine.state.inventory``).
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from lockstep.engine.state.reasons import a

_PLAIN: Final = frozenset({bool, int, float, complex, str, bytes, type(None)})
_FACTORIES: Final = {each.__name__: each for each in (int, float, list, dict, set, str, bool)}


class UnsavableError(Exception):
    """A value has no form in a checkpoint. The message says what it is."""


def encode(value: Any) -> Any:
    """Return the form of a value, or of a nested container of such.

    Raises
    ------
    UnsavableError
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if isinstance(value, Tensor):
        return tensor_form(value)
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        content = np.frombuffer(value.tobytes(), dtype=np.uint8).copy()
        return ["array", value.dtype.str, list(value.shape), torch.from_numpy(content)]
    if isinstance(value, np.generic) and not value.dtype.hasobject:
        return ["number", value.dtype.str, value.tobytes()]
    if isinstance(value, Enum):
        return ["enum", value.name]
    if kind is bytearray:
        return ["bytearray", bytes(value)]
    if kind in (torch.dtype, torch.device):
        return [kind.__name__, str(value).removeprefix("torch.")]
    return _encode_container(value, kind)


def _encode_container(value: Any, kind: type) -> Any:
    if kind in _MAPPINGS:
        extra = value.default_factory if kind is defaultdict else None
        items = [[encode(key), encode(each)] for key, each in value.items()]
        return [kind.__name__, factory_name(extra), items]
    if kind in _SEQUENCES:
        items = [encode(each) for each in value]
        return [kind.__name__, value.maxlen if kind is deque else None, items]
    raise UnsavableError(a(kind.__name__))


def decode(form: Any, current: Any = None) -> Any:
    """Return the value of a form.

    Parameters
    ----------
    form : object
        Result of :func:`encode`.
    current : object, optional
        Value that is replaced; the class of an Enum is taken from it.

    Raises
    ------
    UnsavableError
        If the value cannot be made here.
    """
    if not isinstance(form, list):
        return form
    kind, *rest = form
    if kind in _BUILDERS:
        return _BUILDERS[kind](rest[0], [decode(each) for each in rest[1]])
    if kind in _MAPPING_NAMES:
        pairs = [(decode(key), decode(each)) for key, each in rest[1]]
        return new_mapping(kind, rest[0], pairs)
    if kind == "tensor":
        return tensor_of(form)
    if kind == "array":
        return np.frombuffer(rest[2].numpy().tobytes(), dtype=rest[0]).reshape(rest[1]).copy()
    if kind == "number":
        return np.frombuffer(rest[1], dtype=rest[0])[0]
    if kind == "bytearray":
        return bytearray(rest[0])
    if kind == "dtype":
        return getattr(torch, rest[0])
    if kind == "device":
        return torch.device(rest[0])
    if kind == "enum" and isinstance(current, Enum):
        return type(current)[rest[0]]
    raise UnsavableError(a(kind))


def tensor_form(tensor: Tensor) -> list[Any]:
    """Return the form of a tensor. Nothing is copied."""
    if tensor.device.type == "meta" or tensor.is_quantized:
        raise UnsavableError("a tensor without values")
    plain = tensor.detach()
    if type(plain) is not Tensor:
        plain = plain.as_subclass(Tensor)
    flags = isinstance(tensor, nn.Parameter), tensor.requires_grad, tensor.device.type
    return ["tensor", plain, *flags]


def tensor_of(form: list[Any], device: torch.device | None = None) -> Tensor:
    """Return a new tensor of a form, on a device or on one of the kind that it was saved from."""
    _, content, is_parameter, requires_grad, kind = form
    there = kind == "cpu" or torch.accelerator.is_available()
    value: Tensor = content.to(device or (kind if there else "cpu"), copy=True)
    if is_parameter:
        return nn.Parameter(value, requires_grad=requires_grad)
    return value.requires_grad_(requires_grad) if requires_grad else value


def factory_name(factory: Callable[[], Any] | None) -> str | None:
    """Return the name of a default factory.

    Raises
    ------
    UnsavableError
        If it is not one of Python's own types.
    """
    name = getattr(factory, "__name__", None)
    if factory is not None and _FACTORIES.get(str(name)) is not factory:
        raise UnsavableError("a defaultdict with a factory of its own")
    return name


def new_mapping(kind: str, factory: str | None, pairs: Iterable[tuple[Any, Any]]) -> Any:
    """Return a new mapping of one of Python's own classes."""
    if kind == "defaultdict":
        return defaultdict(_FACTORIES[factory] if factory else None, pairs)
    if kind == "Counter":
        found: Counter[Any] = Counter()
        found.update(dict(pairs))
        return found
    return OrderedDict(pairs) if kind == "OrderedDict" else dict(pairs)


_MAPPINGS: Final = {dict, OrderedDict, defaultdict, Counter}
_MAPPING_NAMES: Final = frozenset(kind.__name__ for kind in _MAPPINGS)
_SEQUENCES: Final = {list, tuple, deque, set, frozenset, torch.Size}
_BUILDERS: Final[dict[str, Callable[[Any, list[Any]], Any]]] = {
    "list": lambda _, items: items,
    "tuple": lambda _, items: tuple(items),
    "deque": lambda maxlen, items: deque(items, maxlen=maxlen),
    "set": lambda _, items: set(items),
    "frozenset": lambda _, items: frozenset(items),
    "Size": lambda _, items: torch.Size(items),
}
