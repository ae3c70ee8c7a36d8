"""Outcome of an attempt, and its consequence for the job.

An attempt ends with an *outcome*: a reason from the enum below, the first failing rank, its
exception or signal, the last step, and advice. One table maps each reason to the job's final state,
to a retry class, and to the responsible party. ``judge`` applies it to the job's earlier attempts
(``AttemptHistory``). Nothing else decides about a retry:

1. A success succeeds. A requested cancel wins over everything else.
2. A class ``never`` fails. ``replan`` fails too if the micro-batch is one sample already or the
loop is the job's own.
3. A job that failed on ``STUCK_NODES_MAX`` nodes after the same step fails: the nodes are not the
cause.
4. A *counted* attempt uses one of ``retry.max``. **Progress** since the attempt before, whatever
ended that, restarts the count: for a train job a newer published checkpoint, from which the next
attempt resumes; for a script, which keeps its own, a later step in its metrics. A run of a week
that fails every day continues, and one that fails between the same two checkpoints does not. With
``retry.max: 3`` a job ends when four attempts in a row made no progress: five attempts in all, if
the second one made more than the first. Each retry's event has its number.
5. Attempts that are not counted end the job only if it loops: ``FRUITLESS_MAX`` in a row without
progress, none of which ran for ``LONG_SECONDS``. User code that sends its own launcher SIGTERM
looks like a service that restarts.
6. No job has more than ``ATTEMPTS_MAX`` attempts, because a script can report any step.

Not here: the wait before a retry (``domain.life.timings``), the next placement
(``domain.placement.decide``), quarantine of nodes (``domain.life.quarantine``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple

from pydantic import BaseModel, ConfigDict

STUCK_NODES_MAX: Final = 3
"""Nodes on which a job may fail after the same step before it is held to be its own fault."""
FRUITLESS_MAX: Final = 30
"""Short attempts in a row without progress. With the backoff about an hour: a service may restart often, too."""
LONG_SECONDS: Final = 600.0
"""An attempt of at least this duration does not loop, even if its progress is unknown."""
ATTEMPTS_MAX: Final = 1_000


class RetryClass(StrEnum):
    """Retry behaviour of a reason."""

    NEVER = "never"
    """A retry would fail in the same way: the user must change something."""
    RETRY = "retry"
    """It may pass anywhere, the same node included."""
    RETRY_ELSEWHERE = "retry-elsewhere"
    """It may pass on another node; the same node is tried last."""
    REPLAN = "replan"
    """It may pass with a smaller micro-batch: the next attempt halves it, down to one sample, and the batch stays."""


class Reason(StrEnum):
    """Reason for the end of an attempt."""

    SUCCEEDED = "succeeded"
    """Every rank ended well."""
    CANCELLED = "cancelled"
    """Cancelled by a user."""
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
    """A rank, or the launcher of running ranks, was ended by a signal that the service did not send."""
    NON_FINITE = "non_finite"
    """The loss or the gradient was no finite number."""
    DIVERGED = "diverged"
    """The ranks' models were no longer the same, although every step gives all of them the same gradient."""
    STALL = "stall"
    """No step was completed for longer than the limit: a rank waits for an operation that the
    others do not run."""
    EXIT_STALL = "exit_stall"
    """One rank ended well and the others did not follow in time."""
    NETWORK = "network"
    """Ranks could not reach each other."""
    STORAGE = "storage"
    """The disk or the store is full or unreachable."""
    LAUNCH_FAILED = "launch_failed"
    """The launcher could not start the ranks, or failed itself."""
    LOST = "lost"
    """The node fell silent for longer than its lease."""
    CUT_OFF = "cut_off"
    """The node could not renew its lease and stopped its ranks, but its lease was not declared
    expired: the service was away."""
    UNANSWERED = "unanswered"
    """The node never took its assignment: nothing of the attempt ran, so it uses no retry."""
    VERSION = "version"
    """A program of another version of Lockstep could not read a stored document."""


