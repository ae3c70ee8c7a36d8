"""What a run cannot train without: parameters to move, a gradient for each of them, and samples that count.

A rank whose last micro-batch leaves a parameter out cannot share its gradient, so the run ends there, on all ranks and
with the parameters' names.

Not here: how a strategy notices (``engine.strategies.base.Strategy.finish_reduction``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from torch import nn

from domain.outcomes import Reason
from engine.errors import EngineError
from engine.ranks import Ranks

WEIGHTLESS_IN_A_ROW_MAX = 100
NAMED_MAX = 5
"""Parameters of a rank that an error names; the rest is counted."""


def require_trainable(model: nn.Module) -> None:
    """Some parameter must be there to be trained.

    Raises
    ------
    EngineError
        ``bad_spec``.
    """
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise EngineError(
            Reason.BAD_SPEC,
            "model() has no parameter that requires a gradient, so there is nothing to train: unfreeze some with "
            "requires_grad_(True)",
        )


@contextmanager
def arrivals(model: nn.Module) -> Iterator[list[nn.Parameter]]:
    """The parameters in the order in which their gradients come."""
    arrived: list[nn.Parameter] = []
    hooks = [
        parameter.register_post_accumulate_grad_hook(arrived.append)  # type: ignore[no-untyped-call]
        for parameter in model.parameters()
        if parameter.requires_grad
    ]
    try:
        yield arrived
    finally:
        for hook in hooks:
            hook.remove()


def names_of_missing(model: nn.Module, arrived: list[nn.Parameter]) -> list[str]:
    """Names of the trainable parameters that are not among ``arrived``."""
    there = {id(parameter) for parameter in arrived}
    return [
        name for name, parameter in model.named_parameters() if parameter.requires_grad and id(parameter) not in there
    ]


def require_none_missing(model: nn.Module) -> None:
    """Every trainable parameter must have a gradient now, after a pass through the whole loss.

    Raises
    ------
    EngineError
        ``bad_spec``, with the names.
    """
    missing = names_of_missing(model, [parameter for parameter in model.parameters() if parameter.grad is not None])
    if missing:
        raise EngineError(
            Reason.BAD_SPEC,
            f"the loss does not depend on {_listed(missing)}: use these parameters in every loss, or freeze them with "
            "requires_grad_(False)",
        )


def fail_unreduced(ranks: Ranks, step: int, missing: list[str]) -> NoReturn:
    """End the run over a step whose gradient some rank could not share. All ranks must call this.

    Parameters
    ----------
    ranks : Ranks
    step : int
        Counted from 1.
    missing : list of str
        Names of this rank's parameters without a gradient, none if it is not its fault.
    """
    found = {rank: names for rank, names in enumerate(ranks.gather(missing)) if names}
    where = "; ".join(f"rank {rank}: {_listed(names)}" for rank, names in found.items())
    raise EngineError(
        Reason.BAD_SPEC,
        f"in step {step} some parameters got no gradient in the last micro-batch ({where}), so their gradients could "
        "not be shared: use every parameter in every loss (adding 0.0 * parameter.sum() is enough), or freeze them with "
        "requires_grad_(False)",
    )


class Weighed:
    """Some batch must have weight now and then, or the run trains nothing.

    One without is legal, and so are a few; in so many shuffled batches one after the other it is the task's mistake.

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
            raise EngineError(
                Reason.BAD_SPEC,
                f"{self._name}: weight() counted nothing in {self._in_a_row} batches in a row, so nothing was trained on "
                "them: let it return how many units the loss of a batch adds up (its samples, or its tokens that are "
                "not masked), and look at what masks them all",
            )


def _listed(names: list[str]) -> str:
    rest = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {rest} more" if rest > 0 else "")
