"""Requirements of any run: trainable parameters, and batches that have weight.

Not here: parameters that no sample uses (``engine.preflight.usage``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from torch import Tensor, nn

from lockstep.engine.runtime.errors import BadSpecError, listed

WEIGHTLESS_IN_A_ROW_MAX = 100


def require_trainable(model: nn.Module) -> None:
    """Some parameter must be there to be trained.

    Raises
    ------
    EngineError
        ``bad_spec``.
    """
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise BadSpecError(
            "the model has no parameter that requires a gradient, so there is nothing to train: "
            "unfreeze some with requires_grad_(True)",
        )


@contextmanager
def arrivals(model: nn.Module, *, drop: bool = False) -> Iterator[list[nn.Parameter]]:
    """Collect the parameters in the order in which their gradients arrive.

    Parameters
    ----------
    model : nn.Module
    drop : bool
        Whether each gradient is dropped at once, so that no second copy of the model's size is
        held.
    """
    arrived: list[nn.Parameter] = []

    def note(parameter: nn.Parameter) -> None:
        arrived.append(parameter)
        if drop:
            parameter.grad = None

    hooks = [
        parameter.register_post_accumulate_grad_hook(note)  # type: ignore[no-untyped-call]
        for parameter in model.parameters()
        if parameter.requires_grad
    ]
    try:
        yield arrived
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def without_gradients(weights: dict[str, Tensor]) -> Iterator[None]:
    """Refuse a backward inside the context that reaches one of these weights of the task.

    They would never be updated, and are in no checkpoint. A backward inside ``loss()`` is the
    task's own affair, and so is a tensor that ``loss()`` makes at each call.

    Raises
    ------
    EngineError
        ``bad_spec``, with the names.
    """
    found: set[str] = set()
    hooks = [
        cast("Any", weight).register_post_accumulate_grad_hook(lambda _, name=name: found.add(name))
        for name, weight in weights.items()
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
    if found:
        raise BadSpecError(
            f"loss() gives a gradient to {listed(sorted(found))}, which is not a part of "
            "model(), so it is neither trained nor saved: make it a part of what model() returns, "
            "or freeze it with requires_grad_(False)",
        )


def names_of_missing(model: nn.Module, arrived: list[nn.Parameter]) -> list[str]:
    """Names of the trainable parameters that are not among ``arrived``."""
    there = {id(parameter) for parameter in arrived}
    return [
        name
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and id(parameter) not in there
    ]


class WeightedLoss:
    """Some batch must have weight now and then, or the run trains nothing.

    One without is legal, and so are a few; in so many shuffled batches one after the other it is
    the task's mistake.

    Parameters
    ----------
    name : str
        The task, as the spec names it.
    """

    def __init__(self, name: str):
        self._name = name
        self._in_a_row = 0

    def judge(self, *, counted: bool) -> None:
        """A step's batch had weight, or had none. Equal on all ranks.

        Raises
        ------
        EngineError
            ``bad_spec``, after too many without.
        """
        self._in_a_row = 0 if counted else self._in_a_row + 1
        if self._in_a_row == WEIGHTLESS_IN_A_ROW_MAX:
            raise BadSpecError(
                f"{self._name}: weight() returned 0 for {self._in_a_row} batches in a row, so "
                "they did not contribute to training: return the number of units that the loss "
                "of a batch sums over (its samples, or its unmasked tokens), and check which "
                "mask removes all of them",
            )