class _Rule(NamedTuple):
    retry: RetryClass
    charged: bool
    """True if the attempt counts against ``retry.max``."""
    state: str
    """The job's final state when it is not tried again."""
    advice: str
    blames_node: bool = False
    """The node may be at fault. It counts for ``domain.life.quarantine`` where the agent or the scheduler observed it."""


_NEVER, _RETRY, _ELSEWHERE = RetryClass.NEVER, RetryClass.RETRY, RetryClass.RETRY_ELSEWHERE

RULES: Final[dict[Reason, _Rule]] = {
    Reason.SUCCEEDED: _Rule(_NEVER, False, "succeeded", ""),
    Reason.CANCELLED: _Rule(_NEVER, False, "cancelled", ""),
    Reason.TIMED_OUT: _Rule(_NEVER, True, "failed", "Raise timeout_seconds, or give the job fewer steps."),
    Reason.SHUTDOWN: _Rule(
        _RETRY, False, "failed", "The job resumes from its checkpoint when the service is up again."
    ),
    Reason.PREEMPTED: _Rule(_RETRY, False, "failed", "The job resumes from its checkpoint when devices are free."),
    Reason.USER_ERROR: _Rule(_NEVER, True, "failed", "Read the traceback, fix the code, and submit again."),
    Reason.BAD_SPEC: _Rule(_NEVER, True, "failed", "Correct the spec and submit again."),
    Reason.CODE_UNAVAILABLE: _Rule(
        _RETRY,
        True,
        "failed",
        "Check that the node can reach the store, then submit again with --code.",
    ),
    Reason.OUT_OF_MEMORY: _Rule(
        RetryClass.REPLAN,
        False,
        "failed",
        "Use activation_checkpointing: true, precision: bf16, a smaller model or devices with more memory; in a script, "
        "a smaller micro-batch.",
    ),
    Reason.HOST_OUT_OF_MEMORY: _Rule(
        _ELSEWHERE,
        True,
        "failed",
        "Lower train.loader.workers, or use a node with more memory.",
    ),
    Reason.KILLED: _Rule(_RETRY, True, "failed", "Check the node's system log for the sender of the signal."),
    Reason.NON_FINITE: _Rule(_NEVER, True, "failed", "Lower the learning rate, or set clip_grad_norm."),
    Reason.DIVERGED: _Rule(
        _ELSEWHERE,
        True,
        "failed",
        "Test the memory and the links of that rank's device. A task that changes parameters "
        "itself has the same effect.",
    ),
    Reason.STALL: _Rule(
        _RETRY,
        True,
        "failed",
        "Compare the stacks of the ranks: one waits for an operation that the others do not enter.",
    ),
    Reason.EXIT_STALL: _Rule(
        _NEVER,
        True,
        "failed",
        "Make all ranks end together: one waits for another that has exited.",
    ),
    Reason.NETWORK: _Rule(_RETRY, True, "failed", "Check that the nodes can reach each other on the ranks' ports."),
    Reason.STORAGE: _Rule(_ELSEWHERE, True, "failed", "Free space on the node or in the store.", blames_node=True),
    Reason.LAUNCH_FAILED: _Rule(
        _ELSEWHERE,
        True,
        "failed",
        "Read the lines of the launcher in the job's log.",
        blames_node=True,
    ),
    Reason.LOST: _Rule(
        _ELSEWHERE,
        True,
        "failed",
        "Check the node: lockstep nodes shows its last heartbeat.",
        blames_node=True,
    ),
    Reason.CUT_OFF: _Rule(_RETRY, False, "failed", "Check that the database and the node's agent are running."),
    Reason.UNANSWERED: _Rule(
        _ELSEWHERE,
        False,
        "failed",
        "Check the node: lockstep nodes shows its last heartbeat.",
        blames_node=True,
    ),
    Reason.VERSION: _Rule(
        _ELSEWHERE,
        False,
        "failed",
        "Upgrade Lockstep on the node: lockstep nodes shows the version of each node.",
    ),
}
"""Meaning of each reason. Every reason has exactly one line."""


