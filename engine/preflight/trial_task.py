"""Task and model on which the losses of a check are computed without a trace.

A small model is copied and computes in float64, with noise on its weights. A large one computes as
it is, in place. In both, dropout of torch is in eval mode, ``lockstep.Dropout`` trains, and
parameters that are zero throughout are filled, because they would hide all that lies behind them. A
copy of the task holds its tensors, modules, lists, mappings and sets; datasets and the like are
shared. State that a call changes is put back after it.

Not here: the comparison of the losses (``engine.preflight.comparison``).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

from lockstep.engine.data.task_checks import require_dense
from lockstep.engine.model.modes import evaluating
from lockstep.engine.model.objective import as_terms
from lockstep.engine.model.precision import FormatRecorder
from lockstep.engine.parallel.stages import StageEnd
from lockstep.engine.runtime.device import to_device
from lockstep.engine.state.inventory import Inventory
from lockstep.engine.state.snapshot import Snapshot
from lockstep.engine.state.walk import GENERATOR
from lockstep.engine.step.gradient_guard import GradientGuard
from lockstep.engine.task.copies import independent
from lockstep.engine.task.dropout import Dropout, Masks
from lockstep.engine.task.interface import Batch, Task

NOISE: Final = 0.1
"""Relative noise on the weights of a copy: a gate at its first value may hide a coupling."""
FILLED: Final = 0.02
"""Size of the numbers in place of zeros."""
SCALED_MAX: Final = 1_000_000
"""Numbers of a parameter above which ``scale`` leaves it, in place: its value is kept."""
WATCHED_ABOVE: Final = 10_000_000
"""Numbers of a frozen tensor above which it is not copied, in place. A checksum watches it."""
_SAME: Final = 1024
"""Number of roundings by which two calls of one loss may differ: a device may add in any order."""


@dataclass(frozen=True)
class Piece:
    """Some samples of a division, collated."""

    batch: Batch
    """On the host."""
    samples: int
    position: int
    """The first sample's position in the division; a sample has the same one in each division."""


def divided(task: Task, samples: list[Any], sizes: Sequence[int]) -> list[Piece]:
    """Collate samples in pieces of these sizes."""
    starts = [0, *accumulate(sizes)]
    return [
        # A copy, because some collate functions change their arguments.
        Piece(task.collate(independent(samples[start : start + size])), size, start)
        for start, size in zip(starts, sizes, strict=False)
    ]


