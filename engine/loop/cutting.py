"""Cut of a run's model over its ranks, once everything that needs it whole is done.

Not here: the cut itself (``engine.parallel.cut``), its check (``engine.preflight.uncut``).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from lockstep.engine.data.loader import RankBatch
from lockstep.engine.data.task_checks import require_same_batch
from lockstep.engine.loop.parts import Model, RunInputs, Splits
from lockstep.engine.model.buffers import share_buffers
from lockstep.engine.parallel.collectives import TensorGroup
from lockstep.engine.parallel.cut import CutModel
from lockstep.engine.parallel.links import Links
from lockstep.engine.parallel.pipeline import Pipeline
from lockstep.engine.parallel.staged import StageCut, WholeModel
from lockstep.engine.parallel.stages import StagePlan, cut_stage
from lockstep.engine.preflight.uncut import CutCheck, check_cut
from lockstep.engine.preflight.unstaged import stages_of
from lockstep.engine.runtime.errors import BadSpecError
from lockstep.engine.runtime.mesh import Mesh
from lockstep.engine.task.interface import Task

COMPARED_STEPS: Final = 3
"""First steps of a start in which samples are compared."""


class Cuts(NamedTuple):
    """What this rank keeps of a run's model."""

    layers: tuple[TensorGroup, CutModel] | None = None
    """None if no layer is cut."""
    stages: StageCut | None = None
    """None without a pipeline."""


def cut_in_place(inputs: RunInputs, model: Model, splits: Splits, *, conditional: bool) -> Cuts:
    """Reduce the model to what this rank keeps of it. All ranks must call this.

    Both cuts are checked before the first, because their checks copy the whole model.

    Parameters
    ----------
    inputs, model, splits
    conditional : bool
        True if samples may use different parameters.

    Raises
    ------
    EngineError
        ``bad_spec``: the task has no plan, the model has no stages, or the parts compute something
        else.
    """
    mesh, module = inputs.mesh, model.module
    if not mesh.cuts:
        return Cuts()
    checked = _checked_layers(inputs, model, splits)
    plan = _checked_stages(inputs, model, splits, checked, conditional=conditional)
    whole = WholeModel.of(module, inputs.task.param_groups(module)) if plan is not None else None
    index, device = mesh.place.stage, mesh.world.device
    cut = None
    if checked is not None:
        cut = checked.apply(module, held=None if plan is None else plan.held_by(index))
    stage = None if plan is None else cut_stage(module, plan, index, device)
    module.to(device)
    share_buffers(module, mesh.world)
    names = () if cut is None else cut.cuts
    stages = None
    if stage is not None:
        assert plan is not None
        assert whole is not None
        assert mesh.line is not None
        model.inventory.cut(stage.stand_ins)
        model.replicas.of_stage(module, mesh, names)
        links = Links(mesh.line, index, plan.stages, device)
        stages = StageCut(plan, Pipeline(stage, links), whole)
    else:
        model.replicas.cut(names, mesh.layout)
    layers = None if checked is None or cut is None else (checked.group, cut)
    return Cuts(layers, stages)


def _checked_layers(inputs: RunInputs, model: Model, splits: Splits) -> CutCheck | None:
    """Return the cut of layers; None if each rank keeps whole ones. All ranks must call this."""
    mesh, task = inputs.mesh, inputs.task
    if mesh.tensor is None:
        return None
    plan = _plan_of(inputs, model)
    if type(task).penalty is not Task.penalty:
        raise BadSpecError(
            "penalty() reads whole parameters, and ranks hold slices of them: remove it, or set "
            "parallel.tensor to null",
        )
    checked = check_cut(
        task,
        model.module,
        splits.train,
        plan,
        TensorGroup(mesh.tensor, mesh.place.tensor, mesh.tensor_on_host),
        ranks=mesh.world,
        size=splits.size,
        seed=inputs.train.seed,
    )
    _warn_of(checked.note, inputs)
    return checked


def _checked_stages(
    inputs: RunInputs, model: Model, splits: Splits, layers: CutCheck | None, *, conditional: bool
) -> StagePlan | None:
    """Return the stages of the model; None without a pipeline. All ranks must call this."""
    mesh, task, module = inputs.mesh, inputs.task, model.module
    if mesh.line is None:
        return None
    for wrong, what in (
        (type(task).penalty is not Task.penalty, "penalty() reads all parameters"),
        (conditional, "the task is conditional"),
    ):
        if wrong:
            raise BadSpecError(f"parallel.pipeline: {what}, which stages do not support yet")
    plan, note = stages_of(
        task,
        module,
        splits.train,
        mesh,
        layers=layers,
        evaluates=splits.evaluation is not None,
        size=splits.size,
        seed=inputs.train.seed,
    )
    if layers is None:  # Otherwise it was said.
        _warn_of(note, inputs)
    lacking = [
        stage
        for stage in range(plan.stages)
        if not any(module.get_parameter(name).requires_grad for name in plan.held_by(stage))
    ]
    if lacking:
        raise BadSpecError(
            f"parallel.pipeline: stage {lacking[0]} has no parameter to train, which this version "
            "does not support: set fewer stages",
        )
    return plan


def _warn_of(note: str, inputs: RunInputs) -> None:
    if note:
        inputs.telemetry.warn(f"the cut was checked without a gradient: {note}")


def compare_samples(mesh: Mesh, batch: RankBatch, steps_done: int) -> None:
    """Compare the samples of ranks with one copy of the model, in the first steps of a start.

    All ranks must call this.
    """
    if mesh.cuts and batch.step < steps_done + COMPARED_STEPS:
        require_same_batch(mesh.world, mesh.layout, batch)


def _plan_of(inputs: RunInputs, model: Model) -> dict[str, str]:
    plan = inputs.task.tensor_plan(model.module)
    if not plan:
        raise BadSpecError(
            f"parallel.tensor is {inputs.mesh.layout.tensor}, and {inputs.train.task} has no "
            f"tensor plan for {type(model.module).__name__}: define tensor_plan(self, model) in "
            "the task (task_args.tensor_plan of hf_causal_lm), or use strategy fsdp",
        )
    return plan
