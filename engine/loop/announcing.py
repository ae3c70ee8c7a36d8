"""Announcement of a run: the lines of its log and the warnings before the first step.

Not here: the parts of the run (``engine.loop.assembly``).
"""

from __future__ import annotations

from lockstep.domain.training.plan import BatchPlan
from lockstep.domain.verify.session import BATCH_DEPENDENT
from lockstep.engine.loop.assembly import Assembly
from lockstep.engine.model.modes import kept_in_evaluation
from lockstep.engine.runtime.telemetry import Telemetry
from lockstep.engine.state.reasons import not_saved


def announce(assembly: Assembly, plan: BatchPlan, telemetry: Telemetry) -> None:
    """Log the training to come, and the parts of the promise that do not hold."""
    announce_plan(assembly, plan, telemetry)
    telemetry.log_line(
        (
            f"{assembly.parameters:,} parameters, {assembly.samples:,} samples, "
            f"{assembly.length.steps:,} steps"
        )
        + (f", resuming after step {assembly.steps_done:,}" if assembly.steps_done else "")
    )
    line, warning = kept_in_evaluation(assembly.model)
    if line:
        telemetry.log_line(line)
    if warning:
        telemetry.warn(warning)
    if assembly.samples < plan.batch_size:
        telemetry.warn(
            f"the batch of {plan.batch_size:,} is larger than the dataset of {assembly.samples:,} "
            "samples: " + assembly.length.repeated(plan, assembly.samples)
        )
    if assembly.task.batch_dependent:
        telemetry.warn(BATCH_DEPENDENT)
    if assembly.probed.note and assembly.probed.difference is None:
        telemetry.warn(assembly.probed.note)
    elif assembly.probed.note:
        telemetry.log_line(assembly.probed.note)
    if assembly.strategy.tracks_usage:
        announce_usage(assembly, telemetry)
    for warning in assembly.warnings:
        telemetry.warn(warning)
    if assembly.unsaved:
        telemetry.warn(not_saved(assembly.unsaved))
    if assembly.strategy.lost_promise:
        telemetry.warn(assembly.strategy.lost_promise)
    if assembly.gradient.draws_on_host:
        telemetry.warn(
            "the model draws random numbers: a run is repeatable, but depends on micro_size and "
            "on the ranks (use lockstep.Dropout to avoid this)"
        )


def announce_usage(assembly: Assembly, telemetry: Telemetry) -> None:
    """Report that the model is conditional, and how the strategy deals with it."""
    if assembly.plan.world_size > 1:
        compression = assembly.strategy.options.compression
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
    settled = plan.model_copy(update={"steps": assembly.length.steps})
    telemetry.event(
        "plan", **settled.model_dump(), parameters=assembly.parameters, samples=assembly.samples
    )
