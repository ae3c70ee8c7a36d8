"""Construction of everything that one rank needs for its loop, in the required order.

1. ``prepare`` on the node's first rank, then the model and the datasets, on all.
2. The first items, which are compared over the ranks and with the checkpoint.
3. The checkpoint to resume from, or the initial weights, if any: before the model is wrapped.
4. The checks of the task with these weights (``engine.loop.checking``).
5. The strategy around model and loss, two masked passes through it, and only then the optimizer,
which may be sharded.
6. The micro-batch, if it is to be chosen: with everything else in memory already.
7. The loader, which starts at the checkpoint's step.

Not here: the loop (``engine.loop.trainer``), which also applies a changed plan.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import nn
from torch.utils.data import Dataset

from lockstep.domain.life.attempt import INIT, RESUME
from lockstep.domain.spec.train import Train
from lockstep.engine.checkpoints.contents import State
from lockstep.engine.checkpoints.initial import load_initial
from lockstep.engine.checkpoints.restoring import restore_model, restore_optimizer
from lockstep.engine.checkpoints.state import TrainingState
from lockstep.engine.data.loader import Batches, RunLength
from lockstep.engine.data.task_checks import dataset_of, model_of
from lockstep.engine.loop.checking import check, read_items
from lockstep.engine.loop.cutting import cut_in_place
from lockstep.engine.loop.parts import Assembly, Data, Found, Items, Model, RunInputs, Splits, Step
from lockstep.engine.memory import auto
from lockstep.engine.memory.advice import must_fit
from lockstep.engine.model import compiling
from lockstep.engine.model.activation_checkpointing import checkpoint_blocks
from lockstep.engine.model.modes import set_to_train
from lockstep.engine.model.normalization import require_device, require_several_samples
from lockstep.engine.model.objective import Objective
from lockstep.engine.model.precision import Precision, require_wide_parameters, use_tf32
from lockstep.engine.parallel.staged import StageParallel
from lockstep.engine.parallel.tensor import TensorParallel
from lockstep.engine.preflight.usage import eval_samples, observe, single_samples
from lockstep.engine.runtime import randomness
from lockstep.engine.runtime.control import Control
from lockstep.engine.runtime.device import is_accelerator, traits_of
from lockstep.engine.state.inventory import Inventory, made_at_first_call
from lockstep.engine.step.gradient import GradientStep
from lockstep.engine.step.optimizer import Optimizer
from lockstep.engine.step.replicas import ReplicaCheck
from lockstep.engine.step.requirements import require_trainable
from lockstep.engine.step.staged import StagedGradientStep
from lockstep.engine.strategies import shards, strategy_for
from lockstep.engine.strategies.base import Strategy
from lockstep.engine.strategies.block_order import ModelUsage
from lockstep.engine.task.dropout import Masks, name_layers
from lockstep.engine.verify.hooks import start_one_ulp_away


def assemble(inputs: RunInputs) -> Assembly:
    """Build all parts of a rank. All ranks must call this."""
    model, splits = build_model(inputs)
    items = read_items(inputs, model, splits)
    saved = _training_state(inputs, model, items)
    state = _restore(inputs, model, splits, saved)
    found = check(inputs, model, items, resumes=state is not None and state["step"] > 0)
    step = build_step(inputs, model, items, found, state)
    _settle_plan(inputs, items, found, step, saved)
    if state is not None:
        # Once more: now there is what the first calls make, and all ranks share rank 0's buffers.
        saved.report_resume(state, model.inventory.restore(state.get("held"), inputs.ranks))
    return Assembly(
        model=model,
        found=found,
        step=step,
        data=build_data(inputs, items, step, saved, state, draws=found.additivity.effects.draws),
        state=saved,
    )


def build_model(inputs: RunInputs) -> tuple[Model, Splits]:
    """Build the model with the weights of the seed, and the datasets. All ranks must call this."""
    train, task, ranks = inputs.train, inputs.task, inputs.ranks
    if ranks.local_rank == 0:
        task.prepare()
    ranks.barrier()
    module = _module(inputs)
    dataset, size = dataset_of(task, "train", seed=train.seed)
    evaluation, evaluation_size = (
        dataset_of(task, "eval", seed=train.seed) if train.eval.every_steps else (None, 0)
    )
    length = RunLength.of(
        steps=train.steps,
        epochs=train.epochs,
        dataset_size=size,
        batch_size=inputs.plan.batch_size,
    )
    inventory = Inventory(module, task, inputs.code, (dataset, evaluation))
    inventory.remember()
    model = Model(
        module=module,
        inventory=inventory,
        precision=Precision(train.precision, ranks.device),
        replicas=ReplicaCheck(module, ranks),
        parameters=sum(parameter.numel() for parameter in module.parameters()),
    )
    return model, Splits(dataset, size, evaluation, evaluation_size, length)


def build_step(
    inputs: RunInputs,
    model: Model,
    items: Items,
    found: Found,
    state: State | None,
) -> Step:
    """Build what computes a step, with the optimizer's state. All ranks must call this."""
    train, task, splits = inputs.train, inputs.task, items.splits
    ranks, data = inputs.ranks, inputs.mesh.data
    use_tf32(ranks.device, on=train.tf32)
    strategy, usage, tensor, stage = _strategy(inputs, model, splits, state)
    if not strategy.replicated:
        model.replicas.stand_down()
    staged = {} if stage is None else {"stage": stage}
    gradient = (GradientStep if stage is None else StagedGradientStep)(
        task,
        strategy,
        model.precision,
        data,
        model.inventory,
        seed=train.seed,
        moved=found.moved,
        tensor=tensor,
        **staged,
    )
    with must_fit("the first sample"):
        complete = gradient.warm_up(
            items.masked, keep=made_at_first_call(None if state is None else state.get("held"))
        )
    if stage is None and not (
        complete or found.additivity.complete or usage.conditional or state is not None
    ):
        samples = single_samples(
            task, model.module, splits.train, size=splits.size, seed=train.seed
        )
        observe(strategy.objective, samples, masks=gradient.masks).require_all_used()
    optimizer = Optimizer(
        train, task, strategy, steps=splits.length.steps, tensor=tensor, stage=stage
    )
    optimizer.require_independence()
    if state is not None:
        restore_optimizer(
            strategy, optimizer.inner, state, ranks, inputs.telemetry, tensor=tensor, stage=stage
        )
        optimizer.require_layout()
        model.precision.load(state.get("precision", {}))
    control = Control(inputs.mesh, len(gradient.terms))
    return Step(strategy, gradient, optimizer, control, tensor, stage)


