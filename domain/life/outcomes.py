"""Outcome of an attempt.

An attempt ends with an *outcome*: a reason from the enum below, the first failing rank, its
exception or signal, the last step, and advice. One table maps each reason to the job's final state,
to a retry class, and to the responsible party.

Not here: the decision about a retry (``domain.life.retrying``), quarantine of nodes
(``domain.life.quarantine``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Annotated, Any, Final, NamedTuple

from pydantic import AfterValidator, BaseModel, GetJsonSchemaHandler
from pydantic_core import CoreSchema

from lockstep.domain import limits


class RetryClass(StrEnum):
    """Retry behaviour of a reason."""

    NEVER = "never"
    """A retry would fail in the same way: the user must change something."""
    RETRY = "retry"
    """It may pass anywhere, the same node included."""
    RETRY_ELSEWHERE = "retry-elsewhere"
    """It may pass on another node; the same node is tried last."""
    AS_ASKED = "as-asked"
    """A user stopped the attempt, and has chosen what follows: a pause, or the queue."""
    REPLAN = "replan"
    """It may pass with a smaller micro-batch: the next attempt halves it, down to one sample, and
    the batch stays."""


class Reason(StrEnum):
    """Reason for the end of an attempt."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Add the passing reasons to the API's description: the pages keep no list of reasons."""
        found = handler(schema)
        handler.resolve_ref_schema(found)["x-passing"] = [
            reason.value for reason, rule in RULES.items() if rule.passing
        ]
        return found

    SUCCEEDED = "succeeded"
    """Every rank ended well."""
    CANCELLED = "cancelled"
    """Cancelled by a user."""
    TIMED_OUT = "timed_out"
    """The job ran for longer than its ``timeout_seconds``."""
    PAUSED = "paused"
    """Paused by a user."""
    REQUEUED = "requeued"
    """Stopped by a user, to start again."""
    SHUTDOWN = "shutdown"
    """The service was stopped; the job continues at the next start."""
    PREEMPTED = "preempted"
    """The job gave its devices to a more urgent one."""
    USER_ERROR = "user_error"
    """The task or the script raised, or exited with a code other than 0."""
    BAD_SPEC = "bad_spec"
    """The spec cannot be carried out: the task's class is missing, its arguments are refused, a
    checkpoint does not fit."""
    CODE_UNAVAILABLE = "code_unavailable"
    """The job's code could not be brought to the node."""
    OUT_OF_MEMORY = "out_of_memory"
    """The device's memory ran out."""
    HOST_OUT_OF_MEMORY = "host_out_of_memory"
    """The node's own memory ran out, and the system killed a rank."""
    KILLED = "killed"
    """A signal ended a rank, or the launcher of running ranks: another program sent it, or native
    code crashed."""
    NON_FINITE = "non_finite"
    """The loss or the gradient was no finite number."""
    DIVERGED = "diverged"
    """The ranks' models were no longer the same, although every step gives all of them the same
    gradient."""
    STALL = "stall"
    """No step was completed for longer than the limit: a rank waits for an operation that the
    others do not run."""
    EXIT_STALL = "exit_stall"
    """One rank ended well and the others did not follow in time."""
    NETWORK = "network"
    """Ranks could not reach each other."""
    PORT_IN_USE = "port_in_use"
    """A rank could not listen on a port, because another process of its node holds it."""
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
    """A program of another version of Lockstep could not read a stored document, or the nodes of a
    job run different versions of Lockstep or torch."""


class _Rule(NamedTuple):
    retry: RetryClass
    charged: bool
    """True if the attempt counts against ``retry.max``."""
    state: str
    """The job's final state when it is not tried again."""
    advice: str
    blames_node: bool = False
    """The node may be at fault. It counts for ``domain.life.quarantine`` where the agent or the
    scheduler observed it."""
    train_only: bool = False
    """A script never ends for this reason: the engine observes it in its own loop."""
    passing: bool = False
    """True if the job's code is not at fault, and the job continues by itself or when asked to.
    Pages show it as an interruption."""


_NEVER, _RETRY, _ELSEWHERE = RetryClass.NEVER, RetryClass.RETRY, RetryClass.RETRY_ELSEWHERE

