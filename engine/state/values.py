"""Single values of the inventory: copy, comparison, mark, and restoring in place.

A mark is a short text that is equal for equal values: a checksum of the bytes, or the ``repr`` of a
plain value. NaN equals NaN, and -0.0 differs from 0.0.

Not here: the form in a checkpoint (``engine.state.stored``).
"""

from __future__ import annotations

import copy
import math
import random
import zlib
from collections import OrderedDict, deque
from collections.abc import Collection
from enum import Enum
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.nn.parameter import is_lazy

PLAIN_TYPES: Final = frozenset(
    {bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size}
)
_GENERATORS: Final = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)
_BASES: Final = (OrderedDict, dict, list, deque, tuple)
_SHOWN_CHARS_MAX: Final = 120
_PIECE: Final = 1 << 26
"""Bytes of a tensor on a device that are copied to the host at once."""
_DEPTH_MAX: Final = 6


def is_plain(value: Any) -> bool:
    """Return whether a value is immutable and has an exact ``repr``: numbers, text, tuples."""
    kind = type(value)
    if kind in PLAIN_TYPES:
        return True
    return kind in (tuple, frozenset) and all_plain(value)


def all_plain(values: Collection[Any]) -> bool:
    """Return whether :func:`is_plain` holds for each value."""
    return PLAIN_TYPES.issuperset(map(type, values)) or all(map(is_plain, values))


def base_of(value: Any) -> Any:
    """Return Python's own class of a container: its methods run no override of the user's.

    ``OrderedDict`` comes first: the methods of ``dict`` lose its order.
    """
    return next(kind for kind in _BASES if isinstance(value, kind))


def is_tensor(value: Any) -> bool:
    """Return whether a value is a tensor whose content can be copied."""
    return (
        isinstance(value, Tensor)
        and not isinstance(value, DTensor)
        and not is_lazy(value)
        and not value.is_quantized
        and value.device.type != "meta"
    )


def draws(value: Any) -> bool:
    """Return whether a value is a random generator."""
    return isinstance(value, _GENERATORS) and not isinstance(value, random.SystemRandom)


def state_of(generator: Any) -> Any:
    """Return the state of a random generator."""
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    if isinstance(generator, np.random.RandomState):
        return generator.get_state(legacy=False)
    return generator.getstate()


def set_state(generator: Any, state: Any) -> None:
    """Set the state of a random generator."""
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    else:
        generator.set_state(state)


def mark(value: Any) -> str:
    """Return a mark of a tensor, an array, or nested containers of such and of plain values."""
    if isinstance(value, Tensor):
        return f"{_format(value)} {tuple(value.shape)} {_checksum(value):08x}"
    if isinstance(value, np.ndarray):
        content = repr(value.tolist()).encode() if value.dtype.hasobject else value.tobytes()
        return f"{value.dtype.str} {value.shape} {zlib.crc32(content):08x}"
    if isinstance(value, np.generic):
        return f"{value.dtype.str} {value.tobytes().hex()}"
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, dict):
        parts = [f"{mark(key)}: {mark(each)}" for key, each in value.items()]
    elif isinstance(value, set | frozenset):
        parts = sorted(map(mark, value))
    elif isinstance(value, list | tuple | deque) and not is_plain(value):
        parts = list(map(mark, value))
    else:
        return _short(repr(value))
    return _short(f"{type(value).__name__} {parts}")


def plain_mark(value: Any) -> str:
    """Return the mark of a container of plain values, faster than :func:`mark`."""
    shown = sorted(map(repr, value)) if isinstance(value, set | frozenset) else value
    return f"{type(value).__name__} {len(value)} {zlib.crc32(repr(shown).encode()):08x}"


def local(tensor: Tensor) -> Tensor:
    """Return a tensor without its graph, of a sharded one this rank's part."""
    found = tensor.detach()
    return found.to_local() if isinstance(found, DTensor) else found


def bytes_of(value: Any) -> int:
    """Return the size of a value in memory, where it may be large."""
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, np.ndarray):
        return int(value.nbytes)
    return 8 * len(value) if isinstance(value, list | dict | set | deque | bytearray) else 0


def copied(value: Any) -> Any:
    """Return an independent copy of a value or of a nested state."""
    if isinstance(value, Tensor):
        return local(value).clone()
    if type(value) in (dict, list, tuple):
        return (
            {key: copied(each) for key, each in value.items()}
            if isinstance(value, dict)
            else type(value)(map(copied, value))
        )
    return copy.deepcopy(value)


def same_tensor(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors agree in every bit. Synchronises with the device."""
    return _form(local(one)) == _form(local(other)) and torch.equal(_bytes(one), _bytes(other))


def _form(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tensor.shape, tensor.layout


@torch.no_grad()
def fill(tensor: Tensor, value: Tensor) -> bool:
    """Copy a value into a tensor of the same form; False if that is not possible."""
    if _form(local(tensor)) != _form(value):
        return False
    try:
        if tensor.layout == torch.strided:
            local(tensor).copy_(value)
        else:
            tensor.data = value.clone()
    except RuntimeError:  # Tensors that repeat one number in memory are not writable.
        return same_tensor(tensor, value)
    return True


def equal(one: Any, other: Any, depth: int = 0) -> bool:
    """Return whether two values or batches agree in every bit.

    NaN equals NaN, and values of unknown types count as equal.
    """
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return _equal_tensors(one, other)
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return _equal_arrays(one, other)
    if isinstance(one, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if is_plain(one) or isinstance(one, set | frozenset):
        return bool(one == other)
    return _equal_parts(one, other, depth)


def _equal_arrays(one: np.ndarray, other: np.ndarray) -> bool:
    same = one.dtype == other.dtype and one.shape == other.shape
    return bool(same and (one.dtype.hasobject or one.tobytes() == other.tobytes()))


def _equal_parts(one: Any, other: Any, depth: int) -> bool:
    """Compare two containers or objects of the same type."""
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


def _bytes(tensor: Tensor) -> Tensor:
    """Return the bytes of a tensor in its order of elements, without a copy where possible."""
    tensor = local(tensor)
    flat = (tensor if tensor.layout == torch.strided else tensor.to_dense()).reshape(-1)
    return flat.resolve_conj().resolve_neg().contiguous().view(torch.uint8)


def _checksum(tensor: Tensor) -> int:
    content, found = _bytes(tensor), 0
    for first in range(0, content.numel(), _PIECE):
        found = zlib.crc32(content[first : first + _PIECE].cpu().numpy().data, found)
    return found


def _format(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _short(text: str) -> str:
    if len(text) <= _SHOWN_CHARS_MAX:
        return text
    return f"{text[:20]}… {zlib.crc32(text.encode(errors='surrogatepass')):08x}"
