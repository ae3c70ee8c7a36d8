"""Memory layout of tensors: parameters, their gradients and their moments must agree in it.

torch's fused optimizer kernels on the CPU walk over the memory of all of them in step and do not
look at strides. With a moment in another layout than its parameter (channels_last, transposed) they
combine the wrong numbers and raise nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from lockstep.engine.runtime.errors import BadSpecError


def strides(tensor: Tensor) -> tuple[int, ...]:
    """Return the strides that matter: those of dimensions with more than one entry."""
    return tuple(
        stride for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1
    )


def is_dense(tensor: Tensor) -> bool:
    """Return whether the numbers fill their memory without gaps or overlaps."""
    expected = 1
    for stride, size in sorted(
        (stride, size)
        for stride, size in zip(tensor.stride(), tensor.shape, strict=True)
        if size > 1
    ):
        if stride != expected:
            return False
        expected *= size
    return True


def like(parameter: Tensor, value: Tensor) -> Tensor:
    """Return ``value`` in the layout of ``parameter``: the tensor itself where it already is."""
    if value.shape != parameter.shape or strides(value) == strides(parameter):
        return value
    return torch.empty_like(parameter, dtype=value.dtype, device=value.device).copy_(value)


def parameters_of(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Return the parameters of an optimizer, at their indices in its state dict."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def own_copy(
    state: dict[str, Any],
    optimizer: torch.optim.Optimizer,
    held_by: torch.optim.Optimizer | None = None,
) -> dict[str, Any]:
    """Return a state dict with its tensors in memory of their own, moments on their devices.

    Parameters
    ----------
    state : dict
        For ``optimizer``.
    optimizer : Optimizer
    held_by : Optimizer, optional
        Optimizer of some of the parameters. The state of the others is left out.
    """
    parameters, held = parameters_of(optimizer), set(parameters_of(held_by or optimizer))

    def copied(value: Tensor, parameter: Tensor) -> Tensor:
        device = parameter.device if value.shape == parameter.shape else value.device
        return value.to(device, copy=True)

    mine = {
        index: tree_map_only(Tensor, partial(copied, parameter=parameters[index]), values)
        for index, values in state["state"].items()
        if parameters[index] in held
    }
    return {**state, "state": mine}


def align_state(optimizer: torch.optim.Optimizer) -> None:
    """Copy each moment that has another layout than its parameter into the parameter's."""
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            if isinstance(value, Tensor):
                state[name] = like(parameter, value)


def require_agreement(
    named: Iterable[tuple[str, Tensor]], optimizers: Iterable[torch.optim.Optimizer] = ()
) -> None:
    """Check that each gradient and each moment has the layout of its parameter.

    Parameters
    ----------
    named : iterable of (str, Parameter)
        The model's parameters. Those without a gradient are skipped.
    optimizers : iterable of Optimizer
        Those that hold this rank's moments.

    Raises
    ------
    EngineError
        ``bad_spec``, with the parameter's name and both strides.
    """
    names = {}
    for name, parameter in named:
        names[parameter] = name
        if parameter.grad is not None:
            _require_same(name, parameter, "gradient", parameter.grad)
    for optimizer in optimizers:
        for parameter, state in optimizer.state.items():
            for kind, value in state.items():
                if isinstance(value, Tensor) and value.shape == parameter.shape:
                    _require_same(names.get(parameter, "a parameter"), parameter, kind, value)


def _require_same(name: str, parameter: Tensor, kind: str, value: Tensor) -> None:
    if is_dense(parameter) and strides(value) != strides(parameter):
        raise BadSpecError(
            f"the {kind} of {name} has strides {tuple(value.stride())}, and the parameter "
            f"{tuple(parameter.stride())}: a fused optimizer step would combine the wrong numbers",
        )