def build_data(
    inputs: RunInputs,
    items: Items,
    step: Step,
    saved: TrainingState,
    state: State | None,
    *,
    draws: bool,
) -> Data:
    """Build the loader, with the first batch after the checkpoint's step.

    Parameters
    ----------
    draws : bool
        True if the loss of some sample draws random numbers.
    """
    splits, gradient, workers = items.splits, step.gradient, inputs.train.loader.workers
    steps_done = 0 if state is None else state["step"]
    draws_on_host = gradient.draws_on_host or (draws and not is_accelerator(inputs.ranks.device))
    in_line = workers == 0 and draws_on_host
    gradient.seeds_host = in_line or workers > 0
    batches = Batches(
        inputs.task,
        splits.train,
        saved.plan,
        splits.length,
        rank=inputs.mesh.place.copy,
        dataset_size=splits.size,
        seed=inputs.train.seed,
        first_step=steps_done,
        workers=workers,
        terms=gradient.terms,
        masked=items.masked,
        in_line=in_line,
        pin=is_accelerator(inputs.ranks.device),
    )
    return Data(items, batches, steps_done)


def _module(inputs: RunInputs) -> nn.Module:
    """The task's model on its device, with the weights of the seed.

    A model that will be cut stays on the host until then: a device may be too small for it.
    """
    train, device = inputs.train, inputs.ranks.device
    randomness.seed_host(randomness.seed_of(randomness.MODEL, train.seed))
    module = model_of(inputs.task)
    if not inputs.mesh.cuts:
        module = module.to(device)
    require_trainable(module)
    require_device(module, device)
    name_layers(module)
    set_to_train(module)
    if train.activation_checkpointing:
        checkpoint_blocks(module)
    return module


def _training_state(inputs: RunInputs, model: Model, items: Items) -> TrainingState:
    return TrainingState(
        inputs.folder,
        inputs.train,
        inputs.plan,
        inputs.ranks,
        inputs.telemetry,
        size=items.splits.size,
        samples=items.fingerprints,
        read_again=items.read_again,
        precision=model.precision,
        spec=inputs.spec,
        export_files=partial(inputs.task.export_files, model.module),
    )


