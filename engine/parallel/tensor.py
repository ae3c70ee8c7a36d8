"""Tensor parallelism of one run: what the loop needs beside strategies, which see slices only.

Once per step, after the strategy has reduced the gradient over the copies, the gradients of
parameters that work on slices are summed over the tensor group. The norm counts each slice once,
and what all ranks of the group hold once.

Not here: the cut (``engine.parallel.cut``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from lockstep.engine.parallel.collectives import TensorGroup
from lockstep.engine.parallel.cut import CutModel
from lockstep.engine.parallel.slices import whole_of
from lockstep.engine.runtime.device import is_accelerator
from lockstep.engine.runtime.mesh import Mesh
from lockstep.engine.runtime.scattered import Scattered, identity
from lockstep.engine.runtime.timeline import Timeline

State = dict[str, Any]


class TensorParallel:
    """Slices of one model on this rank, between its strategy and the rest of the engine.

    Parameters
    ----------
    mesh : Mesh
    group : TensorGroup
    cut : CutModel
    model : nn.Module
        Cut, and wrapped by its strategy, which may replace the parameters.
    deterministic : bool
        True if devices add up in one order, so that equal inputs have equal results.
    """

    def __init__(
        self,
        mesh: Mesh,
        group: TensorGroup,
        cut: CutModel,
        model: nn.Module,
        *,
        deterministic: bool,
    ):
        self._mesh, self._group, self._cuts = mesh, group, cut.cuts
        named = list(model.named_parameters())
        self._shapes = {name: tuple(parameter.shape) for name, parameter in named}
        self._slices = {id(parameter) for name, parameter in named if name in cut.cuts}
        self._summed = [parameter for name, parameter in named if name in cut.summed]
        """Parameters whose gradients are parts of a sum."""
        self._sent: list[nn.Parameter] = []
        """Parameters whose gradients the first rank of the group sends to the others."""
        if is_accelerator(mesh.world.device) and not deterministic:
            self._sent = [
                parameter
                for name, parameter in named
                if name not in cut.cuts and name not in cut.summed
            ]

    def watch(self, timeline: Timeline) -> None:
        """Mark the messages of steps in a timeline."""
        self._group.timeline = timeline

    def settle(self) -> None:
        """Complete the gradients of what this rank holds whole. All ranks must call this.

        Kernels that add in any order would let the copies of a norm drift apart, so where there are
        such kernels all ranks of a group take the first one's gradient.
        """
        self._group.forget()
        _exchange(self._summed, self._group.sum_up)
        _exchange(self._sent, self._group.send_first)

    def counted(self, parameters: Iterable[Tensor]) -> list[Tensor]:
        """Return the gradients that this rank adds to the norm."""
        first = self._mesh.place.tensor == 0
        return [
            each.grad
            for each in parameters
            if each.grad is not None and (first or id(each) in self._slices)
        ]

    def norm(self, of_slices: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the norm of the whole model, out of those of slices. All ranks must call this.

        It is summed over all ranks, so that all clip by the same bits; the first copy counts.
        """
        squared = of_slices.double() ** 2
        if self._mesh.place.copy:
            squared = torch.zeros_like(squared)
        self._mesh.world.sum_on_device(squared)
        return squared.sqrt().to(dtype)

    # --- checkpoints

    def whole_model(self, state: State) -> State:
        """Return a strategy's model state with parts of whole tensors. All ranks must call this."""
        known: dict[object, Any] = {}
        for name, value in state.items():
            if isinstance(value, Tensor | Scattered):
                key = identity(value)
                if key not in known:
                    known[key] = self._whole(name, value)
                state[name] = known[key]
        return state

    def whole_optimizer(self, state: State, names: list[str]) -> State:
        """Return a strategy's optimizer state with parts of whole tensors.

        All ranks must call this.

        Parameters
        ----------
        state : dict
        names : list of str
            Names of the parameters at their indices in the state.
        """
        moments = {}
        for index, values in sorted(state["state"].items()):
            name = names[index]
            moments[index] = {
                key: self._whole(name, value)
                if isinstance(value, Tensor | Scattered)
                and tuple(value.shape) == self._shapes[name]
                else value
                for key, value in values.items()
            }
        return {**state, "state": moments}

    def slices_of_optimizer(self, state: State, names: list[str]) -> State:
        """Return the whole optimizer state of a checkpoint with this rank's slices."""
        moments = {}
        for index, values in state["state"].items():
            cut = self._cuts.get(names[index])
            whole = None if cut is None else cut.whole_shape(self._shapes[names[index]])
            moments[index] = {
                key: cut.take(value, self._group.index)
                if cut is not None and isinstance(value, Tensor) and tuple(value.shape) == whole
                else value
                for key, value in values.items()
            }
        return {**state, "state": moments}

    def _whole(self, name: str, value: Tensor | Scattered) -> Tensor | Scattered:
        if isinstance(value, Tensor) and value.layout != torch.strided:
            return value
        mesh, cut = self._mesh, self._cuts.get(name)
        return whole_of(value, cut, mesh.layout, mesh.place)


def _exchange(parameters: list[nn.Parameter], send: Callable[[Tensor], None]) -> None:
    """Exchange the gradients of some parameters, in one message per number format."""
    by_format: dict[torch.dtype, list[Tensor]] = {}
    for parameter in parameters:
        if parameter.grad is not None:
            gradient: Tensor = parameter.grad
            local = gradient.to_local() if isinstance(gradient, DTensor) else gradient
            by_format.setdefault(local.dtype, []).append(local)
    for gradients in by_format.values():
        flat = torch.cat([each.flatten() for each in gradients])
        send(flat)
        sizes = [each.numel() for each in gradients]
        for each, found in zip(gradients, torch.split(flat, sizes), strict=True):
            each.copy_(found.view_as(each))
