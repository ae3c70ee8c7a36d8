"""Cut of a run's model over its ranks, once everything that needs it whole is done.

Not here: the cut itself (``engine.parallel.cut``), its check (``engine.preflight.uncut``).
"""

from __future__ import annotations

from typing import Any, Final

from lockstep.engine.data.loader import RankBatch
from lockstep.engine.data.task_checks import require_same_batch
from lockstep.engine.loop.parts import Model, RunInputs, Splits
from lockstep.engine.model.buffers import share_buffers
from lockstep.engine.parallel.collectives import TensorGroup
from lockstep.engine.parallel.cut import CutModel, cut_model
from lockstep.engine.parallel.links import Links
from lockstep.engine.parallel.pipeline import Pipeline
from lockstep.engine.parallel.staged import StageCut, WholeModel
from lockstep.engine.parallel.stages import cut_stage
from lockstep.engine.preflight.uncut import check_cut
from lockstep.engine.preflight.unstaged import stages_of
from lockstep.engine.runtime.errors import BadSpecError
from lockstep.engine.runtime.mesh import Mesh
from lockstep.engine.task.interface import Task

COMPARED_STEPS: Final = 3
"""First steps of a start in which samples are compared."""


def cut_layers(
    inputs: RunInputs, model: Model, splits: Splits
) -> tuple[TensorGroup, CutModel] | None:
    """Cut the model in place; None if each rank keeps all of it. All ranks must call this.

    Raises
    ------
    EngineError
        ``bad_spec``: the task has no plan, or the cut model computes something else.
    """
    mesh, task, module = inputs.mesh, inputs.task, model.module
    if mesh.tensor is None:
        return None
    plan = _plan_of(inputs, model)
    if type(task).penalty is not Task.penalty:
        raise BadSpecError(
            "penalty() reads whole parameters, and ranks hold slices of them: remove it, or set "
            "parallel.tensor to null",
        )
    group = TensorGroup(mesh.tensor, mesh.place.tensor)
    checked = check_cut(
        task,
        module,
        splits.train,
        plan,
        group,
        ranks=mesh.world,
        size=splits.size,
        seed=inputs.train.seed,
    )
    _warn_of(checked.note, inputs)
    cut = cut_model(module, plan, group)
    for name, layer in checked.dropouts.items():
        dropout: Any = module.get_submodule(name)
        dropout.cut = layer
    if mesh.line is None:
        module.to(mesh.world.device)
        share_buffers(module, mesh.world)
        model.replicas.cut(cut.cuts, mesh.layout)
    return group, cut


def cut_into_stages(
    inputs: RunInputs, model: Model, splits: Splits, *, conditional: bool
) -> StageCut | None:
    """Reduce the model to this rank's stage; None without a pipeline. All ranks must call this.

    Parameters
    ----------
    inputs, model, splits
    conditional : bool
        True if samples may use different parameters.

    Raises
    ------
    EngineError
        ``bad_spec``: the model has no stages, or they compute something else.
    """
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
        evaluates=splits.evaluation is not None,
        size=splits.size,
        seed=inputs.train.seed,
    )
    _warn_of(note, inputs)
    index, device = mesh.place.stage, mesh.world.device
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
    whole = WholeModel.of(module, task.param_groups(module))
    stage = cut_stage(module, plan, index, device)
    module.to(device)
    share_buffers(module, mesh.world)
    model.inventory.cut(stage.stand_ins)
    model.replicas.of_stage(module, mesh)
    return StageCut(plan, Pipeline(stage, Links(mesh.line, index, plan.stages, device)), whole)


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
