"""Copy of model and task for the additivity check.

Losses can be evaluated on it without side effects.

The copy computes in another number format and without dropout. The task's attributes are copied as
far as a loss may change them: tensors, modules, lists, mappings and sets. Datasets and the like are
shared.

Not here: the evaluated losses (``engine.preflight.additivity_check``).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd
from torch.utils._python_dispatch import TorchDispatchMode

from lockstep.engine.data.task_checks import require_dense
from lockstep.engine.model.objective import as_terms
from lockstep.engine.preflight.hidden_state import HiddenState, held_by
from lockstep.engine.step.gradient import to_device
from lockstep.engine.step.gradient_guard import GradientGuard
from lockstep.engine.task.dropout import Dropout
from lockstep.engine.task.interface import Batch, Task

_SAME: Final = 1024
"""Number of roundings by which two calls of one loss may differ: a device may add in any order."""


class ProbeCopy:
    """Copies of a task and its model.

    Parameters
    ----------
    task : Task
    model : nn.Module
    dtype : torch.dtype
        Floating point numbers of model, task and batches are converted to it.
    """

    def __init__(self, task: Task, model: nn.Module, dtype: torch.dtype):
        self.dtype = dtype
        self.names: tuple[str, ...] = ()
        """Names of the loss's terms; set by its first computation."""
        memo: dict[int, Any] = {}
        self.model = copy.deepcopy(model, memo).to(dtype)
        self._window = GradientGuard(self.model)
        self.task = copy.copy(task)
        for name, value in vars(task).items():
            if isinstance(value, Tensor | nn.Module):
                # The memo is shared, so parts of the model that the task holds become the same
                # parts of the copy.
                self.task.__dict__[name] = _converted(copy.deepcopy(value, memo), dtype)
            elif isinstance(value, list | dict | set):
                self.task.__dict__[name] = copy.copy(value)
        self.device = next(model.parameters()).device
        self.draws_by_itself = False
        """True if some loss drew from a generator that the task or the model holds."""
        for module in self.model.modules():
            if isinstance(module, _DropoutNd | Dropout):
                module.eval()
        self._held = self._hold()

    def settle(self) -> None:
        """Put everything that may draw into eval mode. Normalisation layers stay in train mode."""
        norms = [
            module
            for module in self.model.modules()
            if isinstance(module, _NormBase) and module.training
        ]
        self.model.eval()
        for module in norms:
            module.train()
        self._held = self._hold()  # Some modules store their mode in attributes of their own.

    def batch(self, batch: Batch) -> Batch:
        """Return a batch on the device, in the copy's number format."""
        return _mapped(to_device(batch, self.device), self.dtype)

    def parameters(self) -> list[nn.Parameter]:
        """Trainable parameters."""
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    def terms(self, batch: Batch) -> dict[str, Tensor]:
        """Return the loss by term.

        State that the call changes is restored, so each call starts from the same state.
        """
        try:
            terms = as_terms(self.task.loss(self.model, batch))
        finally:
            self._put_back()
        self.names = tuple(terms)
        return terms

    def gradient(self, batch: Batch, term: str | None = None) -> tuple[list[Tensor], Tensor]:
        """Add this batch's gradient.

        Return the sum so far and the batch's losses of shape (terms,).

        Parameters
        ----------
        batch : Batch
        term : str, optional
            The only term that counts.
        """
        seen = self._window.look()
        found = self.terms(batch)
        terms = torch.stack(list(found.values()) if term is None else [found[term]])
        self._window.require_unchanged(
            seen
        )  # Otherwise a loss that drops gradients would not appear additive.
        # Not autograd.grad: checkpointing of the reentrant kind refuses it. One term may be a
        # number for the log.
        if term is None or terms.requires_grad:
            terms.sum().backward()  # type: ignore[no-untyped-call]
        require_dense(self.model)
        gradient = [
            torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            for parameter in self.parameters()
        ]
        return gradient, terms.detach().double()

    def repeats(self, batch: Batch) -> bool:
        """Return whether two evaluations of a batch's loss are equal."""
        once, twice = (torch.stack(list(self.terms(batch).values())).detach() for _ in range(2))
        return torch.allclose(
            once, twice, rtol=_SAME * torch.finfo(once.dtype).eps, atol=0.0, equal_nan=True
        )

    def _hold(self) -> list[HiddenState]:
        """Return the state without trainable parameters, which the gradient guard checks."""
        return held_by(
            ("", self.model), ("task", self.task), skip=lambda tensor: tensor.requires_grad
        )

    def _put_back(self) -> None:
        for held in self._held:
            if held.changed():
                self.draws_by_itself |= held.draws
                held.put_back()

    def forget(self) -> None:
        """Start a new gradient."""
        for parameter in self.model.parameters():
            parameter.grad = None

    def coarsest(self, batch: Batch) -> torch.dtype:
        """Return the number format with the fewest bits in which a part of the loss is computed."""
        with _Formats() as formats:
            self.terms(batch)
        return min(formats.seen, key=lambda dtype: dtype.itemsize, default=self.dtype)


class _Formats(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch does not type it
    """Records the floating-point formats of the results of operations."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # neither this
        self.seen: set[torch.dtype] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for each in result if isinstance(result, list | tuple) else [result]:
            if isinstance(each, Tensor) and each.is_floating_point():
                self.seen.add(each.dtype)
        return result


def _converted(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, nn.Module):
        return value.to(dtype)
    return value.to(dtype) if value.is_floating_point() else value


def _mapped(batch: Batch, dtype: torch.dtype) -> Any:
    """Return a batch with its floating point tensors in another format."""
    if isinstance(batch, Tensor):
        return _converted(batch, dtype)
    if isinstance(batch, Mapping):
        return {key: _mapped(value, dtype) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(_mapped(value, dtype) for value in batch))
    if isinstance(batch, tuple | list):
        return type(batch)(_mapped(value, dtype) for value in batch)
    return batch
