"""Model, gradient and optimizer of one rank, for forecasts and measurements.

Not here: a whole run (``engine.loop.assembly``), which adds the loader, the checkpoints and the
reports.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import nn

from lockstep.domain.spec.batch import accumulation_steps
from lockstep.domain.spec.train import Train
from lockstep.engine.data.loader import MicroBatch, RankBatch, weights_of
from lockstep.engine.model.activation_checkpointing import checkpoint_blocks
from lockstep.engine.model.modes import set_to_train
from lockstep.engine.model.normalization import masked_batch
from lockstep.engine.model.objective import Objective
from lockstep.engine.model.precision import Precision
from lockstep.engine.parallel.collectives import TensorGroup
from lockstep.engine.parallel.cut import cut_model
from lockstep.engine.parallel.links import Links
from lockstep.engine.parallel.pipeline import Pipeline
from lockstep.engine.parallel.staged import StageCut, StageParallel, WholeModel
from lockstep.engine.parallel.stages import Observed, StagePlan, blocks_of, cut_stage, observed
from lockstep.engine.parallel.tensor import TensorParallel
from lockstep.engine.runtime.mesh import Mesh
from lockstep.engine.state.inventory import Inventory
from lockstep.engine.step.gradient import GradientStep
from lockstep.engine.step.optimizer import Optimizer
from lockstep.engine.step.staged import StagedGradientStep
from lockstep.engine.strategies.base import Strategy
from lockstep.engine.task.dropout import name_layers
from lockstep.engine.task.interface import Batch, Task


class StepParts(NamedTuple):
    """Components of a step."""

    model: nn.Module
    strategy: Strategy
    gradient: GradientStep
    optimizer: Optimizer


class StageOf(NamedTuple):
    """Stage of a mesh's place."""

    plan: StagePlan
    links: Links


def stages_of(task: Task, train: Train, batch: Batch) -> tuple[StagePlan, tuple[str, ...]]:
    """Return the division of a model into stages, and the terms of its loss.

    Parameters
    ----------
    task : Task
    train : Train
    batch : Batch
        Any samples, collated.
    """
    model = task.model()
    set_to_train(model)
    blocks, seen = blocks_of(model, task.pipeline_stages(model)), Observed()
    with observed(model, blocks, seen):
        _, sums = Objective(task, model)(batch, None, penalize=False)
    return StagePlan.of(model, blocks, train.parallel.stages, seen), tuple(sums)


def parts_of(
    task: Task,
    train: Train,
    sharing: type[Strategy],
    mesh: Mesh,
    precision: Precision,
    *,
    group: TensorGroup | None = None,
    stage: StageOf | None = None,
    sample: Any = None,
) -> StepParts:
    """Build them as a run does, warmed up with ``sample`` if one is given.

    All ranks must call this. With ``group`` the layers are cut over its ranks, with ``stage`` the
    model is reduced to one.
    """
    ranks, cut, staged = mesh.data, None, None
    model = task.model()
    if not mesh.cuts:
        model = model.to(ranks.device)
    name_layers(model)
    set_to_train(model)
    if train.activation_checkpointing:
        checkpoint_blocks(model)
    index = mesh.place.stage
    whole = None if stage is None else WholeModel.of_groups(model, task.param_groups(model))
    if group is not None:
        held = None if stage is None else stage.plan.held_by(index)
        cut = cut_model(model, task.tensor_plan(model), group, held=held)
    if stage is not None and whole is not None:
        pipeline = Pipeline(cut_stage(model, stage.plan, index, ranks.device), stage.links)
        staged = StageCut(stage.plan, pipeline, whole)
    model = model.to(ranks.device)
    strategy = sharing(Objective(task, model, precision), ranks, train.strategy)
    inventory = Inventory(model, task)
    of_rank: dict[str, Any] = {}
    if group is not None and cut is not None:
        of_rank["tensor"] = TensorParallel(
            mesh, group, cut, model, deterministic=train.deterministic
        )
    if staged is not None:
        strategy.keep_gathered()
        inventory.cut(staged.pipeline.stage.stand_ins)
        of_rank["stage"] = StageParallel(mesh, staged, model, of_rank.get("tensor"))
    gradient = (GradientStep if staged is None else StagedGradientStep)(
        task, strategy, precision, ranks, inventory, seed=train.seed, **of_rank
    )
    if sample is not None:
        gradient.warm_up(masked_batch(task, model, sample))
    optimizer = Optimizer(train, task, strategy, steps=1, **of_rank)
    optimizer.make_state()
    return StepParts(model, strategy, gradient, optimizer)


def micro_batches_of(train: Train, *, micro_batch_size: int, copies: int, at_most: int) -> int:
    """Slots of a step in which memory can differ.

    From the ``at_most``-th on they are like the ones before.
    """
    return min(at_most, accumulation_steps(train.batch.size, micro_batch_size, copies))


def rank_batch(
    batch: Batch, weight: Any, terms: tuple[str, ...], *, samples: int, micro_batches: int
) -> tuple[RankBatch, tuple[float, ...]]:
    """A batch of equal micro-batches, and its divisors."""
    weights = weights_of(weight, terms)
    micro_batch = MicroBatch(batch, samples, weights, position=0)
    return RankBatch(
        step=0, size=samples * micro_batches, micro_batches=[micro_batch] * micro_batches
    ), weights
