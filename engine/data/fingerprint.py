"""Fingerprints of model and dataset in a checkpoint, and their comparison (contract C43).

The fingerprint of a model is the names, shapes and number formats of its state, and the order of
its parameters in the optimizer, because moments belong to positions in that order. The fingerprint
of a dataset is its length and a few collated samples. Integers and text must be equal;
floating-point numbers and bytes (pixels) may differ by one part per thousand, because decoders
differ between machines.

Not here: the reaction to a difference (``engine.checkpoints.state``,
``engine.checkpoints.initial``).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from lockstep.engine.data.fetching import seeded_sample
from lockstep.engine.task.interface import Batch

NAMED_MAX: Final = 8
"""Differences that are listed; the rest is counted."""
_TOLERANCE: Final = 1e-3
_DIGEST_CHARS: Final = 16
_EXTRA_STATE: Final = "_extra_state"
"""Last part of the name that ``nn.Module`` gives the result of ``get_extra_state``."""

Look = dict[str, Any]
"""Part of a sample → its type, shape, and a digest (``str``) or some averages (``list`` of
float)."""
Samples = dict[str, Look]


def differences(there: Mapping[str, Any], here: Mapping[str, Any], *, formats: bool) -> list[str]:
    """Return the differences between the states ``there`` and ``here``, key by key.

    Parameters
    ----------
    there, here : mapping of str to Tensor
        State dicts. Only the presence is compared of values that are no tensors, and of a module's
        extra state, whose form is the module's own.
    formats : bool
        True to compare number formats, too; initial weights are converted.
    """
    found = [f"missing: {name}" for name in here if name not in there]
    found += [f"unexpected: {name}" for name in there if name not in here]
    for name, mine in here.items():
        theirs = there.get(name)
        if not (isinstance(mine, Tensor) and isinstance(theirs, Tensor)) or _is_extra(name):
            continue
        if theirs.shape != mine.shape:
            found.append(f"{name} has shape {_shape(theirs)}, the model's is {_shape(mine)}")
        elif formats and theirs.dtype != mine.dtype:
            found.append(f"{name} has {_format(theirs)}, the model's is {_format(mine)}")
    return found


def sentence(found: list[str]) -> str:
    """The first differences, and how many more there are."""
    more = len(found) - NAMED_MAX
    return "; ".join(found[:NAMED_MAX]) + (f"; and {more} more" if more > 0 else "")


def parameter_order(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[list[str]]:
    """Names of the parameters in each group of the optimizer."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [
        [names.get(id(parameter), "") for parameter in group["params"]]
        for group in optimizer.param_groups
    ]


def samples_of(
    dataset: Dataset[Any],
    size: int,
    collate: Callable[[list[Any]], Batch],
    *,
    seed: int,
    known: Mapping[int, Batch] | None = None,
) -> Samples:
    """Return the fingerprints of the first, the middle and the last sample.

    Parameters
    ----------
    dataset : Dataset
    size : int
        Its length.
    collate : callable
        The task's.
    seed : int
        Of the run; the draws of a sample depend on it.
    known : mapping of int to Batch, optional
        Collated samples that were fetched before; they are not fetched again.
    """
    known = known or {}
    return {
        str(index): look(
            known[index] if index in known else collate([seeded_sample(dataset, index, seed=seed)])
        )
        for index in sorted({0, size // 2, size - 1})
    }


def other_samples(there: Samples, here: Samples) -> list[str]:
    """The samples that do not look the same, with the part in which they differ."""
    found = []
    for index, mine in here.items():
        theirs = there.get(index)
        if theirs is None:
            continue
        parts = sorted(
            part
            for part in theirs.keys() | mine.keys()
            if not _alike(theirs.get(part), mine.get(part))
        )
        if parts:
            found.append(
                f"sample {index} differs ({', '.join(part or 'its value' for part in parts[:3])})"
            )
    return found


def look(value: Any, part: str = "") -> Look:
    """Return the fingerprint of one collated sample: plain values only."""
    if isinstance(value, Mapping):
        return _joined((look(each, _inside(part, key)) for key, each in value.items()))
    if isinstance(value, list | tuple):
        return _joined((look(each, _inside(part, index)) for index, each in enumerate(value)))
    if isinstance(value, Tensor):
        return {part: _numbers(value.detach().cpu())}
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        try:
            return {part: _numbers(torch.from_numpy(np.ascontiguousarray(value)))}
        except (
            TypeError,
            ValueError,
        ):  # Text, times, records, another byte order: torch has no such numbers.
            return {
                part: [str(value.dtype), list(value.shape), _digest(repr(value.tolist()).encode())]
            }
    if isinstance(value, float):
        return {part: _numbers(torch.tensor(value, dtype=torch.float64))}
    if isinstance(value, str | bytes | bool | int | None):
        return {part: [type(value).__name__, _digest(repr(value).encode())]}
    # Its repr may hold an address; its type is all that is sure to be the same tomorrow.
    return {part: [type(value).__name__]}


def _numbers(tensor: Tensor) -> list[Any]:
    described: list[Any] = [str(tensor.dtype).removeprefix("torch."), list(tensor.shape)]
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.uint8:
        return [*described, _averages(tensor)]
    return [*described, _digest(tensor.contiguous().numpy().tobytes())]


def _averages(tensor: Tensor) -> list[float]:
    """Mean, root mean square, and a mean that sees the order.

    Of the largest value's size each, so comparable.
    """
    flat = torch.view_as_real(tensor).flatten() if tensor.is_complex() else tensor.flatten()
    flat = flat.to(torch.float64)
    if not flat.numel():
        return []
    ramp = torch.linspace(-1.0, 1.0, flat.numel(), dtype=torch.float64)
    return [float(flat.mean()), float(flat.square().mean().sqrt()), float((flat * ramp).mean())]


def _alike(there: Any, here: Any) -> bool:
    if there is None or here is None or there[:-1] != here[:-1]:
        return False
    theirs, mine = there[-1], here[-1]
    if not isinstance(theirs, list) or not isinstance(mine, list):
        return bool(theirs == mine)
    allowed = _TOLERANCE * max(
        (abs(each) for each in [*theirs, *mine] if math.isfinite(each)), default=0.0
    )
    return len(theirs) == len(mine) and all(
        abs(a - b) <= allowed or a == b or (math.isnan(a) and math.isnan(b))
        for a, b in zip(theirs, mine, strict=True)
    )


def _joined(parts: Iterable[Look]) -> Look:
    joined: Look = {}
    for each in parts:
        joined.update(each)
    return joined


def _inside(part: str, key: object) -> str:
    return f"{part}.{key}" if part else str(key)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_DIGEST_CHARS]


def _is_extra(name: str) -> bool:
    return name.rpartition(".")[2] == _EXTRA_STATE


def _shape(tensor: Tensor) -> str:
    return str(tuple(tensor.shape))


def _format(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
