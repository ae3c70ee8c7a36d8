"""Check of a cut model against the uncut one, before the first step.

A plan that forgets a sum leaves the loss exact and gradients wrong, so both are compared: loss and
gradient of one sample, on a copy of the model in float64, whole and then cut. Every rank compares
its slice of each gradient. The passes also show the activations that a cut divides: dropout takes
the index of the whole activation there, and a draw from a generator is refused, since the ranks of
a group would draw other numbers than one rank.

Not here: the cut (``engine.parallel.cut``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import Dataset

from lockstep.engine.data.fetching import seeded_sample
from lockstep.engine.model.normalization import masked_samples
from lockstep.engine.parallel.collectives import TensorGroup
from lockstep.engine.parallel.cut import CutModel, cut_model
from lockstep.engine.preflight import chosen_samples
from lockstep.engine.preflight.trial_task import Piece, TrialTask, divided
from lockstep.engine.runtime import randomness
from lockstep.engine.runtime.errors import BadSpecError, EngineError, describe
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.task.dropout import Dropout, DropoutCut
from lockstep.engine.task.interface import Task

GRADIENT: Final = 1e-4
"""Largest relative difference of a gradient. Parts of a model may compute in float32."""
NOISE: Final = 1e-6
"""Difference that counts as rounding, relative to the gradient of all parameters."""


class CutCheck(NamedTuple):
    """A cut that was not refused."""

    plan: Mapping[str, str]
    """Lines of the tensor plan."""
    group: TensorGroup
    dropouts: dict[str, DropoutCut]
    """Layers of dropout whose activations are cut, by name."""
    note: str = ""
    """Reason why nothing was compared."""

    def apply(self, model: nn.Module, *, held: Collection[str] | None = None) -> CutModel:
        """Cut a model in place. All ranks of the group must call this.

        Parameters
        ----------
        model : nn.Module
            The whole model that was checked, or a copy.
        held : collection of str, optional
            As for ``cut_model``.
        """
        cut = cut_model(model, self.plan, self.group, held=held)
        for name, dropout in self.dropouts.items():
            layer: Any = model.get_submodule(name)
            layer.cut = dropout
        return cut


class _Pass(NamedTuple):
    """Result of one forward and backward."""

    losses: Tensor
    gradients: dict[str, Tensor]
    draws: list[tuple[str, tuple[int, ...]]]
    """Operations that draw random numbers, with the shapes of their results."""


def one_sample(
    task: Task, model: nn.Module, dataset: Dataset[Any], ranks: Ranks, *, size: int, seed: int
) -> tuple[TrialTask, Piece, str]:
    """Return a trial in float64, one of the first samples, and a note if none has weight.

    Without weight there is no gradient to compare. All ranks must call this: rank 0 chooses.
    """
    first = chosen_samples.first_with_weight(task, dataset, size=size, seed=seed)
    index, weighs = ranks.from_first([first.index, first.has_weight])
    sample = seeded_sample(dataset, index, seed=seed)
    trial = TrialTask(task, model, torch.float64, seed=seed)
    count = masked_samples(model)
    (piece,) = divided(trial.task, [sample] * count, [count])
    return trial, piece, "" if weighs else "every target of the first samples is masked"


def check_cut(
    task: Task,
    model: nn.Module,
    dataset: Dataset[Any],
    plan: Mapping[str, str],
    group: TensorGroup,
    *,
    ranks: Ranks,
    size: int,
    seed: int,
) -> CutCheck:
    """Refuse a plan under which the cut model computes something else. All ranks must call this.

    Parameters
    ----------
    task : Task
    model : nn.Module
        Whole; it is not changed.
    dataset : Dataset
        The train split.
    plan : mapping of str to str
        Lines of the tensor plan.
    group : TensorGroup
    ranks : Ranks
        All ranks of the run.
    size : int
        Length of the dataset.
    seed : int
        The job's.

    Raises
    ------
    EngineError
        ``bad_spec``, with the parameter, its line of the plan, and the factor.
    """
    with randomness.unchanged_generators(next(model.parameters()).device):
        trial, piece, note = one_sample(task, model, dataset, ranks, size=size, seed=seed)
        activations = _Activations(trial.model, group)
        drawing = [
            name
            for name, module in model.named_modules()
            if isinstance(module, _DropoutNd) and module.training
        ]
        whole = _pass(trial, piece, drawing)
        trial.close()
        cut = cut_model(trial.model, plan, group)
        trial.restart()
        activations.is_cut = True
        try:
            parts = _pass(trial, piece, drawing)
            wrong = _difference(whole, parts, cut, group)
        except EngineError as error:
            wrong = str(error)
        except Exception as error:  # noqa: BLE001 - of the user's model, whose shapes do not fit
            wrong = f"the cut model raised {describe(error)}"
        finally:
            trial.close()
    found = next(filter(None, ranks.gather(wrong)), "")
    if found:
        raise BadSpecError(f"with tensor {group.size} {found}")
    return CutCheck(plan, group, activations.cuts(), note)


def _pass(trial: TrialTask, piece: Piece, drawing: list[str]) -> _Pass:
    trial.begin(piece)
    with _training(trial.model, drawing), _Draws(trial.device) as draws:
        trial.terms(piece)
    trial.forget()
    losses = trial.add(piece)
    gradients = {
        name: parameter.grad
        for name, parameter in trial.trained.items()
        if parameter.grad is not None
    }
    trial.forget()
    return _Pass(losses, gradients, draws.seen)


@contextmanager
def _training(model: nn.Module, names: list[str]) -> Iterator[None]:
    """Put modules into training mode."""
    modules = [model.get_submodule(name) for name in names]
    for module in modules:
        module.train()
    try:
        yield
    finally:
        for module in modules:
            module.eval()


def _difference(whole: _Pass, parts: _Pass, cut: CutModel, group: TensorGroup) -> str:
    """Return the first difference in words; empty if there is none."""
    if whole.draws != parts.draws:
        pairs = zip_longest(whole.draws, parts.draws, fillvalue=("no operation", ()))
        odd = next(one for one, other in pairs if one != other)
        return (
            "the model draws random numbers for an activation that is cut "
            f"({odd[0]}, shape {odd[1]}): use lockstep.Dropout, or set its rate to 0"
        )
    total = float(torch.stack([each.norm() for each in whole.gradients.values()]).norm())
    if not torch.isfinite(whole.losses).all() or not total < float("inf"):
        return ""
    for name in sorted(cut.summed & parts.gradients.keys()):
        group.sum_up(parts.gradients[name])
    wrong: list[tuple[float, str]] = []
    for name, gradient in whole.gradients.items():
        expected = gradient
        if name in cut.cuts:
            expected = cut.cuts[name].take(gradient, group.index)
        found = parts.gradients.get(name, torch.zeros_like(expected))
        size, off = float(expected.norm()), float((found - expected).norm())
        if off > GRADIENT * size + NOISE * total:
            factor = float((found * expected).sum()) / size**2 if size else float("inf")
            wrong.append((off / (size or total), _words(name, factor, cut)))
    if wrong:
        more = f" ({len(wrong)} parameters differ)" if len(wrong) > 1 else ""
        return max(wrong)[1] + more
    if not torch.allclose(parts.losses, whole.losses, rtol=GRADIENT, atol=0.0):
        ratio = float(parts.losses.sum() / whole.losses.sum())
        return f"the loss of a sample is {ratio:.6g} times that of the whole model"
    return ""


def _words(name: str, factor: float, cut: CutModel) -> str:
    return (
        f"the gradient of {name} is {factor:.3g} times that of the whole model, or has another "
        f"direction; the tensor plan has {cut.line_of(name)} for it"
    )


class _Draws(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch does not type it
    """Records operations that draw random numbers."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # neither this
        self._device = device
        self.seen: list[tuple[str, tuple[int, ...]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **(kwargs or {}))
        # Some draw only if asked to, such as attention with dropout.
        with randomness.DrawDetector(self._device) as watch:
            result = func(*args, **(kwargs or {}))
        if watch.drawn:
            first = result[0] if isinstance(result, tuple | list) else result
            self.seen.append((str(func), tuple(getattr(first, "shape", ()))))
        return result


class _Activations:
    """Shapes of the inputs of dropout, whole and then cut."""

    def __init__(self, model: nn.Module, group: TensorGroup):
        self._group = group
        self._layers = {
            name: module for name, module in model.named_modules() if isinstance(module, Dropout)
        }
        self._whole: dict[str, tuple[int, ...]] = {}
        self.is_cut = False
        for name, layer in self._layers.items():
            layer.register_forward_pre_hook(
                lambda layer, inputs, name=name: self._see(name, layer, tuple(inputs[0].shape))
            )

    def cuts(self) -> dict[str, DropoutCut]:
        """Return the cut of each layer that has one."""
        return {name: layer.cut for name, layer in self._layers.items() if layer.cut is not None}

    def _see(self, name: str, layer: Dropout, shape: tuple[int, ...]) -> None:
        if not self.is_cut:
            self._whole[name] = shape
            return
        whole = self._whole.get(name, shape)
        if whole == shape or len(whole) != len(shape):
            return
        odd = [dim for dim, length in enumerate(shape) if whole[dim] != length]
        if len(odd) == 1 and whole[odd[0]] == shape[odd[0]] * self._group.size:
            layer.cut = DropoutCut(odd[0], self._group.size, self._group.index)
