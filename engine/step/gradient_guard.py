"""Guard against interference of a task with the gradient of a step (contract C21).

From the first forward of a step to its update, gradients and parameters belong to the engine. A
``loss`` that calls ``backward()`` or ``zero_grad()``, an optimizer of the task that steps, a batch
inside another batch: each would silently train on another gradient than the batch's. These raise an
error.

Checking every parameter in every micro-batch would cost too much, so only the last one is checked.
torch's own hook, called before any optimizer's step, detects optimizers.

Not here: parameters without a gradient (``engine.step.gradient``), differences between ranks
(``engine.step.replicas``).
"""

from __future__ import annotations

import weakref
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from lockstep.engine.runtime.errors import BadSpecError, EngineError

Seen = tuple[Tensor | None, int]
"""A parameter's gradient, and the number of changes to either."""
_GRADIENTS: Final = (
    "the gradients changed while loss() ran, by backward(), zero_grad() or .grad: only return "
    "the loss; the engine computes its gradient"
)


class GradientGuard:
    """Watches the parameters of one model while a step is accumulated.

    Parameters
    ----------
    model : nn.Module
    """

    def __init__(self, model: nn.Module):
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._watched = trained[-1] if trained else torch.zeros(())
        self._model = model
        self._open = False
        self._kept: Tensor | None = None
        self._hook: RemovableHandle | None = None

    def watch_optimizers(self) -> None:
        """Notice the steps of all optimizers, until ``close``."""
        mine = weakref.ref(
            self
        )  # A run that fails leaves its hook behind; it must not keep the model.

        def before_a_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            window = mine()
            if window is not None and window._open:
                window._refuse_step(optimizer)

        self._hook = register_optimizer_step_pre_hook(before_a_step)

    def open(self) -> None:
        """A step begins."""
        if self._open:
            raise _illegal("a batch was started inside another one: loss() must not train")
        self._open = True

    def shut(self) -> None:
        """The step's gradient is whole, or given up."""
        self._open = False
        self._kept = self._watched.grad

    def require_kept(self) -> None:
        """The gradient must still be there when it is used."""
        if self._watched.grad is not self._kept:
            raise _illegal(
                "the gradients were removed or replaced between the last backward and the update"
            )

    def look(self) -> Seen:
        """Return the state that a forward must not change."""
        gradient = self._watched.grad
        # Versions only grow: their sum stays as long as both do.
        return gradient, self._watched._version + (0 if gradient is None else gradient._version)

    def require_unchanged(self, before: Seen) -> None:
        """Refuse a ``loss`` that changed gradients or parameters since ``before``.

        Half a microsecond, with ``look``.
        """
        gradient, versions = self.look()
        if gradient is not before[0]:
            raise _illegal(_GRADIENTS)
        if versions != before[1]:
            raise _illegal(
                f"{_GRADIENTS}; or it changed parameters, which only the engine's optimizer may "
                "update (nn.Embedding with max_norm changes them, too)"
            )

    def close(self) -> None:
        """Stop watching."""
        self._open = False
        if self._hook is not None:
            self._hook.remove()

    def _refuse_step(self, optimizer: torch.optim.Optimizer) -> None:
        mine = {id(parameter) for parameter in self._model.parameters()}
        if any(
            id(parameter) in mine
            for group in optimizer.param_groups
            for parameter in group["params"]
        ):
            raise _illegal(
                f"an optimizer ({type(optimizer).__name__}) of the task updated the model before "
                "the batch's gradient was complete: set train.optimizer instead"
            )


def _illegal(what: str) -> EngineError:
    return BadSpecError(what)
