"""Messages between the stages of one copy of a model: activations down, gradients up.

A stage announces the number format and the shape of an activation once for each key, which is the
form of the samples: both sides know it, and later activations of the same key must have the same
shape. A message is sent while the sender computes on.

A stage that ran out of memory has no more activations and gradients, but its neighbours wait for
messages. It sends zeros, or announces that there is no activation where none has the form yet.

Not here: their order (``engine.parallel.pipeline``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Final, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from lockstep.engine.runtime.errors import BadSpecError
from lockstep.engine.runtime.mesh import StageLine
from lockstep.engine.runtime.timeline import Timeline, marked

_DIMS_MAX: Final = 8
_NOTHING: Final = -1
"""Format of an activation that there is not."""
_FORMATS: Final = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


class Form(NamedTuple):
    """Form of an activation."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    has_gradient: bool


class Links:
    """Messages of one stage.

    Parameters
    ----------
    line : StageLine
    index, count : int
        Of the stage, and of all stages.
    device : torch.device
        Of activations.
    """

    def __init__(self, line: StageLine, index: int, count: int, device: torch.device):
        on_host = device.type == "cpu"
        self._activations = line.host if on_host else line.activations
        self._gradients = line.host_gradients if on_host else line.gradients
        self._host = line.host
        self._index, self._device = index, device
        self.timeline: Timeline | None = None
        """Timeline of the run's steps; None before them."""
        self._sent: dict[Hashable, Form] = {}
        self._known: dict[Hashable, Form] = {}
        self._under_way: deque[tuple[dist.Work, Tensor]] = deque()
        """Messages that are being sent, with their tensors."""
        # A stage is at most as many micro-batches ahead as there are stages: older messages have
        # arrived.
        self._under_way_max = 2 * (count + 1)

    def send_activation(self, key: Hashable, activation: Tensor) -> None:
        """Send an activation to the next stage."""
        body = activation.detach().contiguous()  # It may not fit: before its form is announced.
        form = Form(activation.dtype, tuple(activation.shape), activation.requires_grad)
        if self._sent.setdefault(key, form) is form:
            self._send(_header(form), self._index + 1, self._host)
        elif self._sent[key] != form:
            raise BadSpecError(
                f"parallel.pipeline: the activation between two stages has the form {form[:2]}, "
                f"and had {self._sent[key][:2]} for samples of the same shapes: it must depend on "
                "their shapes alone",
            )
        self._send(body, self._index + 1, self._activations)

    def send_no_activation(self, key: Hashable) -> None:
        """Send zeros in place of an activation, or word that there is none."""
        form = self._sent.get(key)
        if form is None:
            self._send(torch.full((_DIMS_MAX + 3,), _NOTHING), self._index + 1, self._host)
        else:
            self._send(self._zeros(form), self._index + 1, self._activations)

    def receive_activation(self, key: Hashable) -> Tensor | None:
        """Receive the activation of the stage before, as a leaf of this stage's graph.

        None if that stage ran out of memory before it knew the form.
        """
        form = self._known.get(key)
        with marked(self.timeline, "activation"):
            if form is None:
                header = torch.empty(_DIMS_MAX + 3, dtype=torch.int64)
                dist.recv(header, group=self._host, group_src=self._index - 1)
                if header[0] == _NOTHING:
                    return None
                form = self._known[key] = _form(header)
            found = torch.empty(form.shape, dtype=form.dtype, device=self._device)
            dist.recv(found, group=self._activations, group_src=self._index - 1)
        found.requires_grad_(form.has_gradient and torch.is_grad_enabled())
        return found

    def send_gradient(self, gradient: Tensor) -> None:
        """Send the gradient of a received activation to the stage before."""
        self._send(gradient.contiguous(), self._index - 1, self._gradients)

    def receive_gradient(self, activation: Tensor) -> Tensor:
        """Receive the gradient of an activation that was sent."""
        found = torch.empty(activation.shape, dtype=activation.dtype, device=self._device)
        with marked(self.timeline, "gradient"):
            dist.recv(found, group=self._gradients, group_src=self._index + 1)
        return found

    def receive_no_gradient(self, key: Hashable) -> None:
        """Receive the gradient of an activation that is gone."""
        form = self._sent.get(key)
        if form is not None and form.has_gradient:
            self.receive_gradient(self._zeros(form))

    def send_no_gradient(self, key: Hashable) -> None:
        """Send zeros in place of the gradient of an activation, if there was one."""
        form = self._known.get(key)
        if form is not None and form.has_gradient:
            self.send_gradient(self._zeros(form))

    def finish(self) -> None:
        """Wait until all messages have been sent."""
        while self._under_way:
            self._under_way.popleft()[0].wait()

    def _zeros(self, form: Form) -> Tensor:
        return torch.zeros(form.shape, dtype=form.dtype, device=self._device)

    def _send(self, tensor: Tensor, stage: int, group: dist.ProcessGroup) -> None:
        while len(self._under_way) >= self._under_way_max:
            self._under_way.popleft()[0].wait()
        work = dist.isend(tensor, group=group, group_dst=stage)
        assert work is not None, "a stage is in the groups of its line"
        self._under_way.append((work, tensor))


def _header(form: Form) -> Tensor:
    if form.dtype not in _FORMATS or len(form.shape) > _DIMS_MAX:
        raise BadSpecError(
            f"parallel.pipeline: stages cannot pass on a tensor of {form.dtype} with "
            f"{len(form.shape)} dimensions",
        )
    shape = [*form.shape, *[0] * (_DIMS_MAX - len(form.shape))]
    return torch.tensor([_FORMATS.index(form.dtype), form.has_gradient, len(form.shape), *shape])


def _form(header: Tensor) -> Form:
    dtype, has_gradient, dims, *shape = header.tolist()
    return Form(_FORMATS[dtype], tuple(shape[:dims]), bool(has_gradient))
