"""Construction of everything that one rank needs for its loop, in the required order.

1. ``prepare`` on the node's first rank, then the model and the datasets, on all.
2. The checkpoint to resume from, or the initial weights, if any: before the model is wrapped.
3. The strategy around model and loss, two masked passes through it, and only then the optimizer,
which may be sharded.
4. The micro-batch, if it is to be chosen: with everything else in memory already.
5. The loader, which starts at the checkpoint's step.

Not here: the loop (``engine.loop.trainer``), which also applies a changed plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn
from torch.utils.data import Dataset

from lockstep.domain.life.attempt import INIT, RESUME
from lockstep.domain.spec.job import JobSpec
from lockstep.domain.spec.train import Train
from lockstep.domain.training.plan import BatchPlan
from lockstep.domain.verify.orders import NONE as NO_ORDER
from lockstep.domain.verify.orders import VerifyOrder
from lockstep.engine.checkpoints.initial import load_initial
from lockstep.engine.checkpoints.restoring import restore_model, restore_optimizer
from lockstep.engine.checkpoints.state import TrainingState
from lockstep.engine.data.fetching import seeded_sample
from lockstep.engine.data.fingerprint import samples_of
from lockstep.engine.data.loader import Batches, RunLength
from lockstep.engine.data.task_checks import dataset_of, model_of, require_same_data
from lockstep.engine.memory import auto
from lockstep.engine.memory.advice import must_fit
from lockstep.engine.model import compiling
from lockstep.engine.model.activation_checkpointing import checkpoint_blocks
from lockstep.engine.model.modes import set_to_train
from lockstep.engine.model.normalization import (
    masked_batch,
    require_device,
    require_several_samples,
)
from lockstep.engine.model.objective import Objective
from lockstep.engine.model.precision import Precision, require_wide_parameters, use_tf32
from lockstep.engine.preflight.additivity_check import Checked, check
from lockstep.engine.preflight.items import fetched_again
from lockstep.engine.preflight.repeatability import check_loss
from lockstep.engine.preflight.usage import eval_samples, observe, single_samples
from lockstep.engine.preflight.worker_items import require_same_in_workers
from lockstep.engine.runtime import randomness
from lockstep.engine.runtime.control import Control
from lockstep.engine.runtime.device import is_accelerator, traits_of
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.runtime.telemetry import Telemetry
from lockstep.engine.state.inventory import Inventory, made_at_first_call
from lockstep.engine.state.reasons import Reasons
from lockstep.engine.step.gradient import GradientStep
from lockstep.engine.step.optimizer import Optimizer
from lockstep.engine.step.replicas import ReplicaCheck
from lockstep.engine.step.requirements import require_trainable
from lockstep.engine.strategies import strategy_for
from lockstep.engine.strategies.base import Strategy
from lockstep.engine.strategies.block_order import ModelUsage
from lockstep.engine.task.dropout import Masks, name_layers
from lockstep.engine.task.interface import Batch, Task
from lockstep.engine.verify.hooks import start_one_ulp_away


@dataclass
class Assembly:
    """The parts of one rank of one run."""

    plan: BatchPlan
    """With a micro-batch."""
    task: Task
    model: nn.Module
    inventory: Inventory
    strategy: Strategy
    precision: Precision
    gradient: GradientStep
    optimizer: Optimizer
    control: Control
    batches: Batches
    state: TrainingState
    length: RunLength
    samples: int
    """Size of the training dataset."""
    eval_dataset: Dataset[Any] | None
    sample: Any
    """The first of the dataset."""
    masked: Batch
    """That sample collated, for masked passes."""
    steps_done: int
    """Steps of the checkpoint that the run resumes from; 0 at a fresh start."""
    parameters: int
    """Numbers in the model's parameters, over all ranks once."""
    probed: Checked
    """Result of the additivity check of the loss."""
    needs_several: bool
    """True if no micro-batch may hold a single sample, because of BatchNorm."""
    warnings: list[str]
    """Reasons for a dependence of the run on its layout (``engine.preflight.repeatability``)."""
    unsaved: Reasons
    """State that no checkpoint of the run can hold, with the reasons."""
    replicas: ReplicaCheck


