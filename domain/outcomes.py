"""How an attempt ended, and what that means for its job.

An attempt ends with an *outcome*: a reason from the enum below, the first failing rank, its exception or signal, the
last step, and advice. One table maps each reason to the job's final state and to a retry class; nothing else decides
whether a job is tried again.

Not here: the wait before a retry (``domain.timings``), and where the job goes next (``domain.placement``).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from pydantic import BaseModel, ConfigDict


class RetryClass(StrEnum):
    """What a reason says about trying again."""

    NEVER = "never"
    """The same would happen again: the person must change something."""
    RETRY = "retry"
    """It may pass anywhere, the same node included."""
    RETRY_ELSEWHERE = "retry-elsewhere"
    """It may pass on another node; the same node is tried last."""
    REPLAN = "replan"
    """It may pass with a smaller micro-batch."""


class Reason(StrEnum):
    """Why an attempt ended."""

    SUCCEEDED = "succeeded"
    """Every rank ended well."""
    CANCELLED = "cancelled"
    """Somebody asked for it."""
    TIMED_OUT = "timed_out"
    """The job ran for longer than its ``timeout_seconds``."""
    SHUTDOWN = "shutdown"
    """The service was stopped; the job goes on at the next start."""
    PREEMPTED = "preempted"
    """The job gave its devices to a more urgent one."""
    USER_ERROR = "user_error"
    """The task or the script raised, or exited with a code other than 0."""
    BAD_SPEC = "bad_spec"
    """The spec cannot be carried out: the task's class is missing, its arguments are refused, a checkpoint does not fit."""
    CODE_UNAVAILABLE = "code_unavailable"
    """The job's code could not be brought to the node."""
    OUT_OF_MEMORY = "out_of_memory"
    """The device's memory ran out."""
    HOST_OUT_OF_MEMORY = "host_out_of_memory"
    """The node's own memory ran out, and the system killed a rank."""
    KILLED = "killed"
    """A rank was ended by a signal that the service did not send."""
    NON_FINITE = "non_finite"
    """The loss or the gradient was no finite number."""
    DIVERGED = "diverged"
    """The ranks' models were no longer the same, although every step gives all of them the same gradient."""
    STALL = "stall"
    """No step was completed for longer than the limit: a rank waits for what the others do not do."""
    EXIT_STALL = "exit_stall"
    """One rank ended well and the others did not follow in time."""
    NETWORK = "network"
    """Ranks could not reach each other."""
    STORAGE = "storage"
    """The disk or the store is full or unreachable."""
    LAUNCH_FAILED = "launch_failed"
    """The launcher died or could not start the ranks."""
    LOST = "lost"
    """The node fell silent for longer than its lease."""
    UNANSWERED = "unanswered"
    """The node never took what it was given: nothing of the attempt ran, so it uses up no retry."""


class _Rule(NamedTuple):
    retry: RetryClass
    charged: bool
    """Whether the attempt counts against ``retry.max``."""
    state: str
    """The job's final state when it is not tried again."""
    advice: str


_NEVER, _RETRY, _ELSEWHERE = RetryClass.NEVER, RetryClass.RETRY, RetryClass.RETRY_ELSEWHERE

