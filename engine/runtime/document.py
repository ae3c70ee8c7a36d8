"""Nested values as JSON beside their tensors, in checkpoints and between ranks.

Text, numbers, None, lists, and dicts with text keys stand for themselves. Every other value is an
object whose key ``$`` is its kind. Reading makes values of Python's and torch's own types only, so
it runs no code.

Not here: objects of a task (``engine.state.stored``), the tensors of a checkpoint
(``engine.checkpoints.tensors``).
"""

from __future__ import annotations

import base64
import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from lockstep.engine.runtime.scattered import Scattered

KIND: Final = "$"
Document = Any
"""Value of JSON."""
Place = tuple[Any, ...]
"""Keys from the whole value to a part of it."""
Write = Callable[[Any, Place], dict[str, Any]]
"""Takes a dense tensor or ``Scattered`` with its path; returns what the document has for it."""
Read = Callable[[dict[str, Any]], Any]
"""Takes what ``Write`` returned; returns the tensor or ``Scattered``."""

_ATOMS: Final = frozenset({bool, int, str, type(None)})
_MAPPINGS: Final = {each.__name__: each for each in (dict, OrderedDict, Counter)}
_SEQUENCES: Final[dict[str, Callable[[Iterable[Any]], Any]]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "Size": torch.Size,
}
_METADATA: Final = "_metadata"
"""Attribute of a module's state dict: the versions of its modules."""


class NotPlainError(TypeError):
    """A value has no form in a document. The message has its path and its class."""


@dataclass(frozen=True)
class SparseParts:
    """Sparse tensor as the dense tensors it consists of."""

    layout: str
    shape: tuple[int, ...]
    parts: tuple[Any, ...]
    """Indices, and values last."""

    @classmethod
    def of(cls, tensor: Tensor) -> SparseParts:
        layout = str(tensor.layout).removeprefix("torch.")
        if tensor.layout == torch.sparse_coo:
            parts = (tensor._indices(), tensor._values())
            return cls("coalesced" if tensor.is_coalesced() else layout, tensor.shape, parts)
        by_row = tensor.layout in (torch.sparse_csr, torch.sparse_bsr)
        outer = tensor.crow_indices() if by_row else tensor.ccol_indices()
        inner = tensor.col_indices() if by_row else tensor.row_indices()
        return cls(layout, tensor.shape, (outer, inner, tensor.values()))

    def tensor(self) -> Tensor:
        """Return the sparse tensor. Indices outside of its shape are refused."""
        if self.layout in ("coalesced", "sparse_coo"):
            indices, values = self.parts
            return torch.sparse_coo_tensor(
                indices,
                values,
                self.shape,
                is_coalesced=self.layout == "coalesced",
                check_invariants=True,
            )
        outer, inner, values = self.parts
        layout = getattr(torch, self.layout)
        return torch.sparse_compressed_tensor(
            outer, inner, values, self.shape, layout=layout, check_invariants=True
        )


def encode(value: Any, write: Write, path: Place = ()) -> Document:
    """Return the document of a value.

    Raises
    ------
    NotPlainError
        If a part of it is of another class than those above.
    """
    kind = type(value)
    if kind in _ATOMS:
        return value
    if isinstance(value, Tensor | Scattered | SparseParts):
        return _encode_tensor(value, write, path)
    if kind is list:
        if set(map(type, value)) <= _ATOMS:
            return list(value)
        return [encode(each, write, (*path, index)) for index, each in enumerate(value)]
    if kind in _MAPPINGS.values():
        return _encode_mapping(value, write, path)
    if kind in _SEQUENCES.values():
        items = sorted(value, key=repr) if isinstance(value, set | frozenset) else value
        found = [encode(each, write, (*path, index)) for index, each in enumerate(items)]
        return {KIND: kind.__name__, "items": found}
    return _encode_leaf(value, path)


def _encode_leaf(value: Any, path: Place) -> Document:
    """Return the document of a value without parts, other than the atoms."""
    if isinstance(value, np.number | np.bool):
        value = value.item()
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is float:
        return value if math.isfinite(value) else {KIND: "float", "value": repr(value)}
    if kind is complex:
        parts = [_encode_leaf(each, path) for each in (value.real, value.imag)]
        return {KIND: "complex", "parts": parts}
    if kind in (bytes, bytearray):
        return {KIND: kind.__name__, "base64": base64.b64encode(value).decode()}
    if kind in (torch.dtype, torch.device):
        return {KIND: kind.__name__, "name": str(value).removeprefix("torch.")}
    raise NotPlainError(f"{_shown(path)} is of the class {kind.__name__}")


