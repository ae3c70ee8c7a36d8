"""Check of an optimizer class: how far its work can be divided between ranks.

``zero1`` gives each rank some of the parameters, and ``fsdp`` some rows of each. The result is that
of one process only if the update of a parameter, or of a row, does not depend on the others. Small
tensors show it: three updates of all together, of each parameter alone, and of rows alone. The
class must also go on from its ``state_dict()`` with the same numbers, because a job resumes.

Not here: kinds that the engine makes itself (``engine.step.kernels``), which are elementwise.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.domain.life.outcomes import Reason
from lockstep.engine.runtime.errors import EngineError, describe
from lockstep.engine.runtime.randomness import unchanged_generators

_ROWS, _COLUMNS = 4, 3
_UPDATES = 3
_TOLERANCE = 1e-12
"""Relative, in float64. Classes that combine rows differ by 1e-2."""

Build = Callable[[list[dict[str, Any]]], torch.optim.Optimizer]


def check_independence(name: str, build: Build, dimensions: Iterable[int], needs: str) -> None:
    """Refuse a class whose result would depend on the number of ranks, or on a restart.

    Parameters
    ----------
    name : str
        The class, for the message.
    build : callable
        Makes the optimizer over groups of parameters.
    dimensions : iterable of int
        Numbers of dimensions of the model's parameters.
    needs : str
        Independence that the strategy requires: ``""``, ``parameters`` or ``elements``.

    Raises
    ------
    EngineError
        ``bad_spec``.
    """
    shapes = [(_ROWS, *[_COLUMNS] * (n - 1)) for n in sorted(set(dimensions)) if n > 0] or [()]
    with unchanged_generators(torch.device("cpu")):
        whole = _updated(name, build, [shapes * 2], resumes=False)
        if not _same(whole, _updated(name, build, [shapes * 2], resumes=True)):
            raise EngineError(
                Reason.BAD_SPEC,
                f"{name} gives other numbers after a restart, because its state_dict() lacks some "
                "of its state: keep it in self.state, or choose another optimizer",
            )
        if not needs:
            return
        parts = [[shape] for shape in shapes * 2]
        alone = _updated(name, build, parts, resumes=False)
        if not _same(whole, alone):
            raise _refused(name, "a parameter depends on the other parameters", "ddp")
        if needs == "elements" and not _same(whole, _rows_alone(name, build, shapes * 2)):
            raise _refused(name, "a row of a parameter depends on the other rows", "ddp or zero1")


def _refused(name: str, why: str, others: str) -> EngineError:
    return EngineError(
        Reason.BAD_SPEC,
        f"{name} cannot be divided between ranks, because its update of {why} (measured on small "
        f"tensors): use strategy {others}, or another optimizer",
    )


def _values(index: int, shape: tuple[int, ...], update: int) -> Tensor:
    """Return a starting value (``update`` -1) or a gradient, equal for each way of division."""
    generator = torch.Generator().manual_seed(1000 * index + update + 1)
    return torch.randn(shape, dtype=torch.float64, generator=generator)


def _updated(
    name: str, build: Build, parts: list[list[tuple[int, ...]]], *, resumes: bool
) -> list[Tensor]:
    """Return all parameters after the updates; each part has an optimizer of its own."""
    found: list[Tensor] = []
    for part in parts:
        indices = range(len(found), len(found) + len(part))
        slices = [(index, shape, slice(None)) for index, shape in zip(indices, part, strict=True)]
        found += _trained(name, build, slices, resumes=resumes)
    return found


def _rows_alone(name: str, build: Build, shapes: list[tuple[int, ...]]) -> list[Tensor]:
    """Return all parameters, of which two optimizers update the upper and the lower rows."""
    halves = (slice(0, _ROWS // 2), slice(_ROWS // 2, None))
    upper, lower = (
        _trained(name, build, [(i, shape, half) for i, shape in enumerate(shapes)], resumes=False)
        for half in halves
    )
    return [
        torch.cat([one, other]) if one.ndim else one
        for one, other in zip(upper, lower, strict=True)
    ]


def _trained(
    name: str,
    build: Build,
    slices: list[tuple[int, tuple[int, ...], slice]],
    *,
    resumes: bool,
) -> list[Tensor]:
    def cut(update: int) -> list[Tensor]:
        values = [(_values(index, shape, update), rows) for index, shape, rows in slices]
        return [value[rows].clone() if value.ndim else value for value, rows in values]

    parameters = [nn.Parameter(value) for value in cut(-1)]
    optimizer = build([{"params": parameters}])
    for update in range(_UPDATES):
        if resumes and update:
            state = copy.deepcopy(optimizer.state_dict())
            optimizer = build([{"params": parameters}])
            optimizer.load_state_dict(state)
        for parameter, gradient in zip(parameters, cut(update), strict=True):
            parameter.grad = gradient
        try:
            optimizer.step()
        except Exception as error:
            raise EngineError(
                Reason.BAD_SPEC,
                f"{name} failed in an update of small tensors, before step 1: {describe(error)}",
            ) from error
    return [parameter.detach() for parameter in parameters]


def _same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(
        float((a - b).abs().max()) <= _TOLERANCE * (1 + float(a.abs().max()))
        for a, b in zip(one, other, strict=True)
    )