def _restore(inputs: RunInputs, model: Model, splits: Splits, saved: TrainingState) -> State | None:
    """Load the weights to start from into the model; return the state to resume from, if any.

    All ranks must call this.
    """
    train, ranks = inputs.train, inputs.ranks
    state = saved.restored(
        model.module,
        steps=splits.length.steps,
        resumes=inputs.resumes,
        source=INIT if inputs.order.resume else RESUME,
    )
    if state is not None:
        restore_model(model.module, state)
        model.inventory.restore(state.get("held"), ranks, trained=False)
    elif train.init_from is not None:
        load_initial(model.module, train.init_from, inputs.folder, ranks)
        inputs.telemetry.event("initialized", **{"from": train.init_from})
    if inputs.order.ulp:
        start_one_ulp_away(
            model.module, train, tf32=train.tf32 and traits_of(ranks.device).has_tf32
        )
    return state


def _strategy(
    inputs: RunInputs, model: Model, splits: Splits, state: State | None
) -> tuple[Strategy, ModelUsage, TensorParallel | None, StageParallel | None]:
    """Wrap model and loss into the strategy of the run. All ranks must call this.

    The model is cut before, if it is to be.
    """
    train = inputs.train
    sharing = strategy_for(train.strategy)
    require_wide_parameters(model.module, accumulates_in_float32=sharing.accumulates_in_float32)
    objective = Objective(
        inputs.task,
        model.module,
        model.precision,
        compiling.compiled(model.module) if train.compile else None,
    )
    usage = _usage(
        objective,
        splits.train,
        splits.evaluation,
        size=splits.size,
        train=train,
        known=state is not None and state.get("conditional", False),
        resumes=state is not None,
        by_block=sharing.gathers_blocks,
    )
    blocks = list(shards.blocks(model.module))
    slices, stages = cut_in_place(inputs, model, splits, conditional=usage.conditional)
    if stages is not None:
        usage = usage.of_stage(blocks, list(shards.blocks(model.module)))
    strategy = sharing(objective, inputs.mesh.data, train.strategy, usage)
    tensor = None
    if slices is not None:
        tensor = TensorParallel(
            inputs.mesh, *slices, model.module, deterministic=train.deterministic
        )
    stage = None
    if stages is not None:
        stage = StageParallel(inputs.mesh, stages, model.module, tensor)
    return strategy, usage, tensor, stage


def _settle_plan(
    inputs: RunInputs,
    items: Items,
    found: Found,
    step: Step,
    saved: TrainingState,
) -> None:
    """Choose the micro-batch if it is open. All ranks must call this."""
    splits, length = items.splits, items.splits.length
    plan = auto.settled(
        saved.plan,
        step.gradient,
        inputs.ranks,
        task=inputs.task,
        train=inputs.train,
        dataset=splits.train,
        size=splits.size,
        smallest=2 if found.needs_several else 1,
        code=inputs.code,
        log_line=inputs.telemetry.log_line,
    )
    if step.stage is not None:
        plan = plan.model_copy(update={"blocks": step.stage.blocks})
    if found.needs_several:
        last_batch = length.batch_size(plan, length.steps - 1)
        require_several_samples(step.gradient.model, plan, last_batch=last_batch)
    saved.replanned(plan)


def _usage(
    objective: Objective,
    dataset: Dataset[Any],
    eval_dataset: Dataset[Any] | None,
    *,
    size: int,
    train: Train,
    known: bool,
    resumes: bool,
    by_block: bool,
) -> ModelUsage:
    """Return the parts of the model that micro-batches use.

    Only as far as the strategy needs them before it wraps the model.

    Parameters
    ----------
    known : bool
        True if the run was conditional before a restart.
    resumes : bool
        True if the run was accepted before; unused parameters are then not refused again.
    by_block : bool
        True if ranks gather the model block by block.
    """
    task = objective.task
    if task.conditional or known or not by_block:
        return ModelUsage(conditional=task.conditional or known)
    found = observe(
        objective,
        single_samples(task, objective.model, dataset, size=size, seed=train.seed),
        masks=Masks(
            objective.model, seed=train.seed, device=next(objective.model.parameters()).device
        ),
        compare_blocks=True,
        evaluated=() if eval_dataset is None else eval_samples(task, eval_dataset, seed=train.seed),
    )
    if not resumes:
        found.require_all_used()
    return found.usage
