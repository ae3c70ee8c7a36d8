"""Actions that the audit names, and their outcomes.

Not here: the rows (``storage.people.audit``), the transactions that write them (``api.changes``).
"""

from __future__ import annotations

from enum import StrEnum


class Action(StrEnum):
    """Kind of change. A row about a refusal has the missing ``domain.rights.Right`` instead."""

    JOB_SUBMIT = "job.submit"
    JOB_CLONE = "job.clone"
    JOB_CANCEL = "job.cancel"
    JOB_PAUSE = "job.pause"
    JOB_RESUME = "job.resume"
    JOB_REQUEUE = "job.requeue"
    JOB_MARK = "job.mark"
    """Change its labels, its note or its star."""
    JOB_DELETE = "job.delete"
    JOB_FILES_DELETE = "job.files_delete"
    NODE_DRAIN = "node.drain"
    NODE_RESUME = "node.resume"
    NODE_REMOVE = "node.remove"
    USER_ADD = "user.add"
    USER_CHANGE = "user.change"
    USER_INVITE = "user.invite"
    USER_RESTORE = "user.restore"
    """Restore the access of an admin, by a command on the server's machine."""
    PROJECT_ADD = "project.add"
    PROJECT_CHANGE = "project.change"
    MEMBER_SET = "member.set"
    MEMBER_REMOVE = "member.remove"
    SESSION_START = "session.start"
    SESSION_END = "session.end"
    SIGN_IN_CODE_CREATE = "sign_in_code.create"
    INVITATION_ACCEPT = "invitation.accept"
    PASSWORD_CHANGE = "password.change"  # noqa: S105 -- the name of an action
    TOKEN_CREATE = "token.create"  # noqa: S105 -- the name of an action
    TOKEN_ROTATE = "token.rotate"  # noqa: S105 -- the name of an action
    TOKEN_REVOKE = "token.revoke"  # noqa: S105 -- the name of an action
    TOKEN_ENSURE = "token.ensure"  # noqa: S105 -- the name of an action
    """Store the token that the file of an installation holds."""


class AuditOutcome(StrEnum):
    """Outcome of a request that the audit has."""

    OK = "ok"
    DENIED = "denied"
    """A right was missing. Nothing was changed."""