RULES: Final[dict[Reason, _Rule]] = {
    Reason.SUCCEEDED: _Rule(_NEVER, False, "succeeded", ""),
    Reason.CANCELLED: _Rule(_NEVER, False, "cancelled", ""),
    Reason.TIMED_OUT: _Rule(
        _NEVER, True, "failed", "Raise timeout_seconds, or give the job fewer steps."
    ),
    Reason.PAUSED: _Rule(
        RetryClass.AS_ASKED,
        False,
        "failed",
        "Continue it with: lockstep resume JOB.",
        passing=True,
    ),
    Reason.REQUEUED: _Rule(
        RetryClass.AS_ASKED,
        False,
        "failed",
        "The job resumes from its checkpoint when devices are free.",
        passing=True,
    ),
    Reason.SHUTDOWN: _Rule(
        _RETRY,
        False,
        "failed",
        "The job resumes from its checkpoint when the service is up again.",
        passing=True,
    ),
    Reason.PREEMPTED: _Rule(
        _RETRY,
        False,
        "failed",
        "The job resumes from its checkpoint when devices are free.",
        passing=True,
    ),
    Reason.USER_ERROR: _Rule(
        _NEVER, True, "failed", "Read the traceback, fix the code, and submit again."
    ),
    Reason.BAD_SPEC: _Rule(_NEVER, True, "failed", "Correct the spec and submit again."),
    Reason.CODE_UNAVAILABLE: _Rule(
        _RETRY,
        True,
        "failed",
        "Check that the node can reach the store or the repository, or submit with --code.",
    ),
    Reason.OUT_OF_MEMORY: _Rule(
        RetryClass.REPLAN,
        False,
        "failed",
        "Use activation_checkpointing: true, precision: bf16, a smaller model or devices with "
        "more memory; in a script, "
        "a smaller micro-batch.",
    ),
    Reason.HOST_OUT_OF_MEMORY: _Rule(
        _ELSEWHERE,
        True,
        "failed",
        "Use fewer loader workers (train.loader.workers), or a node with more memory.",
    ),
    Reason.KILLED: _Rule(
        _RETRY, True, "failed", "Check the node's system log for the sender of the signal."
    ),
    Reason.NON_FINITE: _Rule(
        _NEVER,
        True,
        "failed",
        "Lower the learning rate, or set clip_grad_norm.",
        train_only=True,
    ),
    Reason.DIVERGED: _Rule(
        _ELSEWHERE,
        True,
        "failed",
        "Test the memory and the links of that rank's device. A task that changes parameters "
        "itself has the same effect.",
        train_only=True,
    ),
    Reason.STALL: _Rule(
        _RETRY,
        True,
        "failed",
        "Compare the stacks of the ranks: one waits for an operation that the others do not enter.",
        train_only=True,
    ),
    Reason.EXIT_STALL: _Rule(
        _NEVER,
        True,
        "failed",
        "Make all ranks end together: one waits for another that has exited.",
    ),
    Reason.NETWORK: _Rule(
        _RETRY, True, "failed", "Check that the nodes can reach each other on the ranks' ports."
    ),
    Reason.PORT_IN_USE: _Rule(
        _ELSEWHERE,
        True,
        "failed",
        "Do not write a port into the job: use MASTER_ADDR and MASTER_PORT of the environment "
        "(env:// in torch), or port 0, for which the system chooses a free one.",
    ),
    Reason.STORAGE: _Rule(
        _ELSEWHERE, True, "failed", "Free space on the node or in the store.", blames_node=True
    ),
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
        passing=True,
    ),
    Reason.CUT_OFF: _Rule(
        _RETRY,
        False,
        "failed",
        "Check that the database and the node's agent are running.",
        passing=True,
    ),
    Reason.UNANSWERED: _Rule(
        _ELSEWHERE,
        False,
        "failed",
        "Check the node: lockstep nodes shows its last heartbeat.",
        blames_node=True,
        passing=True,
    ),
    Reason.VERSION: _Rule(
        _ELSEWHERE,
        False,
        "failed",
        "Upgrade Lockstep on the node, or torch: lockstep nodes shows the version of each node.",
        passing=True,
    ),
}
"""Meaning of each reason. Every reason has exactly one line."""


def _cut(text: str) -> str:
    content = text.encode()
    if len(content) <= limits.OUTCOME_TEXT_BYTES_MAX:
        return text
    kept = limits.OUTCOME_TEXT_BYTES_MAX - len("…".encode())
    return content[:kept].decode(errors="ignore") + "…"


def _end_of(chars: int) -> Callable[[str], str]:
    return lambda text: text[-chars:]


