"""Outcomes that the agent decides because no launcher has written one.

Not here: the detection of that case (``worker.agent.assignment``), and the launcher's outcomes
(``engine.launcher.outcome``).
"""

from __future__ import annotations

from typing import Final

from pydantic import ValidationError

from lockstep.domain.life import attempt
from lockstep.domain.life.grace import StopReason
from lockstep.domain.life.outcomes import Outcome, Reason
from lockstep.domain.spec.stored import UnreadableSpecError
from lockstep.domain.version import VERSION
from lockstep.storage.objects.repositories import RepositoryUnreachableError
from lockstep.worker.folders import Folder
from lockstep.worker.launch.code import CodeUnavailableError
from lockstep.worker.launch.preparing import InitUnavailableError

UNPREPARABLE: Final = (
    CodeUnavailableError,
    InitUnavailableError,
    UnreadableSpecError,
    ValidationError,
)
"""Errors of a preparation that a repetition on this node cannot correct."""


REBOOTED: Final = Outcome.of(Reason.LOST, "the node was restarted while the attempt ran")


def unreadable(*, rebooted: bool) -> Outcome:
    """Return the outcome of an attempt without a whole ``assignment.json``.

    A power cut may take files of the last seconds.
    """
    if rebooted:
        return REBOOTED
    message = (
        "the attempt's assignment.json is damaged or of another version, so its ranks were killed"
    )
    return Outcome.of(Reason.LAUNCH_FAILED, message)


def stopped(reason: StopReason, how: str) -> Outcome:
    """Return the outcome of an attempt that was stopped before its launcher wrote a result."""
    return Outcome.of(Reason(reason), f"Stopped on request ({reason}) {how}.")


def ended_with_gang() -> Outcome:
    """Return the outcome of a part whose launcher wrote none after the failure of another."""
    return Outcome.of(Reason.NETWORK, attempt.ENDED_WITH_GANG)


def unprepared(
    error: CodeUnavailableError | InitUnavailableError | UnreadableSpecError | ValidationError,
    node: str,
) -> Outcome:
    """Return the outcome for one of the errors ``UNPREPARABLE``."""
    match error:
        case CodeUnavailableError():
            return Outcome.of(Reason.CODE_UNAVAILABLE, str(error))
        case InitUnavailableError():
            return Outcome.of(Reason.BAD_SPEC, str(error))
        case UnreadableSpecError():
            return Outcome.of(Reason.VERSION, f"node {node}: {error}")
    fault = error.errors()[0]["msg"]
    message = f"node {node}: Lockstep {VERSION} cannot read the job's plan: {fault}"
    return Outcome.of(Reason.VERSION, message)


def unfetched(error: RepositoryUnreachableError) -> Outcome:
    """Return the outcome for a repository that did not answer in several tries."""
    return Outcome.of(Reason.CODE_UNAVAILABLE, f"the code could not be fetched: {error}")


def unstarted(folder: Folder) -> Outcome:
    """Return the outcome of a claim of an earlier agent that has no launcher."""
    message = "the node's agent ended while it prepared the attempt; no rank had started"
    if not folder.exists():
        message = (
            "its node has nothing of this attempt: the agent ended before it prepared it, or a "
            "backup from before the attempt's end was restored"
        )
    return Outcome.of(Reason.SHUTDOWN, message)


def of_a_broken_disk(folder: Folder) -> Outcome | None:
    """Return the outcome of a launcher that the node's disk let write no result, else None."""
    if not folder.is_on_a_broken_disk():
        return None
    message = "the disk of the node fails or is read-only, so the attempt ended without a result"
    advice = "Check the kernel's log of the node, repair its disk, and restart its agent."
    return Outcome.of(Reason.STORAGE, message, advice=advice)


def of_a_dead_launcher(folder: Folder, status: int | None) -> Outcome:
    """Return the outcome of a launcher that ended without a result.

    ``status`` as in ``Popen``, None if unknown.
    """
    how = (
        "died"
        if status is None
        else f"was killed by signal {-status}"
        if status < 0
        else f"exited with {status}"
    )
    # It had started its ranks, so the node can launch: it was killed, possibly by the job's own
    # code.
    killed = (status is None or status < 0) and folder.files.exists(attempt.RANKS)
    message = f"the launcher {how} without writing a result, and its ranks were killed"
    details = {
        "traceback": folder.launcher_log_tail() or None,
        "log_excerpt": folder.last_log_lines() or None,
    }
    return Outcome.of(Reason.KILLED if killed else Reason.LAUNCH_FAILED, message, **details)
