"""Optimizer classes: one row for each kind of the spec.

A row says how the class is made, and which state its first step would make. State is made before
step 1, so that the memory of a run is known.

* The kernel is torch's fused one, which passes once over parameters, gradients and moments and
  allocates nothing (on one core 2 to 4 times faster than torch's default). Where there is none,
  torch chooses.
* A class by its path (:class:`OptimizerClass`) makes its state in its first step.

Not here: the update (``engine.step.optimizer``), the work that ranks may share
(``engine.step.independence``).
"""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from lockstep.domain.spec.fields import Section
from lockstep.domain.spec.optimizer import SGD, AdamW, OptimizerClass
from lockstep.engine.model.layout import is_dense
from lockstep.engine.runtime.errors import BadSpecError, EngineError, describe

Groups = list[dict[str, Any]]
_KERNEL = ("fused", "foreach", "capturable")
"""Keys of a group that select the implementation, not the computation."""


class Kernel(NamedTuple):
    """One kind of optimizer."""

    build: Callable[[Any, Groups], torch.optim.Optimizer]
    """Makes the optimizer of a section over groups of parameters."""
    state: Callable[[dict[str, Any], nn.Parameter], dict[str, Any]] | None
    """State of a group's parameter before the first step; None if the first step makes it."""


def build(section: Section, groups: Groups) -> torch.optim.Optimizer:
    """Make the optimizer of a section, without the state that :func:`allocate` makes."""
    optimizer = KERNELS[type(section)].build(section, groups)
    optimizer.register_load_state_dict_pre_hook(_keep_kernel)
    _keep_formats(optimizer)
    return optimizer


def allocate(section: Section, optimizer: torch.optim.Optimizer) -> None:
    """Make the state that the first step would make, of zeros.

    torch's fused SGD needs it, too: if its first step were masked, its momentum would be whatever
    was in memory.
    """
    first = KERNELS[type(section)].state
    if first is None:
        return
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.requires_grad and (state := first(group, parameter)):
                optimizer.state[parameter] = state


def _keep_kernel(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
    """Take the hyperparameters from a checkpoint and the kernel from this run.

    The checkpoint may be of another device or version.
    """
    mine, theirs = optimizer.param_groups, state["param_groups"]
    if len(mine) != len(theirs):
        return state  # The next call refuses it with a message of its own.
    groups = [
        saved | {name: own[name] for name in _KERNEL if name in own}
        for own, saved in zip(mine, theirs, strict=True)
    ]
    return state | {"param_groups": groups}


def _keep_formats(optimizer: torch.optim.Optimizer) -> None:
    """Let loaded state keep its number format.

    ``load_state_dict`` converts it to the parameter's: a product in float32 would go on in float64,
    and one of bf16 parameters would be rounded.
    """
    loaded: list[dict[str, Any]] = []

    def before(_: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        loaded[:] = [state]

    def after(optimizer: torch.optim.Optimizer) -> None:
        state = loaded.pop()
        names = [name for group in state["param_groups"] for name in group["params"]]
        parameters = [each for group in optimizer.param_groups for each in group["params"]]
        for name, parameter in zip(names, parameters, strict=True):
            for key, value in state["state"].get(name, {}).items():
                now = optimizer.state[parameter].get(key)
                if (
                    isinstance(value, Tensor)
                    and isinstance(now, Tensor)
                    and value.dtype != now.dtype
                ):
                    optimizer.state[parameter][key] = value.to(now.device, copy=True)

    optimizer.register_load_state_dict_pre_hook(before)
    optimizer.register_load_state_dict_post_hook(after)


# --- AdamW


def _adamw(section: AdamW, groups: Groups) -> torch.optim.Optimizer:
    return torch.optim.AdamW(
        groups,
        lr=section.lr,
        betas=section.betas,
        eps=section.eps,
        weight_decay=section.weight_decay,
        fused=_fused(groups),
    )


def _adamw_state(group: dict[str, Any], parameter: nn.Parameter) -> dict[str, Any]:
    device = parameter.device if group["fused"] else "cpu"
    state = {
        "step": torch.zeros((), dtype=torch.float32, device=device),
        "exp_avg": _zeros_like(parameter),
        "exp_avg_sq": _zeros_like(parameter),
    }
    return state | ({"max_exp_avg_sq": _zeros_like(parameter)} if group["amsgrad"] else {})


# --- SGD


def _sgd(section: SGD, groups: Groups) -> torch.optim.Optimizer:
    return torch.optim.SGD(
        groups,
        lr=section.lr,
        momentum=section.momentum,
        nesterov=section.nesterov,
        weight_decay=section.weight_decay,
        fused=None if _is_sharded(groups) else _fused(groups),
    )


def _sgd_state(group: dict[str, Any], parameter: nn.Parameter) -> dict[str, Any]:
    return {"momentum_buffer": _zeros_like(parameter)} if group["momentum"] else {}


# --- a class by its path


def _by_path(section: OptimizerClass, groups: Groups) -> torch.optim.Optimizer:
    kind = optimizer_class(section.name)
    arguments = {"lr": section.lr, **section.args}
    if section.weight_decay is not None:
        arguments["weight_decay"] = section.weight_decay
    try:
        made: torch.optim.Optimizer = kind(groups, **arguments)
        return made
    except Exception as error:
        raise BadSpecError(
            f"{section.name} refuses its arguments: {describe(error)}: correct "
            "train.optimizer.args, or the groups of param_groups()",
        ) from error


def optimizer_class(path: str) -> Any:
    """Import an optimizer class.

    Raises
    ------
    EngineError
        ``bad_spec``: there is no such class, or it cannot be driven with one gradient a step.
    """
    module, _, name = path.rpartition(".")
    try:
        found = importlib.import_module(module)
    except Exception as error:
        raise _refused(path, f"the import of {module} failed: {describe(error)}") from error
    kind = getattr(found, name, None)
    if kind is None:
        near = difflib.get_close_matches(name, dir(found), n=1)
        hint = f": did you mean {module}.{near[0]}?" if near else ""
        raise _refused(path, f"{module} has no {name}{hint}")
    if not (isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)):
        raise _refused(path, "it is not a subclass of torch.optim.Optimizer")
    closure = inspect.signature(kind.step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise _refused(
            path, "it computes the loss several times in a step, and a batch has one gradient"
        )
    return kind


def _refused(path: str, why: str) -> EngineError:
    return BadSpecError(f"train.optimizer.name is {path}, and {why}")


def _fused(groups: Groups) -> bool | None:
    """Return True for the fused kernel, and None for torch's choice.

    No fused kernel supports complex numbers or tensors with gaps in memory.
    """
    parameters = [each for group in groups for each in group["params"]]
    return all(each.is_floating_point() and is_dense(each) for each in parameters) or None


def _is_sharded(groups: Groups) -> bool:
    """Return whether parameters are sharded: the fused kernel of SGD rejects these."""
    return any(isinstance(each, DTensor) for group in groups for each in group["params"])


def _zeros_like(parameter: Tensor) -> Tensor:
    return torch.zeros_like(parameter, memory_format=torch.preserve_format, requires_grad=False)


KERNELS: Final[dict[type[Section], Kernel]] = {
    AdamW: Kernel(_adamw, _adamw_state),
    SGD: Kernel(_sgd, _sgd_state),
    OptimizerClass: Kernel(_by_path, None),
}