def assemble(  # noqa: PLR0915 - one list of parts, in the order in which they must be made
    train: Train,
    plan: BatchPlan,
    task: Task,
    ranks: Ranks,
    *,
    folder: Path,
    telemetry: Telemetry,
    resumes: bool,
    spec: JobSpec | None = None,
    code: Path | None = None,
    order: VerifyOrder = NO_ORDER,
) -> Assembly:
    """Build all of it. All ranks must call this.

    Parameters
    ----------
    train, plan, task, ranks, folder, resumes, spec, code, order
        As ``engine.loop.trainer.Trainer`` takes them.
    telemetry : Telemetry
    """
    if ranks.local_rank == 0:
        task.prepare()
    ranks.meet()
    model = _model(train, task, ranks)
    (dataset, samples), (eval_dataset, eval_samples) = _splits(train, task)
    inventory = Inventory(model, task, code, (dataset, eval_dataset))
    inventory.remember()
    length = RunLength.of(
        steps=train.steps, epochs=train.epochs, dataset_size=samples, batch_size=plan.batch_size
    )
    fetched, warnings = fetched_again(dataset, samples, task.collate, seed=train.seed)
    sample = seeded_sample(dataset, 0, seed=train.seed)
    masked = masked_batch(task, model, sample)
    look = partial(samples_of, dataset, samples, task.collate, seed=train.seed)
    looks = look(known=fetched)
    require_same_data(ranks, {"train": samples, "eval": eval_samples}, looks, look)
    if train.loader.workers:
        warnings += require_same_in_workers(
            ranks, dataset, fetched, task.collate, seed=train.seed, compares=not warnings
        )
    precision = Precision(train.precision, ranks.device)
    if warnings:
        inventory.note("dataset", "it draws from a generator that the engine does not seed")
    saved = TrainingState(
        folder,
        train,
        plan,
        ranks,
        telemetry,
        size=samples,
        samples=looks,
        look_again=look,
        precision=precision,
        spec=spec,
        export_files=partial(task.export_files, model),
    )
    state = saved.restored(
        model, steps=length.steps, resumes=resumes, source=INIT if order.resume else RESUME
    )
    steps_done = 0
    if state is not None:
        steps_done = state["step"]
        restore_model(model, state)
        inventory.restore(state.get("held"), ranks, trained=False)
    elif train.init_from is not None:
        load_initial(model, train.init_from, folder, ranks)
        telemetry.event("initialized", **{"from": train.init_from})
    if order.ulp:
        start_one_ulp_away(model, train, tf32=train.tf32 and traits_of(ranks.device).has_tf32)
    repeats = check_loss(inventory, sample, precision, seed=train.seed, device=ranks.device)
    probed = Checked()
    # A resumed run was checked at its start; the state of its model since then must not end it.
    if not steps_done:
        probed = check(task, model, dataset, size=samples, train=train, ranks=ranks)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    replicas = ReplicaCheck(model, ranks)
    replicas.at_start()
    use_tf32(ranks.device, on=train.tf32)
    sharing = strategy_for(train.strategy)
    require_wide_parameters(model, accumulates_in_float32=sharing.accumulates_in_float32)
    objective = Objective(
        task, model, precision, compiling.compiled(model) if train.compile else None
    )
    usage = _usage(
        objective,
        dataset,
        eval_dataset,
        size=samples,
        train=train,
        known=state is not None and state.get("conditional", False),
        resumes=state is not None,
        by_block=sharing.gathers_blocks,
    )
    strategy = sharing(objective, ranks, train.strategy, usage)
    if not strategy.replicated:
        replicas.stand_down()
    gradient = GradientStep(
        task, strategy, precision, ranks, inventory, seed=train.seed, moved=repeats.moved
    )
    with must_fit("the first sample"):
        complete = gradient.warm_up(
            masked, keep=made_at_first_call(None if state is None else state.get("held"))
        )
    if not (complete or probed.complete or usage.conditional or state is not None):
        looked_at = single_samples(task, model, dataset, size=samples, seed=train.seed)
        observe(objective, looked_at, masks=gradient.masks).require_all_used()
    needs_several = any(ranks.gather(repeats.needs_several))
    optimizer = Optimizer(train, task, strategy, steps=length.steps)
    optimizer.require_independence()
    if state is not None:
        restore_optimizer(strategy, optimizer.inner, state, ranks, telemetry)
        optimizer.require_layout()
        precision.load(state.get("precision", {}))
    plan = auto.settled(
        saved.plan,
        gradient,
        ranks,
        task=task,
        train=train,
        dataset=dataset,
        size=samples,
        smallest=2 if needs_several else 1,
        log_line=telemetry.log_line,
    )
    if needs_several:
        require_several_samples(model, plan, last_batch=length.batch_size(plan, length.steps - 1))
    saved.replanned(plan)
    if state is not None:
        # Once more: now there is what the first calls make, and all ranks share rank 0's buffers.
        saved.report_resume(state, inventory.restore(state.get("held"), ranks))
    unsaved = inventory.unsavable()
    in_line = train.loader.workers == 0 and gradient.draws_on_host
    gradient.seeds_host = in_line or train.loader.workers > 0
    batches = Batches(
        task,
        dataset,
        plan,
        length,
        rank=ranks.rank,
        dataset_size=samples,
        seed=train.seed,
        first_step=steps_done,
        workers=train.loader.workers,
        terms=gradient.terms,
        masked=masked,
        in_line=in_line,
        pin=is_accelerator(ranks.device),
    )
    return Assembly(
        plan=plan,
        task=task,
        model=model,
        inventory=inventory,
        strategy=strategy,
        precision=precision,
        gradient=gradient,
        optimizer=optimizer,
        control=Control(ranks, len(gradient.terms)),
        batches=batches,
        state=saved,
        length=length,
        samples=samples,
        eval_dataset=eval_dataset,
        sample=sample,
        masked=masked,
        steps_done=steps_done,
        parameters=parameters,
        probed=probed,
        needs_several=needs_several,
        warnings=[*warnings, *repeats.warnings, *probed.warnings_beside(repeats.warnings)],
        unsaved=unsaved,
        replicas=replicas,
    )


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


def _splits(
    train: Train, task: Task
) -> tuple[tuple[Dataset[Any], int], tuple[Dataset[Any] | None, int]]:
    """The datasets of train and eval with their lengths; no dataset where nothing is evaluated."""
    trained = dataset_of(task, "train", seed=train.seed)
    return trained, dataset_of(task, "eval", seed=train.seed) if train.eval.every_steps else (
        None,
        0,
    )


def _model(train: Train, task: Task, ranks: Ranks) -> nn.Module:
    """The task's model on its device, with the weights of the seed."""
    randomness.seed_host(randomness.seed_of(randomness.MODEL, train.seed))
    model = model_of(task).to(ranks.device)
    require_trainable(model)
    require_device(model, ranks.device)
    name_layers(model)
    set_to_train(model)
    if train.activation_checkpointing:
        checkpoint_blocks(model)
    return model
