"""Copy of a training state in host memory.

Not here: its use (``engine.checkpoints.saving``).
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor

from lockstep.engine.checkpoints.contents import State
from lockstep.engine.runtime.device import is_accelerator, module_of
from lockstep.engine.runtime.scattered import Scattered, identity

_OF_FORWARD: Final = ("model", "held")
"""Parts of a state that a forward may change."""


class HostCopy:
    """Host memory for one copy of a state, filled again by each :meth:`take`.

    It is as large as this rank's part of the state: under ``ddp`` with AdamW three times the
    parameters.
    """

    def __init__(self, device: torch.device):
        self._device = device
        self._module = module_of(device) if is_accelerator(device) else None
        self._stream = None if self._module is None else self._module.Stream(device)
        self._buffers: list[Tensor] = []
        self._copied: Any = None
        self._sources: State | None = None

    def take(self, state: State) -> State:
        """Return a copy of ``state``. Overwrites the copy of the last :meth:`take`.

        Tensors that are identical in ``state`` (tied weights) are identical in the copy. Of a
        scattered one this rank's part is copied. On GPUs
        the copy is only queued: call :meth:`wait` before reading it, and :meth:`hold` before
        changing the state.
        """
        filling = _Filling(self._buffers, pinned=self._module is not None)
        if self._module is None or self._stream is None:
            taken: State = filling.copy(state)
        else:
            current = self._module.current_stream(self._device)
            self._stream.wait_stream(current)
            with self._module.stream(self._stream):
                # What the next forward may write to comes first: buffers, and the state of the
                # task. Everything behind us waits for it on the device. The rest, the larger part,
                # is only changed by the next update.
                first = {key: filling.copy(state[key]) for key in _OF_FORWARD if key in state}
                current.wait_event(self._stream.record_event())
                taken = {
                    key: first[key] if key in first else filling.copy(value)
                    for key, value in state.items()
                }
                self._copied = self._stream.record_event()
            # Tensors that were gathered for this save alone must not be reused before they are
            # copied.
            self._sources = state
        self._buffers = filling.used
        return taken

    def hold(self) -> None:
        """Let the device finish the copy before it continues with the current stream.

        The host does not wait.
        """
        if self._module is not None and self._copied is not None:
            self._module.current_stream(self._device).wait_event(self._copied)

    def wait(self) -> None:
        """Wait until the copy is on the host."""
        if self._copied is not None:
            self._copied.synchronize()
        self._sources = None

    def give_back(self) -> None:
        """Free the memory."""
        self._buffers, self._sources, self._copied = [], None, None


class _Filling:
    """One walk over a state, which takes the buffers of the walk before it where they fit."""

    def __init__(self, buffers: list[Tensor], *, pinned: bool):
        self._old, self._pinned = buffers, pinned
        self.used: list[Tensor] = []
        self._taken: dict[object, Tensor] = {}
        self._scattered: dict[int, Scattered] = {}

    def copy(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self._tensor(value.detach())
        if isinstance(value, Scattered):
            return self._scattered_copy(value)
        if isinstance(value, dict):
            copied = copy.copy(
                value
            )  # With its type and attributes: a state_dict carries the versions of its modules.
            copied.update({key: self.copy(each) for key, each in value.items()})
            return copied
        if isinstance(value, list | tuple):
            return type(value)(self.copy(each) for each in value)
        return copy.deepcopy(value)

    def _scattered_copy(self, value: Scattered) -> Scattered:
        if value.own is None:
            return value
        if id(value) not in self._scattered:
            self._scattered[id(value)] = replace(value, own=self._tensor(value.own))
        return self._scattered[id(value)]

    def _tensor(self, tensor: Tensor) -> Tensor:
        if tensor.layout != torch.strided:
            return tensor.to("cpu", copy=True)
        place = identity(tensor)
        buffer = self._taken.get(place)
        if buffer is None:
            buffer = self._taken[place] = self._buffer_for(tensor).copy_(tensor, non_blocking=True)
        return buffer

    def _buffer_for(self, tensor: Tensor) -> Tensor:
        index = len(self.used)
        buffer = self._old[index] if index < len(self._old) else None
        if buffer is None or buffer.shape != tensor.shape or buffer.dtype != tensor.dtype:
            buffer = torch.empty_like(tensor, device="cpu", pin_memory=self._pinned)
        self.used.append(buffer)
        return buffer