class TrialTask:
    """A task and its model.

    Parameters
    ----------
    task : Task
    model : nn.Module
        In training mode, on its device, without gradients.
    dtype : torch.dtype or None
        Floating point numbers of the copies; None to compute in place.
    seed : int
        The job's.
    """

    def __init__(self, task: Task, model: nn.Module, dtype: torch.dtype | None, *, seed: int):
        memo: dict[int, Any] = {}
        self._in_place = dtype is None
        self.model = model if dtype is None else copy.deepcopy(model, memo).to(dtype)
        self.task = copy.copy(task)
        for name, value in vars(task).items():
            if isinstance(value, Tensor | nn.Module) and dtype is not None:
                # The memo is shared, so parts of the model that the task holds become the same
                # parts of the copy.
                self.task.__dict__[name] = _converted(copy.deepcopy(value, memo), dtype)
            elif isinstance(value, list | dict | set):
                self.task.__dict__[name] = copy.copy(value)
        self.device = next(model.parameters()).device
        self.names: tuple[str, ...] = ()
        """Names of the loss's terms; set by its first computation."""
        self.draws_by_itself = False
        """True if some loss drew from a generator that the task or the model holds."""
        trained = {n: p for n, p in self.model.named_parameters() if p.requires_grad}
        self.trained = trained
        self._own = {id(parameter) for parameter in trained.values()}
        self.dtype = dtype or min((p.dtype for p in trained.values()), key=lambda d: d.itemsize)
        self._kept: list[tuple[nn.Parameter, Tensor]] = []
        """Parameters that were changed, in order, and their values before."""
        self._guard = GradientGuard(self.model)
        self._masks = Masks(self.model, seed=seed, device=self.device)
        self.inventory = Inventory(self.model, self.task)
        # A hook of the user gets the gradient of a piece, which is no part of the loss; it has a
        # warning of its own. A copy has none.
        self._hooks = _without_hooks(trained.values()) if self._in_place else []
        self._at_start = self.held()
        self._dropping = self.set_to_eval(_DropoutNd)
        self._watched = self._checksums() if self._in_place else {}
        self._fill(seed)

    def settle(self) -> None:
        """Put everything that may draw into eval mode.

        Normalisation layers and the engine's dropout stay in training mode.
        """
        stay = [
            module
            for module in self.model.modules()
            if isinstance(module, _NormBase | Dropout) and module.training
        ]
        self.model.eval()
        for module in stay:
            module.train()
        self._held = self.held()

    def set_to_eval(self, kind: type[nn.Module]) -> list[str]:
        """Set the training modules of a kind to eval mode, and return their names."""
        found = {
            name: module
            for name, module in self.model.named_modules()
            if isinstance(module, kind) and module.training
        }
        for module in found.values():
            module.eval()
        self._held = self.held()
        return list(found)

    def restart(self) -> None:
        """Take the state as it is for that of the start, after a change of the model."""
        self._at_start = self._held = self.held()

    def close(self) -> list[str]:
        """Leave the model as it was. Return the names of large frozen tensors that changed."""
        self.forget()
        self._held = self._at_start
        self._put_back()
        if not self._in_place:
            return []
        with torch.no_grad():
            for parameter, value in reversed(self._kept):
                parameter.data.copy_(value)
        for hooks, kept in self._hooks:
            hooks.update(kept)
        now = self._checksums()
        return [name for name, sum_ in self._watched.items() if now.get(name) != sum_]

    def terms(
        self, piece: Piece, inside: AbstractContextManager[object] | None = None
    ) -> dict[str, Tensor]:
        """Return the loss by term, computed inside a context."""
        try:
            return self._terms(piece, inside)
        finally:
            self._masks.end()
            self._put_back()

    def add(self, piece: Piece, *, sign: float = 1.0, term: str | None = None) -> Tensor:
        """Add the gradient of a piece's loss, and return its losses, of shape (terms,).

        Parameters
        ----------
        piece : Piece
        sign : float
            Factor of the gradient.
        term : str, optional
            The only term that counts.
        """
        seen = self._guard.look()
        try:
            found = self._terms(piece)
            # Otherwise a loss that drops gradients would not appear additive.
            self._guard.require_unchanged(seen)
            terms = torch.stack(list(found.values()) if term is None else [found[term]])
            self._masks.begin_backward()
            # Not autograd.grad: checkpointing of the reentrant kind refuses it. One term may be a
            # number for the log.
            if term is None or terms.requires_grad:
                (terms.sum() * sign).backward()  # type: ignore[no-untyped-call]
        finally:
            self._masks.end()
            self._put_back()
        require_dense(self.model)
        return terms.detach().double()

    def stage(self, piece: Piece) -> tuple[Tensor, Tensor]:
        """Run the forward of one stage of a model, until :meth:`end`.

        Returns its activation, or on the last stage the sum of the losses; and the losses of shape
        (terms,), none before the last stage.
        """
        try:
            terms = torch.stack(list(self._terms(piece).values()))
            output, losses = terms.sum(), terms.detach().double()
        except StageEnd as end:
            output, losses = end.activation, torch.zeros(0)
        self._masks.begin_backward()
        return output, losses

    def end(self) -> None:
        """Put back what a stage has changed."""
        self._masks.end()
        self._put_back()

    @torch.no_grad()
    def evaluate(self, piece: Piece, inside: AbstractContextManager[object]) -> None:
        """Call the evaluation of the task inside a context."""
        with inside:
            self.evaluated(piece)
        self._put_back()

    @torch.no_grad()
    def evaluated(self, piece: Piece) -> Tensor:
        """Return the sums of an evaluation of which the changes of state stay."""
        with evaluating(self.model):
            found = self.task.evaluate(self.model, self._batch(piece))
        return torch.tensor([float(total) for total, _ in found.values()], dtype=torch.float64)

    def called(self, piece: Piece, *, penalize: bool = True) -> tuple[Tensor, Tensor]:
        """Return what one call computes, of which the changes of state stay.

        That is the losses with the penalty, and of each parameter's gradient the norm and the sum,
        of shape (parameters, 2). The penalty comes first: what it reads of a loss is that of the
        call before. Weights are counted, too.
        """
        self.forget()
        self.task.weight(piece.batch)
        penalize &= type(self.task).penalty is not Task.penalty
        penalty = [self.task.penalty(self.model)] if penalize else []
        try:
            terms = [*self._terms(piece).values(), *penalty]
            self._masks.begin_backward()
            if differentiable := [term for term in terms if term.requires_grad]:
                torch.stack(differentiable).sum().backward()  # type: ignore[no-untyped-call]
        finally:
            self._masks.end()
        found = torch.stack([_of_gradient(each) for each in self.trained.values()])
        self.forget()
        return torch.stack([each.detach().to(terms[0]) for each in terms]), found

    def begin(self, piece: Piece) -> Snapshot:
        """Call the loss once, whose effects stay, and return the state before."""
        before = self._held
        try:
            self._terms(piece)
        finally:
            self._masks.end()
        self._held = self.held()
        return before

    def drop_again(self) -> None:
        """Set torch's dropout to training, as in the run."""
        for name in self._dropping:
            self.model.get_submodule(name).train()
        self._held = self.held()

    @torch.no_grad()
    def scale(self, factor: float) -> None:
        """Multiply the weights, until ``close``. In place, the small ones only."""
        for parameter in self.trained.values():
            if not self._in_place:
                parameter.mul_(factor)
            elif parameter.numel() <= SCALED_MAX:
                self._kept.append((parameter, parameter.detach().clone()))
                parameter.mul_(factor)

    def forget(self) -> None:
        """Start a new gradient."""
        for parameter in self.model.parameters():
            parameter.grad = None

    def repeats(self, piece: Piece) -> bool:
        """Return whether two evaluations of a piece's loss are equal."""
        once, twice = (torch.stack(list(self.terms(piece).values())).detach() for _ in range(2))
        return torch.allclose(
            once, twice, rtol=_SAME * torch.finfo(once.dtype).eps, atol=0.0, equal_nan=True
        )

    def coarsest(self, piece: Piece) -> torch.dtype:
        """Return the number format with the fewest bits in which a part of the loss is computed."""
        formats = FormatRecorder()
        self.terms(piece, formats)
        return min(formats.seen, key=lambda dtype: dtype.itemsize, default=self.dtype)

    @torch.no_grad()
    def _fill(self, seed: int) -> None:
        """Fill zero parameters with small positive numbers, and add noise to those of a copy."""
        generator = torch.Generator().manual_seed(seed)
        for parameter in self.trained.values():
            if not parameter.any():
                self._kept.append((parameter, parameter.new_zeros(()).expand_as(parameter)))
                numbers = torch.rand(parameter.shape, generator=generator) * FILLED + FILLED / 2
                parameter.data.copy_(numbers)
            if not self._in_place:
                factors = torch.randn(parameter.shape, generator=generator) * NOISE + 1.0
                parameter.data.mul_(factors.to(parameter))

    def _terms(
        self, piece: Piece, inside: AbstractContextManager[object] | None = None
    ) -> dict[str, Tensor]:
        batch = self._batch(piece)
        self._masks.begin_micro_batch(0, piece.position, piece.samples)
        with inside or nullcontext():
            terms = as_terms(self.task.loss(self.model, batch))
        self.names = tuple(terms)
        return terms

    def _batch(self, piece: Piece) -> Batch:
        # A copy, because a loss may change its batch.
        batch = to_device(independent(piece.batch), self.device)
        return batch if self._in_place else _mapped(batch, self.dtype)

    def held(self) -> Snapshot:
        """Return the state as it is now, to compare with and to put back."""
        return self.inventory.snapshot(self.is_left_out)

    def is_left_out(self, tensor: Tensor) -> bool:
        """Return whether a tensor is not put back: the model's own weights, and large ones.

        The gradient guard checks the weights. A trainable teacher of the task is state. A large
        tensor that is no parameter is a table of samples.
        """
        large = _is_large(tensor) and (self._in_place or not isinstance(tensor, nn.Parameter))
        return large or id(tensor) in self._own

    def _put_back(self) -> None:
        changes = self._held.changes()
        self.draws_by_itself |= any(entry.kind == GENERATOR for entry in changes)
        if changes:
            self._held.put_back()

    def _checksums(self) -> dict[str, float]:
        """Return a sum over each large frozen tensor of the model."""
        named = [*self.model.named_parameters(), *self.model.named_buffers()]
        return {
            name: float(tensor.detach().sum(dtype=torch.float64))
            for name, tensor in named
            if not tensor.requires_grad and _is_large(tensor)
        }


def _without_hooks(parameters: Iterable[Any]) -> list[tuple[dict[int, Any], dict[int, Any]]]:
    """Empty the gradient hooks of some parameters, and return each dict with its content."""
    found = []
    for parameter in parameters:
        for hooks in (parameter._backward_hooks, parameter._post_accumulate_grad_hooks):
            if hooks:
                found.append((hooks, dict(hooks)))
                hooks.clear()
    return found


def _of_gradient(parameter: nn.Parameter) -> Tensor:
    """Return the norm of a parameter's gradient and its sum, which is no larger."""
    if parameter.grad is None:
        return torch.zeros(2, dtype=torch.float64, device=parameter.device)
    numbers = parameter.grad.double()
    return torch.stack([numbers.norm(), numbers.sum() / max(1, numbers.numel()) ** 0.5])


def _is_large(tensor: Tensor) -> bool:
    return tensor.numel() > WATCHED_ABOVE


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
