"""Tables of people, projects, tokens, sessions, the audit and the ledger, in the jobs database.

Not here: jobs and nodes (``storage.db.tables``), rights of a role (``domain.rights``).
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import JSON, ForeignKey, Index, String, false
from sqlalchemy.orm import Mapped, mapped_column

from lockstep.domain.audit import AuditOutcome
from lockstep.domain.rights import ProjectRole, ServiceRole, UserState, Visibility
from lockstep.storage.db.columns import (
    BigId,
    Id,
    Json,
    Name,
    Named,
    PrimaryId,
    ShortWord,
    Word,
    choice,
)
from lockstep.storage.db.tables import JobsBase

AUDIT_TARGET_CHARS_MAX: Final = 512


class UserRow(JobsBase):
    """One person. A name never changes and is never used again: ``jobs.actor`` refers to it."""

    __tablename__ = "users"
    __table_args__ = (Index("ix_users_code_sha256", "code_sha256", unique=True),)

    name: Mapped[str] = mapped_column(Name, primary_key=True)
    title: Mapped[str] = mapped_column(Name, default="", server_default="")
    service: Mapped[bool] = mapped_column(default=False, server_default=false())
    """True for a program, which never signs in."""
    role: Mapped[ServiceRole | None] = mapped_column(choice(ServiceRole, "service_role"))
    """Role in the whole service, if any."""
    state: Mapped[UserState] = mapped_column(choice(UserState, "user_state"))
    created_at: Mapped[float]
    password: Mapped[str | None] = mapped_column(String(255))
    """Hash of the password, with its algorithm, parameters and salt; NULL without a password."""
    code_sha256: Mapped[str | None] = mapped_column(String(64))
    """SHA-256 of the invitation code, until it is used."""
    code_until: Mapped[float | None]


class ProjectRow(JobsBase):
    """One project. ``jobs.project`` has its name."""

    __tablename__ = "projects"

    name: Mapped[str] = mapped_column(Name, primary_key=True)
    title: Mapped[str] = mapped_column(Name, default="", server_default="")
    visibility: Mapped[Visibility] = mapped_column(choice(Visibility, "visibility"))
    weight: Mapped[float] = mapped_column(default=1.0, server_default="1")
    """Its share of the devices is its weight, divided by the weights of all projects with jobs."""
    gpus_max: Mapped[int | None]
    """Devices that its jobs may have at one time."""
    gpus_per_user_max: Mapped[int | None]
    """Devices that the jobs of one person may have in it at one time."""
    gpus_per_job_max: Mapped[int | None]
    queued_max: Mapped[int | None]
    queued_per_user_max: Mapped[int | None]
    priority_max: Mapped[int | None]
    timeout_default_seconds: Mapped[float | None]
    timeout_max_seconds: Mapped[float | None]
    budget_gpu_hours: Mapped[float | None]
    """Device-hours of its jobs in 30 days."""
    budget_action: Mapped[ShortWord | None]
    """``BudgetAction``, the consequence of more; NULL warns, a value of a newer version holds."""
    created_at: Mapped[float]
    archived_at: Mapped[float | None]
    """Since then it takes no new jobs."""


class MembershipRow(JobsBase):
    """Role of a person in a project."""

    __tablename__ = "memberships"
    __table_args__ = (Index("ix_memberships_user_name", "user_name"),)

    project: Mapped[str] = mapped_column(Name, ForeignKey("projects.name"), primary_key=True)
    user_name: Mapped[str] = mapped_column(Name, ForeignKey("users.name"), primary_key=True)
    role: Mapped[ProjectRole] = mapped_column(choice(ProjectRole, "project_role"))


class TokenRow(JobsBase):
    """A bearer token, of which only the digest is kept."""

    __tablename__ = "tokens"

    id: Mapped[PrimaryId]
    name: Mapped[Named]
    sha256: Mapped[str] = mapped_column(String(64), unique=True)
    prefix: Mapped[str] = mapped_column(String(16), default="", server_default="")
    """First characters of the secret, to recognise it."""
    overlap_sha256: Mapped[str | None] = mapped_column(String(64), unique=True)
    """Digest of the secret before the last rotation, valid until ``overlap_until``."""
    overlap_until: Mapped[float | None]
    actor: Mapped[Named]
    """Owner: the name of a user."""
    scopes: Mapped[list[str] | None] = mapped_column(JSON(none_as_null=True))
    """``domain.rights.Scope`` values; NULL for all rights of the owner."""
    projects: Mapped[list[str] | None] = mapped_column(JSON(none_as_null=True))
    """NULL for all projects of the owner."""
    created_at: Mapped[float]
    """Of the present secret."""
    expires_at: Mapped[float | None]
    used_at: Mapped[float | None]
    """Last use, written at most once a minute."""
    revoked_at: Mapped[float | None]


class SessionRow(JobsBase):
    """A sign-in of a person, of whose token only the digest is kept."""

    __tablename__ = "sessions"
    __table_args__ = (Index("ix_sessions_user_name", "user_name"),)

    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    user_name: Mapped[Named]
    address: Mapped[Word]
    """Of the sign-in."""
    agent: Mapped[str] = mapped_column(String(200))
    """``User-Agent`` of the sign-in."""
    created_at: Mapped[float]
    seen_at: Mapped[float]
    """Time of the newest request, to the minute."""
    expires_at: Mapped[float]
    ended_at: Mapped[float | None]
    token_id: Mapped[str | None] = mapped_column(Id)
    """Token by which the session was started: it has no more rights, and ends with it. NULL after
    a sign-in with a password."""


class SignInCodeRow(JobsBase):
    """A code that starts one session within a minute. Its use deletes it."""

    __tablename__ = "sign_in_codes"

    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    user_name: Mapped[Named]
    token_id: Mapped[str | None] = mapped_column(Id)
    """Token of the caller who asked for the code."""
    expires_at: Mapped[float]


class AuditRow(JobsBase):
    """A change, or a refused one. Triggers of the database refuse to change and delete rows."""

    __tablename__ = "audit"
    __table_args__ = (
        Index("ix_audit_project_id", "project", "id"),
        Index("ix_audit_actor_id", "actor", "id"),
    )

    id: Mapped[int] = mapped_column(BigId, primary_key=True, autoincrement=True)
    at: Mapped[float]
    actor: Mapped[Named]
    token: Mapped[str | None] = mapped_column(Id)
    """Id of the token; NULL without one."""
    address: Mapped[str | None] = mapped_column(String(64))
    """IP address of the client; NULL for a change of the service itself."""
    request_id: Mapped[str | None] = mapped_column(String(64))
    action: Mapped[Word]
    """``domain.audit.Action``; of a refusal ``domain.rights.Right``."""
    target: Mapped[str] = mapped_column(String(AUDIT_TARGET_CHARS_MAX))
    """Id or name of the changed object; of a refusal method and path of the request."""
    project: Mapped[str | None] = mapped_column(Name)
    """NULL if it belongs to no project."""
    outcome: Mapped[AuditOutcome] = mapped_column(choice(AuditOutcome, "audit_outcome"))
    detail: Mapped[Json | None] = mapped_column(JSON(none_as_null=True))
    """``before`` and ``after``, where they exist, and other facts. Never a secret."""


class LedgerRow(JobsBase):
    """Use of devices by one released assignment. The row outlives its job.

    ``productive + repeated + idle`` is ``(released_at - placed_at) * devices``.
    """

    __tablename__ = "ledger"
    __table_args__ = (Index("ix_ledger_released_at", "released_at"),)

    assignment_id: Mapped[PrimaryId]
    job_id: Mapped[str] = mapped_column(Id)
    job_name: Mapped[Named]
    attempt: Mapped[int]
    project: Mapped[Named]
    actor: Mapped[Named]
    """User who submitted the job."""
    node_name: Mapped[Named]
    device_type: Mapped[Named]
    devices: Mapped[int]
    placed_at: Mapped[float]
    released_at: Mapped[float]
    productive: Mapped[float]
    """Device-seconds, as the next two: ``domain.life.held_time.HeldTime``."""
    repeated: Mapped[float]
    idle: Mapped[float]