class Outcome(BaseModel):
    """Outcome of an attempt, for the user."""

    model_config = ConfigDict(frozen=True)

    reason: Reason
    message: str
    """Description in one sentence."""
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
    log_excerpt: str | None = None
    """The last lines that the rank wrote."""
    last_step: int | None = None
    """The last optimizer step that was completed, counted from 1."""
    advice: str = ""

    @classmethod
    def stored(cls, document: Mapping[str, Any]) -> Outcome:
        """Read an outcome that another version may have stored.

        It is a report: a field that only a newer version has is left out, and a reason that only a newer version has
        becomes ``version``, so that one such row stops no pass and no page.
        """
        known = document.get("reason") in set(Reason)
        return cls.model_validate(document if known else {**document, "reason": Reason.VERSION})

    @classmethod
    def of(cls, reason: Reason, message: str, **details: object) -> Outcome:
        """An outcome with its reason's advice."""
        return cls.model_validate({"reason": reason, "message": message, "advice": RULES[reason].advice, **details})


_DEVICE_MEMORY: Final = re.compile(
    r"OutOfMemoryError|\b(CUDA|HIP|XPU|MPS backend)( error:)? out of memory", re.IGNORECASE
)
DEVICE_MEMORY_ADVICE: Final = (
    "The device ran out of memory. Use a smaller micro-batch with more accumulation steps in the "
    "script, lower precision or activation checkpointing, or ask for devices with more memory."
)


def with_advice_of_cause(outcome: Outcome) -> Outcome:
    """Return the outcome with the advice of its cause if its reason is ``user_error``.

    A script handles its own batch, so Lockstep cannot run it again with a smaller one: the reason
    stays.
    """
    if outcome.reason is not Reason.USER_ERROR or outcome.advice != RULES[Reason.USER_ERROR].advice:
        return outcome
    told = "\n".join(filter(None, (outcome.exception, outcome.traceback, outcome.log_excerpt)))
    if _DEVICE_MEMORY.search(told) is None:
        return outcome
    return outcome.model_copy(update={"advice": DEVICE_MEMORY_ADVICE})


@dataclass(frozen=True)
class AttemptHistory:
    """Summary of a job's earlier attempts for the rules."""

    charged: int = 0
    """Counted attempts since the last progress."""
    fruitless: int = 0
    """Short attempts in a row without progress, counted or not."""
    step: int = 0
    """Progress of the job at the end of its last attempt; see ``AttemptEnd.reached``."""
    stuck_step: int | None = None
    """The step after which the last counted attempt failed."""
    stuck_nodes: tuple[str, ...] = ()
    """On which nodes, one after the other, attempts have failed after it."""


@dataclass(frozen=True)
class AttemptEnd:
    """Facts about an ended attempt, beside its outcome."""

    number: int
    """Counted from 1."""
    ran_seconds: float
    """From all ranks having met to the end; 0 where they never met."""
    reached: int
    """Step from which the next attempt resumes: a train job's newest published checkpoint, a
    script's last step; 0 if none."""
    retries_max: int
    """``retry.max`` of the spec."""
    cancel_requested: bool = False
    """A user cancelled the job. That wins over any retry and any failure: nothing of the job runs,
    as requested. It does not undo a success."""
    can_halve: bool = False
    """The plan's micro-batch holds more than one sample."""


@dataclass(frozen=True)
class JobDecision:
    """Consequence of an outcome for the job."""

    step: str
    """A name from ``lifecycle.STEPS``."""
    charged: bool
    record: AttemptHistory
    """To be judged by the next time."""
    failures: int = 0
    """Number of doublings of the wait (``Timings.backoff``); 0 retries at once."""
    halve: bool = False
    """The next attempt runs half the micro-batch."""
    note: str = ""
    """Reason for not retrying, although the outcome's reason allows it."""
    explanation: str = ""
    """Number of this retry of ``retry.max``, and why the count started again if it did; empty without a retry."""
    advice: str = ""
    """Replaces the outcome's advice if the note requires another action."""


