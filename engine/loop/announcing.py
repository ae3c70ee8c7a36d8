"""Announcement of a run: the lines of its log and the warnings before the first step.

Not here: the parts of the run (``engine.loop.parts``).
"""

from __future__ import annotations

from typing import Final

from lockstep.domain.training.plan import BatchPlan
from lockstep.domain.verify.session import BATCH_DEPENDENT
from lockstep.engine.loop.parts import Assembly
from lockstep.engine.model.modes import kept_in_evaluation
from lockstep.engine.runtime.telemetry import Telemetry
from lockstep.engine.state.reasons import not_saved

_DRAWS: Final = (
    "the model draws random numbers: a run is repeatable, but depends on micro_size and on the "
    "ranks (use lockstep.Dropout to avoid this)"
)


def announce(assembly: Assembly, plan: BatchPlan, telemetry: Telemetry) -> None:
    """Log the training to come, and the parts of the promise that do not hold."""
    data, found, strategy = assembly.data, assembly.found, assembly.step.strategy
    size, length = data.items.splits.size, data.items.splits.length
    announce_plan(assembly, plan, telemetry)
    telemetry.log_line(
        f"{assembly.model.parameters:,} parameters, {size:,} samples, {length.steps:,} steps"
        + (f", resuming after step {data.steps_done:,}" if data.steps_done else "")
    )
    line, warning = kept_in_evaluation(assembly.model.module)
    if line:
        telemetry.log_line(line)
    if warning:
        telemetry.warn(warning)
    if size < plan.batch_size:
        telemetry.warn(
            f"the batch of {plan.batch_size:,} is larger than the dataset of {size:,} samples: "
            + length.repeated(plan, size)
        )
    if strategy.objective.task.batch_dependent:
        telemetry.warn(BATCH_DEPENDENT)
    if found.additivity.note and found.additivity.difference is None:
        telemetry.warn(found.additivity.note)
    elif found.additivity.note:
        telemetry.log_line(found.additivity.note)
    if strategy.tracks_usage:
        announce_usage(assembly, telemetry)
    for warning in found.warnings:
        telemetry.warn(warning)
    if unsaved := assembly.model.inventory.unsavable():
        telemetry.warn(not_saved(unsaved))
    if strategy.lost_promise:
        telemetry.warn(strategy.lost_promise)
    if assembly.step.gradient.draws_on_host or found.additivity.effects.draws:
        telemetry.warn(_DRAWS)


def seed_model(assembly: Assembly, telemetry: Telemetry) -> None:
    """Seed the model for each micro-batch from here on: a step was found to draw.

    All ranks must call this.
    """
    gradient, batches = assembly.step.gradient, assembly.data.batches
    known = gradient.draws_on_host or assembly.found.additivity.effects.draws
    if batches.model_drew and not known:
        telemetry.warn(_DRAWS)
    batches.stay_in_line()
    gradient.seeds_host = True


def announce_usage(assembly: Assembly, telemetry: Telemetry) -> None:
    """Report that the model is conditional, and how the strategy deals with it."""
    if assembly.state.plan.world_size > 1:
        compression = assembly.step.strategy.options.compression
        uncompressed = (
            ""
            if compression == "none"
            else f", and gradients are sent without compression: {compression}"
        )
        telemetry.log_line(
            (
                "batches use different parts of the model: ranks exchange which parameters each "
                "batch "
                "used"
            )
            + uncompressed
        )


def announce_plan(assembly: Assembly, plan: BatchPlan, telemetry: Telemetry) -> None:
    """Log the split of the batch: at the start and after each change."""
    report_plan(assembly, plan, telemetry)
    telemetry.log_line(plan.sentence())


def report_plan(assembly: Assembly, plan: BatchPlan, telemetry: Telemetry) -> None:
    """The plan as it is now, for the service."""
    splits = assembly.data.items.splits
    settled = plan.model_copy(update={"steps": splits.length.steps})
    telemetry.event(
        "plan",
        **settled.model_dump(),
        parameters=assembly.model.parameters,
        samples=splits.size,
    )