RULES: Final[dict[Reason, _Rule]] = {
    Reason.SUCCEEDED: _Rule(_NEVER, False, "succeeded", ""),
    Reason.CANCELLED: _Rule(_NEVER, False, "cancelled", ""),
    Reason.TIMED_OUT: _Rule(_NEVER, True, "failed", "Raise timeout_seconds, or give the job fewer steps."),
    Reason.SHUTDOWN: _Rule(
        _RETRY, False, "failed", "The job goes on from its checkpoint when the service is up again."
    ),
    Reason.PREEMPTED: _Rule(_RETRY, False, "failed", "The job goes on from its checkpoint when devices are free."),
    Reason.USER_ERROR: _Rule(_NEVER, True, "failed", "Read the traceback, mend the code, and submit again."),
    Reason.BAD_SPEC: _Rule(_NEVER, True, "failed", "Correct the spec and submit again."),
    Reason.CODE_UNAVAILABLE: _Rule(
        _RETRY, True, "failed", "Check that the node reaches the store, then submit again with --code."
    ),
    Reason.OUT_OF_MEMORY: _Rule(
        _NEVER, True, "failed", "Lower train.batch.micro_size: the batch, and so the training, stays the same."
    ),
    Reason.HOST_OUT_OF_MEMORY: _Rule(
        _ELSEWHERE, True, "failed", "Lower train.loader.workers, or use a node with more memory."
    ),
    Reason.KILLED: _Rule(_RETRY, True, "failed", "Look at the node's system log for who sent the signal."),
    Reason.NON_FINITE: _Rule(_NEVER, True, "failed", "Lower the learning rate, or set clip_grad_norm."),
    Reason.DIVERGED: _Rule(
        _ELSEWHERE,
        True,
        "failed",
        "Test the memory and the links of the named rank's device; a task that changes parameters itself does this too.",
    ),
    Reason.STALL: _Rule(
        _RETRY, True, "failed", "Look at the stacks of the ranks: one waits for what the others do not do."
    ),
    Reason.EXIT_STALL: _Rule(
        _NEVER, True, "failed", "Let all ranks end together: one is waiting for another that has left."
    ),
    Reason.NETWORK: _Rule(_RETRY, True, "failed", "Check that the nodes reach each other on the ranks' ports."),
    Reason.STORAGE: _Rule(_ELSEWHERE, True, "failed", "Free space on the node or in the store."),
    Reason.LAUNCH_FAILED: _Rule(_ELSEWHERE, True, "failed", "Read the launcher's own lines in the job's logs."),
    Reason.LOST: _Rule(_ELSEWHERE, True, "failed", "Check the node: lockstep nodes shows when it was last heard."),
    Reason.UNANSWERED: _Rule(
        _ELSEWHERE, False, "failed", "Check the node: lockstep nodes shows when it was last heard."
    ),
}
"""What each reason means. Every reason has exactly one line."""


class Outcome(BaseModel):
    """How an attempt ended, for the person who reads it."""

    model_config = ConfigDict(frozen=True)

    reason: Reason
    message: str
    """What happened, in one sentence."""
    rank: int | None = None
    """The first rank that failed."""
    node: str | None = None
    exit_code: int | None = None
    signal: str | None = None
    """Name of the signal that ended the rank, such as SIGKILL."""
    exception: str | None = None
    """Type and message of the exception that ended the rank."""
    traceback: str | None = None
    """The end of its traceback."""
    last_step: int | None = None
    """The last optimizer step that was completed, counted from 1."""
    advice: str = ""

    @classmethod
    def of(cls, reason: Reason, message: str, **details: object) -> Outcome:
        """An outcome with its reason's advice."""
        return cls.model_validate({"reason": reason, "message": message, "advice": RULES[reason].advice, **details})


class Verdict(NamedTuple):
    """What an outcome means for the job."""

    step: str
    """A name from ``lifecycle.STEPS``."""
    charged: bool


def judge(reason: Reason, *, charged_attempts: int, retries_max: int, cancel_requested: bool) -> Verdict:
    """Decide what happens to a job whose attempt ended for ``reason``.

    Parameters
    ----------
    reason : Reason
    charged_attempts : int
        Attempts that failed before this one and counted against the budget.
    retries_max : int
        ``retry.max`` of the spec.
    cancel_requested : bool
        Whether somebody asked to cancel the job. A requested cancel wins over any retry, and over any failure: nothing
        of the job runs, which is what was asked for. It does not undo a success.
    """
    rule = RULES[reason]
    if reason is Reason.SUCCEEDED:
        return Verdict("succeed", charged=False)
    if cancel_requested or rule.state == "cancelled":
        return Verdict("cancel", charged=False)
    if rule.retry is RetryClass.NEVER or rule.retry is RetryClass.REPLAN:
        return Verdict("fail", rule.charged)
    if rule.charged and charged_attempts >= retries_max:
        return Verdict("fail", charged=True)
    return Verdict("requeue", rule.charged)
