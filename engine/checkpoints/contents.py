"""Contents of a checkpoint's two files: ``state.safetensors`` with all tensors, and ``state.json``.

The state is a nested value. Its tensors get names: ``model/`` and the name in the model,
``optimizer/``, the parameter's name and the moment's, and otherwise the path in the state.
``state.json`` has everything else, with the names in the places of the tensors. Neither depends on
the ranks or the strategy of a run, except for what describes them. A tensor that the state has
several times (tied weights) is written once.

Checkpoints of the versions before have one file ``state.pt``, which is still read.

Not here: digests and names of files (``engine.checkpoints.checkpoint``), the meaning of the state
(``engine.checkpoints.state``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from lockstep.domain.life.manifest import FORMER_STATE, STATE, TENSORS
from lockstep.engine.checkpoints import tensors
from lockstep.engine.checkpoints.tensors import NamedTensor
from lockstep.engine.runtime.document import (
    NotPlainError,
    Place,
    Write,
    decode,
    dtype_name,
    dtype_of,
    encode,
)
from lockstep.engine.runtime.errors import BadSpecError
from lockstep.engine.runtime.scattered import Scattered, identity, stride_of

FORMAT: Final = 1
State = dict[str, Any]
_ALIGNED: Final = ("model", "optimizer")
"""Parts whose tensors take the layout in memory of the run that reads them."""


@dataclass(frozen=True)
class Contents:
    """Contents of both files."""

    document: dict[str, Any]
    pieces: list[NamedTensor]
    """In the order of the file."""

    def text(self) -> bytes:
        """``state.json``."""
        return json.dumps(self.document, separators=(",", ":")).encode()


def contents_of(state: State) -> Contents:
    """Return the contents of the files for a state.

    Raises
    ------
    EngineError
        ``bad_spec``, if a part of the state has no form in a document.
    """
    names = _Names(state.get("parameters", []))
    pieces: dict[str, NamedTensor] = {}
    known: dict[object, str] = {}

    def write(value: Tensor | Scattered, place: Place) -> dict[str, Any]:
        name = known.get(key := identity(value))
        if name is None:
            name = names.of(place)
            known[key] = name
            pieces[name] = NamedTensor(name, value)
        found: dict[str, Any] = {"name": name}
        if value.dtype not in tensors.NAMES:
            found["dtype"] = dtype_name(value.dtype)
        stride = None if place[0] in _ALIGNED else stride_of(value)
        return found if stride is None else found | {"stride": list(stride)}

    document = {"format": FORMAT, "state": _encoded(state, write)}
    return Contents(document, tensors.in_order(list(pieces.values())))


def scattered_in(value: Any) -> list[Scattered]:
    """Return the scattered tensors of a state or a part of it, in the order of the file."""
    found: dict[int, Scattered] = {}

    def write(each: Tensor | Scattered, _: Place) -> dict[str, Any]:
        if isinstance(each, Scattered):
            found.setdefault(id(each), each)
        return {}

    _encoded(value, write)
    return sorted(found.values(), key=tensors.position)


def _encoded(value: Any, write: Write) -> Any:
    try:
        return encode(value, write)
    except NotPlainError as error:
        raise BadSpecError(
            f"no checkpoint can hold the state of this run: {error}. Tensors, numbers, text, lists "
            "and dicts have a form in a checkpoint; objects of other classes have none"
        ) from None


def read(folder: Path) -> State:
    """Return the state in a folder, with its tensors as views of the file.

    Raises
    ------
    ValueError
        The format is not this version's.
    Exception
        Whatever the libraries raise for files that are something else.
    """
    if not (folder / STATE).is_file() and (folder / FORMER_STATE).is_file():
        former: State = torch.load(
            folder / FORMER_STATE, map_location="cpu", weights_only=True, mmap=True
        )
        return former
    document = json.loads((folder / STATE).read_bytes())
    there = document.get("format") if isinstance(document, Mapping) else None
    if there != FORMAT:
        raise ValueError(f"it has format {there!r}; expected {FORMAT}")
    values = tensors.views(folder / TENSORS)

    def tensor(found: dict[str, Any]) -> Tensor:
        value = values[found["name"]]
        if "dtype" in found:
            value = tensors.as_format(value, dtype_of(found["dtype"]))
        if "stride" not in found:
            return value
        return torch.empty_strided(value.shape, found["stride"], dtype=value.dtype).copy_(value)

    state: State = decode(document["state"], tensor)
    return state


class _Names:
    """Names of tensors by their place in the state."""

    def __init__(self, parameters: Sequence[Sequence[str]]):
        self._parameters = [name for group in parameters for name in group]
        self._taken: set[str] = set()

    def of(self, place: Place) -> str:
        """Return a name that no other place has."""
        name = "/".join(map(str, self._shown(place)))
        while name in self._taken:
            name += "'"
        self._taken.add(name)
        return name

    def _shown(self, place: Place) -> Place:
        """Return the place, with a parameter's name in place of its index in the optimizer."""
        match place:
            case ("optimizer", "state", int(index), *rest) if index < len(self._parameters):
                return ("optimizer", self._parameters[index] or index, *rest)
        return place
