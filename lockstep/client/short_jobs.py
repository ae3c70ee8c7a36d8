"""Short jobs that a command submits one after the other.

Not here: their specs (``domain.training.short_run``), and what is read from them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep.client.errors import ClientError, TimedOutError

if TYPE_CHECKING:
    from lockstep.client.api import Client
    from lockstep.domain.views import JobView


def ended(client: Client, job: JobView, wait_seconds: float) -> JobView:
    """Wait for a job's end, and cancel it if that takes too long or is interrupted.

    Raises
    ------
    TimedOutError
        If it has not ended in time.
    """
    try:
        return client.wait(job.id, wait_seconds)
    except (TimedOutError, KeyboardInterrupt) as error:
        client.cancel(job.id)  # Its results are not needed any more.
        if isinstance(error, TimedOutError):
            error.next_step = "it was cancelled; raise --wait-seconds"
        raise


def failure(job: JobView, what: str, *, next_step: str) -> ClientError:
    """The error for a run that has not succeeded."""
    why = job.state if job.outcome is None else f"{job.outcome.reason}: {job.outcome.message}"
    return ClientError(f"the run {what} ended as {job.state} ({why})", next_step=next_step)
