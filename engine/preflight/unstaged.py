"""Division of a model into stages, and its check against the whole one, before the first step.

One forward of a copy in float64 shows the order of the blocks and the stages that use each
parameter. Then the copy is reduced to this rank's stage, with layers cut as they will be, and the
stages compute the gradient of the same sample together. Every rank compares the gradients that it
holds, the last stage the loss, too. A block that passes on more than one activation is found here.

Not here: the stages (``engine.parallel.stages``), the check of cut layers alone
(``engine.preflight.uncut``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from lockstep.engine.parallel.cut import CutModel
from lockstep.engine.parallel.links import Links
from lockstep.engine.parallel.pipeline import Pipeline, key_of
from lockstep.engine.parallel.staged import sum_gradients
from lockstep.engine.parallel.stages import (
    Observed,
    StagePlan,
    blocks_of,
    cut_stage,
    observed,
    require_chain,
)
from lockstep.engine.preflight.trial_task import Piece, TrialTask
from lockstep.engine.preflight.uncut import GRADIENT, NOISE, CutCheck, one_sample
from lockstep.engine.runtime import randomness
from lockstep.engine.runtime.errors import BadSpecError
from lockstep.engine.runtime.mesh import Mesh
from lockstep.engine.task.interface import Task

_HOST = torch.device("cpu")


class _Whole(NamedTuple):
    """Result of the whole model."""

    losses: Tensor
    gradients: Mapping[str, Tensor | None]


def stages_of(
    task: Task,
    model: nn.Module,
    dataset: Dataset[Any],
    mesh: Mesh,
    *,
    layers: CutCheck | None = None,
    evaluates: bool,
    size: int,
    seed: int,
) -> tuple[StagePlan, str]:
    """Divide a model into stages, and refuse stages that compute something else.

    All ranks must call this. Returns also a note, if no gradient could be compared.

    Parameters
    ----------
    task : Task
    model : nn.Module
        Whole; it is not changed.
    dataset : Dataset
        The train split.
    mesh : Mesh
    layers : CutCheck, optional
        Cut of the layers of each stage.
    evaluates : bool
        True if the run evaluates.
    size : int
        Length of the dataset.
    seed : int
        The job's.

    Raises
    ------
    EngineError
        ``bad_spec``.
    """
    ranks, stages = mesh.world, mesh.layout.pipeline
    with randomness.unchanged_generators(next(model.parameters()).device):
        trial, piece, note = one_sample(task, model, dataset, ranks, size=size, seed=seed)
        trial.begin(piece)
        plan = _plan(task, model, trial, piece, stages, evaluates=evaluates)
        if len(set(map(str, ranks.gather([list(plan.blocks), sorted(plan.holders.items())])))) > 1:
            raise BadSpecError("parallel.pipeline: ranks divide the model differently")
        whole = _Whole(trial.add(piece), {name: p.grad for name, p in trial.trained.items()})
        trial.forget()
        wrong = _difference(trial, piece, plan, mesh, whole, layers=layers)
        trial.close()
    found = next(filter(None, ranks.gather(wrong)), "")
    if found:
        raise BadSpecError(f"with pipeline {stages} {found}")
    return plan, note


def _plan(
    task: Task, model: nn.Module, trial: TrialTask, piece: Piece, stages: int, *, evaluates: bool
) -> StagePlan:
    blocks = blocks_of(model, task.pipeline_stages(model))
    seen = Observed()
    trial.terms(piece, observed(trial.model, blocks, seen))
    plan = StagePlan.of(trial.model, blocks, stages, seen)
    if evaluates:
        seen = Observed()
        trial.evaluate(piece, observed(trial.model, blocks, seen))
        require_chain(blocks, seen, where="evaluate()")
    return plan


def _difference(
    trial: TrialTask,
    piece: Piece,
    plan: StagePlan,
    mesh: Mesh,
    whole: _Whole,
    *,
    layers: CutCheck | None,
) -> str:
    """Return the first difference of this rank's stage in words; empty if there is none."""
    assert mesh.line is not None, "of a pipeline"
    index, cut = mesh.place.stage, None
    if layers is not None:
        cut = layers.apply(trial.model, held=plan.held_by(index))
    stage = cut_stage(trial.model, plan, index, _HOST)
    trial.restart()
    pipeline = Pipeline(stage, Links(mesh.line, index, plan.stages, _HOST))
    losses: list[Tensor] = []

    def forward(_: int) -> Tensor:
        output, found = trial.stage(piece)
        losses.append(found)
        return output

    key = key_of(piece.batch, trains=True)
    try:
        pipeline.step([key], forward, lambda _, run: run())
    finally:
        trial.end()
    held = dict(trial.model.named_parameters())
    if layers is not None and cut is not None:
        for name in sorted(cut.summed & held.keys()):
            layers.group.sum_up(_gradient_of(held[name]))
    _sum_tied(held, plan, mesh)
    expected = {name: each for name, each in whole.gradients.items() if each is not None}
    total = float(torch.stack([each.norm() for each in expected.values()]).norm())
    if not torch.isfinite(whole.losses).all() or not total < float("inf"):
        return ""
    if layers is not None and cut is not None:
        expected = _slices_of(expected, cut, layers.group.index)
    return _worst(held, expected, total) or (
        _other_loss(losses[0], whole.losses) if stage.last else ""
    )


def _sum_tied(held: Mapping[str, nn.Parameter], plan: StagePlan, mesh: Mesh) -> None:
    """Sum the gradients of parameters that several stages hold."""
    for stages in plan.tied:
        group = mesh.groups_of_stages(stages, on_host=True)
        if group is not None:
            sum_gradients(
                [held[name] for name, each in plan.holders.items() if each == stages], group
            )


def _slices_of(whole: Mapping[str, Tensor], cut: CutModel, index: int) -> dict[str, Tensor]:
    """Return gradients of a whole model with this rank's slices of those that are cut."""
    return {
        name: cut.cuts[name].take(gradient, index) if name in cut.cuts else gradient
        for name, gradient in whole.items()
    }


def _gradient_of(parameter: nn.Parameter) -> Tensor:
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad


def _worst(held: Mapping[str, nn.Parameter], expected: Mapping[str, Tensor], total: float) -> str:
    """Return the parameter whose gradient differs most in words; empty if none does.

    Parameters
    ----------
    held : mapping
        Parameters of this rank.
    expected : mapping
        Their gradients in the whole model.
    total : float
        Norm of the whole model's gradient.
    """
    wrong: list[tuple[float, str]] = []
    for name in held.keys() & expected.keys():
        gradient, found = expected[name], _gradient_of(held[name])
        size, off = float(gradient.norm()), float((found - gradient).norm())
        if off > GRADIENT * size + NOISE * total:
            wrong.append((off / (size or total), name))
    if not wrong:
        return ""
    more = f" ({len(wrong)} parameters differ)" if len(wrong) > 1 else ""
    return (
        f"the gradient of {max(wrong)[1]} is not that of the whole model{more}: a block may pass "
        "on more than one tensor, or use what an earlier one computed; set pipeline to null, or "
        "define pipeline_stages(self, model) in the task"
    )


def _other_loss(found: Tensor, expected: Tensor) -> str:
    if not torch.isfinite(expected).all() or torch.allclose(found, expected, rtol=GRADIENT, atol=0):
        return ""
    ratio = float(found.sum() / expected.sum())
    return f"the loss of a sample is {ratio:.6g} times that of the whole model"