def _shown(path: Place) -> str:
    return "/".join(map(str, path)) or "the value"


def _encode_tensor(value: Any, write: Write, path: Place) -> Document:
    if isinstance(value, Tensor) and value.layout != torch.strided:
        value = SparseParts.of(value.detach())
    if isinstance(value, SparseParts):
        parts = [write(each, (*path, index)) for index, each in enumerate(value.parts)]
        return {KIND: "sparse", "layout": value.layout, "shape": list(value.shape), "parts": parts}
    if isinstance(value, Tensor) and (value.is_quantized or value.device.type == "meta"):
        raise NotPlainError(f"{_shown(path)} is a tensor without values")
    found = {KIND: "tensor", **write(value, path)}
    return found | {"parameter": value.requires_grad} if isinstance(value, nn.Parameter) else found


def _encode_mapping(value: Any, write: Write, path: Place) -> Document:
    kind = type(value)
    if kind is dict and KIND not in value and all(type(key) is str for key in value):
        return {key: encode(each, write, (*path, key)) for key, each in value.items()}
    items = [
        [encode(key, write, path), encode(each, write, (*path, key))] for key, each in value.items()
    ]
    found = {KIND: kind.__name__, "items": items}
    if hasattr(value, _METADATA):
        found["metadata"] = encode(getattr(value, _METADATA), write, path)
    return found


def decode(document: Document, read: Read) -> Any:
    """Return the value of a document.

    Raises
    ------
    ValueError
        If it has a kind that this version does not write.
    """
    if isinstance(document, list):
        return [decode(each, read) for each in document]
    if not isinstance(document, dict):
        return document
    kind = document.get(KIND)
    if kind is None:
        return {key: decode(each, read) for key, each in document.items()}
    if kind in _MAPPINGS:
        return _decode_mapping(kind, document, read)
    if kind in _SEQUENCES:
        return _SEQUENCES[kind](decode(each, read) for each in document["items"])
    if kind in ("tensor", "sparse"):
        return _decode_tensor(kind, document, read)
    return _decode_leaf(kind, document)


def _decode_tensor(kind: str, document: dict[str, Any], read: Read) -> Any:
    if kind == "sparse":
        parts = tuple(read(each) for each in document["parts"])
        sparse = SparseParts(document["layout"], tuple(document["shape"]), parts)
        return sparse.tensor() if all(isinstance(each, Tensor) for each in parts) else sparse
    value = read(document)
    if "parameter" in document and isinstance(value, Tensor):
        return nn.Parameter(value, requires_grad=document["parameter"])
    return value


def _decode_leaf(kind: str, document: dict[str, Any]) -> Any:
    if kind == "float":
        return float(document["value"])
    if kind in ("bytes", "bytearray"):
        content = base64.b64decode(document["base64"])
        return content if kind == "bytes" else bytearray(content)
    if kind == "complex":
        return complex(*(decode(each, dict) for each in document["parts"]))
    if kind == "dtype":
        return dtype_of(document["name"])
    if kind == "device":
        return torch.device(document["name"])
    raise ValueError(f"it has a value of the unknown kind {kind!r}")


def _decode_mapping(kind: str, document: dict[str, Any], read: Read) -> Any:
    found: Any = _MAPPINGS[kind]()
    for key, each in document["items"]:
        found[decode(key, read)] = decode(each, read)
    if "metadata" in document:
        found._metadata = decode(document["metadata"], read)
    return found


def dtype_name(dtype: torch.dtype) -> str:
    """``float32``."""
    return str(dtype).removeprefix("torch.")


def dtype_of(name: str) -> torch.dtype:
    """Return the number format of a name.

    Raises
    ------
    ValueError
        If torch has none of this name.
    """
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"it has the unknown number format {name!r}")
    return found


def require_plain(value: Any) -> None:
    """Raise ``NotPlainError`` if a value has no document."""
    encode(value, lambda *_: {})
