"""Copies of samples and batches, which a user's functions may change.

``copy.deepcopy`` copies the whole memory behind a tensor: a sample that is a row of a table is then
copied with the table. Here a copy has the part between the first and the last number that tensors
of the sample show. As in ``copy.deepcopy``, tensors that share memory still do in the copy.

Not here: copies of state (``engine.state.values``), and of models.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

import torch
from torch import Tensor

_ALIGNMENT: Final = 16
"""Bytes of the largest number format: a copied part begins at a multiple of it."""


def independent(value: Any) -> Any:
    """Return a copy of a sample or a batch that shares no memory with it."""
    sharing: dict[int, list[Tensor]] = {}
    for tensor in _tensors(value):
        sharing.setdefault(tensor.untyped_storage()._cdata, []).append(tensor)
    known: dict[int, Any] = {}
    for tensors in sharing.values():
        known.update(_copies(tensors))
    return copy.deepcopy(value, known)


def _tensors(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in nested containers that are nothing but numbers in memory."""
    waiting, met = [value], set()
    while waiting:
        each = waiting.pop()
        if id(each) in met:
            continue
        met.add(id(each))
        if type(each) is Tensor:
            if _is_plain(each):
                yield each
        elif isinstance(each, dict):
            waiting += dict.values(each)
        elif isinstance(each, list | tuple):
            waiting += each


def _is_plain(tensor: Tensor) -> bool:
    return tensor.layout == torch.strided and not (
        tensor.requires_grad
        or tensor.is_conj()
        or tensor.is_neg()
        or tensor.is_quantized
        or tensor.is_inference()
        or tensor.device.type == "meta"
        or tensor.__dict__
    )


def _copies(tensors: list[Tensor]) -> dict[int, Tensor]:
    """Return ``id`` → copy of tensors that share one memory."""
    memory = tensors[0].untyped_storage()
    if len(tensors) == 1 and tensors[0].nbytes == memory.nbytes() and tensors[0].is_contiguous():
        return {id(tensors[0]): tensors[0].clone()}
    firsts = [each.storage_offset() * each.element_size() for each in tensors]
    ends = [
        first + _extent(each) * each.element_size()
        for first, each in zip(firsts, tensors, strict=True)
    ]
    start = min(firsts) // _ALIGNMENT * _ALIGNMENT
    numbers = torch.empty(0, dtype=torch.uint8, device=tensors[0].device)
    part = numbers.set_(memory, start, (max(ends) - start,)).clone().untyped_storage()  # type: ignore[call-overload] # of a storage
    return {
        id(each): each.new_empty(0).set_(
            part, (first - start) // each.element_size(), each.size(), each.stride()
        )
        for first, each in zip(firsts, tensors, strict=True)
    }


def _extent(tensor: Tensor) -> int:
    """Return the number of entries between a tensor's first number and its last, both included."""
    if not tensor.numel():
        return 0
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return 1 + sum((size - 1) * stride for size, stride in steps)
