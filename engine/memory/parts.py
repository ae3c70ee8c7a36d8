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
from lockstep.engine.parallel.tensor import TensorParallel
from lockstep.engine.runtime.mesh import Mesh
from lockstep.engine.state.inventory import Inventory
from lockstep.engine.step.gradient import GradientStep
from lockstep.engine.step.optimizer import Optimizer
from lockstep.engine.strategies.base import Strategy
from lockstep.engine.task.dropout import name_layers
from lockstep.engine.task.interface import Batch, Task


class StepParts(NamedTuple):
    """Components of a step."""

    model: nn.Module
    strategy: Strategy
    gradient: GradientStep
    optimizer: Optimizer


def parts_of(
    task: Task,
    train: Train,
    sharing: type[Strategy],
    mesh: Mesh,
    precision: Precision,
    *,
    group: TensorGroup | None = None,
    sample: Any = None,
) -> StepParts:
    """Build them as a run does, warmed up with ``sample`` if one is given.

    All ranks must call this. With ``group`` the layers are cut over its ranks.
    """
    ranks, cut = mesh.data, None
    model = task.model()
    if group is None:
        model = model.to(ranks.device)
    name_layers(model)
    set_to_train(model)
    if train.activation_checkpointing:
        checkpoint_blocks(model)
    if group is not None:
        cut = cut_model(model, task.tensor_plan(model), group)
        model = model.to(ranks.device)
    strategy = sharing(Objective(task, model, precision), ranks, train.strategy)
    tensor = None
    if group is not None and cut is not None:
        tensor = TensorParallel(mesh, group, cut, model, deterministic=train.deterministic)
    inventory = Inventory(model, task)
    gradient = GradientStep(
        task, strategy, precision, ranks, inventory, seed=train.seed, tensor=tensor
    )
    if sample is not None:
        gradient.warm_up(masked_batch(task, model, sample))
    optimizer = Optimizer(train, task, strategy, steps=1, tensor=tensor)
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