def judge(outcome: Outcome, before: AttemptHistory, ending: AttemptEnd) -> JobDecision:
    """Return the decision about a job whose attempt ended with ``outcome``.

    The module lists the rules.
    """
    rule = RULES[outcome.reason]
    if outcome.reason is Reason.SUCCEEDED:
        return JobDecision("succeed", charged=False, record=before)
    if ending.cancel_requested or rule.state == "cancelled":
        return JobDecision("cancel", charged=False, record=before)
    if rule.retry is RetryClass.NEVER or (rule.retry is RetryClass.REPLAN and not ending.can_halve):
        return JobDecision("fail", rule.charged, record=before)
    record = _recorded(outcome, before, ending, charged=rule.charged)
    verdict = JobDecision(
        "requeue",
        rule.charged,
        record,
        # The first attempt that is not counted does not wait: usually a service was restarted.
        failures=record.fruitless if rule.charged else record.fruitless - 1,
        halve=rule.retry is RetryClass.REPLAN,
    )
    note, advice = _why_not_again(record, ending, charged=rule.charged)
    if note:
        return replace(verdict, step="fail", halve=False, note=note, advice=advice)
    return replace(verdict, explanation=_which_retry(before, record, ending, charged=rule.charged))


def _which_retry(before: AttemptHistory, record: AttemptHistory, ending: AttemptEnd, *, charged: bool) -> str:
    if not charged:
        return "not counted as a retry"
    which = f"retry {record.charged} of {ending.retries_max}"
    if before.charged and record.step > before.step:
        return f"{which}: the count is reset, because the job advanced from step {before.step} to step {record.step}"
    if record.charged > 1:
        return f"{which} without progress" + (f" since step {record.step}" if record.step else "")
    return which


def _recorded(outcome: Outcome, before: AttemptHistory, ending: AttemptEnd, *, charged: bool) -> AttemptHistory:
    progressed = ending.reached > before.step
    stuck_step, stuck_nodes = before.stuck_step, before.stuck_nodes
    if charged:
        if outcome.last_step != stuck_step:
            stuck_step, stuck_nodes = outcome.last_step, ()
        if outcome.last_step is not None and outcome.node is not None and outcome.node not in stuck_nodes:
            stuck_nodes = (*stuck_nodes, outcome.node)
    return AttemptHistory(
        charged=(0 if progressed else before.charged) + (1 if charged else 0),
        fruitless=1 if progressed or ending.ran_seconds >= LONG_SECONDS else before.fruitless + 1,
        step=max(before.step, ending.reached),
        stuck_step=stuck_step,
        stuck_nodes=stuck_nodes,
    )


def _why_not_again(record: AttemptHistory, ending: AttemptEnd, *, charged: bool) -> tuple[str, str]:
    """Return the obstacle to a retry that the reason allows, and advice. Empty if there is none."""
    if charged and len(record.stuck_nodes) >= STUCK_NODES_MAX:
        nodes = ", ".join(record.stuck_nodes)
        return (
            f"it failed on {len(record.stuck_nodes)} nodes ({nodes}) after the same step, so "
            "the job itself is the cause",
            f"Check the job's code and the samples of the batch after step {record.stuck_step}.",
        )
    if charged and record.charged > ending.retries_max:
        counted = "an attempt" if record.charged == 1 else f"{record.charged} attempts in a row"
        further = f"no further than step {record.step}" if record.step else "no further"
        note = f"{counted} got {further}, and retry.max is {ending.retries_max}"
        if earlier := ending.number - record.charged:
            note += (
                f"; {earlier} of the {ending.number} attempts {'is' if earlier == 1 else 'are'} "
                "not counted, because progress resets the count and ends such as a preemption "
                "are excluded"
            )
        return note, ""
    if not charged and record.fruitless >= FRUITLESS_MAX:
        return (
            f"{record.fruitless} attempts in a row ended early and made no progress",
            "Find the cause: the job's code may stop its launcher, or the service restarts too often.",
        )
    if ending.number >= ATTEMPTS_MAX:
        return f"it had {ending.number} attempts", ""
    return "", ""