Text = Annotated[str, AfterValidator(_cut)]
"""Text of an outcome: a rank may have written it, and it goes into a row and onto pages."""


class Outcome(BaseModel, frozen=True):
    """Outcome of an attempt, for the user. Texts beyond their limits are cut."""

    reason: Reason
    message: Text
    """Description in one sentence."""
    rank: int | None = None
    """The first rank that failed."""
    node: Text | None = None
    exit_code: int | None = None
    signal: Text | None = None
    """Name of the signal that ended the rank, such as SIGKILL."""
    exception: Text | None = None
    """Type and message of the exception that ended the rank."""
    traceback: Annotated[str, AfterValidator(_end_of(limits.TRACEBACK_CHARS_MAX))] | None = None
    """The end of its traceback."""
    log_excerpt: Annotated[str, AfterValidator(_end_of(limits.EXCERPT_CHARS_MAX))] | None = None
    """The last lines that the rank wrote."""
    last_step: int | None = None
    """The last optimizer step that was completed, counted from 1."""
    advice: Text = ""

    @classmethod
    def stored(cls, document: Mapping[str, Any]) -> Outcome:
        """Read an outcome that another version may have stored.

        It is a report: a field that only a newer version has is left out, and a reason that only a
        newer version has becomes ``version``, so that one such row stops no pass and no page.
        """
        known = document.get("reason") in set(Reason)
        return cls.model_validate(document if known else {**document, "reason": Reason.VERSION})

    @classmethod
    def of(cls, reason: Reason, message: str, **details: object) -> Outcome:
        """An outcome with its reason's advice."""
        return cls.model_validate(
            {"reason": reason, "message": message, "advice": RULES[reason].advice, **details}
        )


_ADVICE: Final = (
    (
        re.compile(
            r"OutOfMemoryError|\b(CUDA|HIP|XPU|MPS backend)( error:)? out of memory", re.IGNORECASE
        ),
        "The device ran out of memory. Use a smaller micro-batch with more accumulation steps in "
        "the script, lower precision or activation checkpointing, or ask for devices with more "
        "memory.",
    ),
    (
        re.compile(r"EOFError: EOF when reading a line"),
        "A job has no input to read: give the value as an argument, in env or in a file.",
    ),
)
"""Advice for texts that name the cause of an error."""
_WINDOWS: Final = re.compile(
    r"\\r['’]: (?:No such file|command not found)|\$'[^'\n]*\\r'"
    r"|^: (?:invalid option|command not found|No such file)",
    re.MULTILINE,
)
"""Errors of env and of shells about a word that ends in a carriage return."""
_WINDOWS_ADVICE: Final = (
    "A file of the script has Windows line ends: convert it with dos2unix, and write `*.sh text "
    "eol=lf` into .gitattributes."
)
_ADVICE_OF_CODES: Final = {
    124: "`timeout` in the script ended its command, if the script has one: raise its time, or "
    "find what the command waited for.",
    126: "A file that the script runs may not be executed, and the log names it: run chmod +x, or "
    "put its interpreter first, as in `bash run.sh`.",
    127: "A command of the script was not found, and the log names it: install it on the nodes, "
    "send it with --code, or correct its name.",
}
"""Advice for exit codes of shells and of ``timeout``."""
_LOG_ADVICE: Final = "Read the last lines of its log, fix the code, and submit again."


def with_advice_of_cause(outcome: Outcome) -> Outcome:
    """Return the outcome with the advice of its cause if its reason is ``user_error``.

    A script handles its own batch, so Lockstep cannot run it again with a smaller one: the reason
    stays.
    """
    if outcome.reason is not Reason.USER_ERROR or outcome.advice != RULES[Reason.USER_ERROR].advice:
        return outcome
    output = "\n".join(filter(None, (outcome.exception, outcome.traceback, outcome.log_excerpt)))
    otherwise = outcome.advice if outcome.exception else _advice_of_end(outcome.exit_code, output)
    advice = next((advice for cause, advice in _ADVICE if cause.search(output)), otherwise)
    return outcome.model_copy(update={"advice": advice})


def _advice_of_end(exit_code: int | None, output: str) -> str:
    """Return the advice about a script that ended without an exception."""
    if _WINDOWS.search(output):
        return _WINDOWS_ADVICE
    return _ADVICE_OF_CODES.get(exit_code or 0, _LOG_ADVICE)
