"""Check of an optimizer class: how far its work can be divided between ranks.

``zero1`` gives each rank some of the parameters, and ``fsdp`` some rows of each. The result is that
of one process only if the update of a parameter, or of a row, does not depend on the others. Small
tensors show it: some updates of all together, of each parameter alone, and of rows alone.

* They are on the model's device and have two sizes, because some classes combine rows or blocks of
  large tensors only.
* They have float64, or the model's format where the class fails with it, and the learning rate 1: a
  small one would hide a difference behind the parameters' size.
* The class must also go on from its ``state_dict()`` with the same numbers, because a job resumes.

Not here: kinds that the engine makes itself (``engine.step.kernels``), which are elementwise.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn

from lockstep.domain.life.outcomes import Reason
from lockstep.engine.runtime.errors import BadSpecError, EngineError, describe
from lockstep.engine.runtime.randomness import seed_device, seed_host, unchanged_generators

_SMALL: Final = {1: (4,), 2: (4, 3), 3: (4, 3, 3), 4: (4, 3, 3, 3)}
_LARGE: Final = {1: (9_002,), 2: (258, 136), 3: (258, 16, 9), 4: (258, 16, 3, 3)}
"""Above 4,096 numbers and 128 rows, with halves that end within a block of 2,048."""
_UPDATES = 12
"""Some classes combine parameters every tenth update."""
_ROUNDINGS = 4_096
"""Tolerance: 1e-12 in float64, 5e-4 in float32. With the learning rate 1, classes that combine rows
differ by more than 1e-2."""

Shape = tuple[int, ...]
Build = Callable[[list[dict[str, Any]]], torch.optim.Optimizer]


def check_independence(name: str, build: Build, parameters: Sequence[Tensor], needs: str) -> None:
    """Refuse a class whose result would depend on the number of ranks, or on a restart.

    Parameters
    ----------
    name : str
        The class, for the message.
    build : callable
        Makes the optimizer over groups of parameters.
    parameters : sequence of Tensor
        The model's.
    needs : str
        Independence that the strategy requires: ``""``, ``parameters`` or ``elements``.

    Raises
    ------
    EngineError
        ``bad_spec``.
    """
    like = parameters[0].detach()
    exact = like.new_empty(0, dtype=torch.promote_types(like.dtype, torch.float64))
    shapes = _shapes({parameter.ndim for parameter in parameters})
    try:
        _check(name, build, exact, shapes, needs)
    except _UpdateFailedError:
        if like.dtype == exact.dtype:
            raise
        least = like.new_empty(0, dtype=torch.promote_types(like.dtype, torch.float32))
        _check(name, build, least, shapes, needs)


class _UpdateFailedError(EngineError):
    """The class raised in an update."""


def _check(name: str, build: Build, like: Tensor, shapes: list[Shape], needs: str) -> None:
    values = _Values(like)
    with unchanged_generators(like.device):
        whole = _updated(name, build, values, [shapes], resumes=False)
        if not _same(whole, _updated(name, build, values, [shapes], resumes=True)):
            raise BadSpecError(
                f"{name} gives other numbers after a restart, because its state_dict() lacks some "
                "of its state: keep it in self.state, or choose another optimizer",
            )
        if not needs:
            return
        alone = _updated(name, build, values, [[shape] for shape in shapes], resumes=False)
        if not _same(whole, alone):
            raise _refused(name, "a parameter depends on the other parameters", "ddp")
        if needs == "elements" and not _same(whole, _rows_alone(name, build, values, shapes)):
            raise _refused(name, "a row of a parameter depends on the other rows", "ddp or zero1")


def _refused(name: str, why: str, others: str) -> EngineError:
    return BadSpecError(
        f"{name} cannot be divided between ranks, because its update of {why} (measured on small "
        f"tensors): use strategy {others}, or another optimizer",
    )


def _shapes(dimensions: set[int]) -> list[Shape]:
    """Return two small tensors and a large one for each number of dimensions."""
    found: list[Shape] = []
    for count in sorted(dimensions):
        small, large = _SMALL.get(min(count, 4), ()), _LARGE.get(min(count, 4), ())
        more = (1,) * (count - 4)
        found += [(*small, *more), (*small, *more), (*large, *more)]
    return found


class _Values:
    """Starting values and gradients, equal for each way of division and drawn once."""

    def __init__(self, like: Tensor):
        self.like = like
        self._drawn: dict[tuple[int, int], Tensor] = {}

    def of(self, index: int, shape: Shape, update: int) -> Tensor:
        """Return a starting value (``update`` -1) or a gradient. It must not be changed."""
        if (index, update) not in self._drawn:
            generator = torch.Generator().manual_seed(1000 * index + update + 1)
            value = torch.randn(shape, dtype=torch.float64, generator=generator)
            self._drawn[index, update] = value.to(self.like.device, self.like.dtype)
        return self._drawn[index, update]


def _updated(
    name: str, build: Build, values: _Values, parts: list[list[Shape]], *, resumes: bool
) -> list[Tensor]:
    """Return all parameters after the updates; each part has an optimizer of its own."""
    found: list[Tensor] = []
    for part in parts:
        indices = range(len(found), len(found) + len(part))
        slices = [(index, shape, slice(None)) for index, shape in zip(indices, part, strict=True)]
        found += _trained(name, build, values, slices, resumes=resumes)
    return found


def _rows_alone(name: str, build: Build, values: _Values, shapes: list[Shape]) -> list[Tensor]:
    """Return all parameters, of which two optimizers update the upper and the lower rows."""
    middles = [shape[0] // 2 if shape else None for shape in shapes]
    upper, lower = (
        _trained(
            name,
            build,
            values,
            [(i, shape, halves[i]) for i, shape in enumerate(shapes)],
            resumes=False,
        )
        for halves in (
            [slice(None, middle) for middle in middles],
            [slice(middle, None) for middle in middles],
        )
    )
    return [
        torch.cat([one, other]) if one.ndim else one
        for one, other in zip(upper, lower, strict=True)
    ]


def _trained(
    name: str,
    build: Build,
    values: _Values,
    slices: list[tuple[int, Shape, slice]],
    *,
    resumes: bool,
) -> list[Tensor]:
    def cut(update: int) -> list[Tensor]:
        drawn = [(values.of(index, shape, update), rows) for index, shape, rows in slices]
        return [(value[rows] if value.ndim else value).clone() for value, rows in drawn]

    parameters = [nn.Parameter(value) for value in cut(-1)]
    optimizer = build([{"params": parameters}])
    for update in range(_UPDATES):
        if resumes and update:
            state = copy.deepcopy(optimizer.state_dict())
            optimizer = build([{"params": parameters}])
            optimizer.load_state_dict(state)
        for parameter, gradient in zip(parameters, cut(update), strict=True):
            parameter.grad = gradient
        for group in optimizer.param_groups:
            group["lr"] = 1.0
        seed_host(update)  # As the run does.
        seed_device(update, values.like.device)
        try:
            optimizer.step()
        except Exception as error:
            raise _UpdateFailedError(
                Reason.BAD_SPEC,
                f"{name} failed in an update of small tensors, before step 1: {describe(error)}",
            ) from error
    return [parameter.detach() for parameter in parameters]


def _same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(
        float((a - b).abs().max())
        <= _ROUNDINGS * torch.finfo(a.dtype).eps * (1 + float(a.abs().max()))
        for a, b in zip(one, other, strict=True)
    )
