"""Tables of people, projects and tokens, in the jobs database.

Not here: jobs and nodes (``storage.db.tables``), rights of a role (``domain.rights``).
"""

from __future__ import annotations

from sqlalchemy import JSON, ForeignKey, Index, String, false
from sqlalchemy.orm import Mapped, mapped_column

from lockstep.domain.rights import ProjectRole, ServiceRole, UserState, Visibility
from lockstep.storage.db.columns import Name, Named, PrimaryId, choice
from lockstep.storage.db.tables import JobsBase


class UserRow(JobsBase):
    """One person. A name never changes and is never used again: ``jobs.actor`` refers to it."""

    __tablename__ = "users"

    name: Mapped[str] = mapped_column(Name, primary_key=True)
    title: Mapped[str] = mapped_column(Name, default="", server_default="")
    service: Mapped[bool] = mapped_column(default=False, server_default=false())
    """True for a program, which never signs in."""
    role: Mapped[ServiceRole | None] = mapped_column(choice(ServiceRole, "service_role"))
    """Role in the whole service, if any."""
    state: Mapped[UserState] = mapped_column(choice(UserState, "user_state"))
    created_at: Mapped[float]


class ProjectRow(JobsBase):
    """One project. ``jobs.project`` has its name."""

    __tablename__ = "projects"

    name: Mapped[str] = mapped_column(Name, primary_key=True)
    title: Mapped[str] = mapped_column(Name, default="", server_default="")
    visibility: Mapped[Visibility] = mapped_column(choice(Visibility, "visibility"))
    gpus_per_job_max: Mapped[int | None]
    queued_max: Mapped[int | None]
    priority_max: Mapped[int | None]
    timeout_default_seconds: Mapped[float | None]
    timeout_max_seconds: Mapped[float | None]
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
    expires_at: Mapped[float | None]
    used_at: Mapped[float | None]
    """Last use, written at most once a minute."""
    revoked_at: Mapped[float | None]
