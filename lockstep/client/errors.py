"""Errors of the client, and the exit codes of the command.

This is the only table of exit codes. Scripts rely on it: a number never changes its meaning.

Not here: the printing of an error (``cli.app``), and retries (``client.transport``).
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

from lockstep.domain.errors import ErrorCode
from lockstep.domain.life.lifecycle import JobState

if TYPE_CHECKING:
    from lockstep.domain.views import FieldProblem, Problem


class ExitCode(IntEnum):
    """Exit code of a ``lockstep`` command."""

    OK = 0
    FAILED = 1
    """The job failed, or its spec (bad YAML included) or the request was refused."""
    USAGE = 2
    NOT_FOUND = 3
    NOT_ALLOWED = 4
    UNREACHABLE = 5
    CANCELLED = 6
    TIMED_OUT = 124
    """As ``timeout(1)`` reports it."""
    INTERRUPTED = 130
    """As a shell reports a command that SIGINT ended."""


OF_STATE: Final[dict[JobState, ExitCode]] = {
    JobState.SUCCEEDED: ExitCode.OK,
    JobState.FAILED: ExitCode.FAILED,
    JobState.CANCELLED: ExitCode.CANCELLED,
}
"""Exit code for each way a job can end."""


class ClientError(Exception):
    """Failure with a message for the user: the fault, its cause, and the next step."""

    exit_code: ExitCode = ExitCode.FAILED

    def __init__(self, message: str, *, next_step: str = ""):
        super().__init__(message)
        self.message = message
        self.next_step = next_step


class UsageError(ClientError):
    """Invalid use: a missing file, an unreadable setting."""

    exit_code = ExitCode.USAGE


class UnreachableError(ClientError):
    """The server did not answer, also after the retries."""

    exit_code = ExitCode.UNREACHABLE


class UncertainError(UnreachableError):
    """A request that must not be sent twice got no answer and may have been carried out."""


class ChangedError(UnreachableError):
    """Another file is at the address than the requested one."""


class TimedOutError(ClientError):
    """A wait reached its time limit."""

    exit_code = ExitCode.TIMED_OUT


class SpecRefusedError(ClientError):
    """A job spec is wrong.

    Found before anything was sent, or answered by the server: the words are the same.

    Attributes
    ----------
    errors : list of FieldProblem
        One per wrong value, with its JSON pointer.
    """

    def __init__(self, message: str, errors: list[FieldProblem], *, next_step: str = ""):
        super().__init__(message, next_step=next_step)
        self.errors = errors


class RefusedError(ClientError):
    """The server refused the request; ``problem`` is its RFC 9457 document."""

    def __init__(self, problem: Problem):
        super().__init__(problem.detail or problem.title, next_step=problem.next_step)
        self.problem = problem


class NotFoundError(RefusedError):
    """There is no such job, file or page."""

    exit_code = ExitCode.NOT_FOUND


class NotAllowedError(RefusedError):
    """The token is missing, unknown, or not enough for this."""

    exit_code = ExitCode.NOT_ALLOWED


class UnavailableError(RefusedError):
    """The server answers that it cannot work now, also after the retries."""

    exit_code = ExitCode.UNREACHABLE


_BY_CODE: Final[dict[str, type[RefusedError]]] = {
    ErrorCode.NOT_FOUND: NotFoundError,
    ErrorCode.UNAUTHENTICATED: NotAllowedError,
    ErrorCode.FORBIDDEN: NotAllowedError,
    ErrorCode.UNAVAILABLE: UnavailableError,
    ErrorCode.TOO_MANY_REQUESTS: UnavailableError,
}
_BY_STATUS: Final[dict[int, type[RefusedError]]] = {
    401: NotAllowedError,
    403: NotAllowedError,
    404: NotFoundError,
    429: UnavailableError,
    502: UnavailableError,
    503: UnavailableError,
    504: UnavailableError,
}


def refusal(problem: Problem) -> RefusedError:
    """The exception for a problem document.

    A proxy's answer without a code of ours goes by its status.
    """
    return (_BY_CODE.get(problem.code) or _BY_STATUS.get(problem.status) or RefusedError)(problem)
