"""A step that does not fit into memory is repeated in smaller micro-batches.

The same batch, the same step (C36).

All ranks agree on it through the control operation, so all of them split in the same step.

Not here: how a rank notices without leaving the others waiting (``engine.step.gradient``), the
search for a size that fits (``engine.memory.auto``).
"""

from __future__ import annotations

from lockstep.domain.life.outcomes import Reason
from lockstep.domain.training.plan import BatchPlan
from lockstep.engine.data.loader import RankBatch
from lockstep.engine.loop.announcing import announce_plan
from lockstep.engine.loop.parts import Assembly
from lockstep.engine.memory.advice import ADVICE
from lockstep.engine.model.normalization import has_single_samples
from lockstep.engine.runtime.errors import EngineError
from lockstep.engine.runtime.telemetry import Telemetry


def halve(
    parts: Assembly, plan: BatchPlan, step: int, telemetry: Telemetry
) -> tuple[BatchPlan, RankBatch, RankBatch | None]:
    """Forget a step, and split its batch into micro-batches of half the size.

    All ranks must call this.

    Returns the new plan, the same batch, and the one after it, both fetched again.

    Raises
    ------
    EngineError
        ``out_of_memory``: one sample at a time is too much, or two where BatchNorm needs them.
    """
    smaller = plan.halved()
    if smaller is None or (
        parts.found.needs_several and has_single_samples(smaller, smaller.batch_size)
    ):
        fewest = "two samples" if parts.found.needs_several else "one sample"
        raise EngineError(
            Reason.OUT_OF_MEMORY,
            f"step {step + 1} does not fit into memory with micro-batches of {fewest}: {ADVICE}",
        )
    telemetry.warn(
        f"step {step + 1} ran out of memory: continuing with micro-batches of "
        f"{smaller.micro_batch_size} instead of {plan.micro_batch_size}; the batch stays "
        f"{smaller.batch_size}"
    )
    parts.step.gradient.abandon(parts.data.items.masked)
    parts.data.batches.replan(smaller, step)
    parts.state.replanned(smaller)
    announce_plan(parts, smaller, telemetry)
    batch = parts.data.batches.take()
    assert batch is not None, "a repeated step has a batch"
    return smaller, batch, parts.data.batches.take()
