"""Bodies and responses of the HTTP API about people, projects, tokens and use of devices.

Not here: jobs and nodes (``domain.views``), rights (``domain.rights``).
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool

from lockstep.domain.rights import ProjectRole, Scope, ServiceRole, UserState, Visibility
from lockstep.domain.scheduling.state import BudgetAction
from lockstep.domain.schema_docs import Described
from lockstep.domain.spec.fields import NO_BOOL, Name, no_nul

TOKEN_DAYS_DEFAULT: Final = 90
TOKEN_DAYS_MAX: Final = 366
OVERLAP_HOURS_MAX: Final = 168
TOKEN_EXPIRES: Final = "Lockstep-Token-Expires"  # noqa: S105 -- the name of a header
"""Header with the end of the token of a request."""
Title = Annotated[str, Field(max_length=200), AfterValidator(no_nul)]


class _PeopleView(Described, BaseModel, frozen=True, defer_build=True):
    """A response or a part of one."""


class _Body(Described, BaseModel):
    """A request body. Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class UserView(_PeopleView):
    """A person, or a program with tokens of its own."""

    name: str
    title: str
    service: bool
    """True for a program, which never signs in."""
    role: ServiceRole | None
    """Role in the whole service."""
    state: UserState
    created_at: datetime


class UserNew(_Body):
    """A person to add."""

    name: Name
    title: Title = ""
    service: StrictBool = False
    """A program: active at once, without a password."""
    role: ServiceRole | None = None


class UserChange(_Body):
    """Changes of a person; an absent field stays."""

    title: Title | None = None
    role: ServiceRole | None = None
    """null takes the role in the service away."""
    active: StrictBool | None = None
    """False deactivates: no token and no session is accepted any more."""


class InvitationView(_PeopleView):
    """A new invitation. Its code is shown only here."""

    name: str
    code: str
    expires_at: datetime


class TokenView(_PeopleView):
    """A token, without its secret."""

    id: str
    name: str
    owner: str
    prefix: str
    """First characters of the secret."""
    scopes: list[Scope] | None
    """null for all rights of the owner."""
    projects: list[str] | None
    """null for all projects of the owner."""
    created_at: datetime
    """Of the present secret: a rotation moves it."""
    expires_at: datetime | None
    used_at: datetime | None
    """Last use, to the minute."""
    revoked_at: datetime | None


class TokenSecretView(_PeopleView):
    """A new token. Its secret is shown only here."""

    token: TokenView
    secret: str


class TokenNew(_Body):
    """A token to make."""

    name: Title = "token"
    owner: Name | None = None
    """A program, for an admin of the service; null for the caller."""
    scopes: Annotated[list[Scope], Field(min_length=1)] | None = None
    projects: Annotated[list[Name], Field(min_length=1, max_length=100)] | None = None
    days: Annotated[int, Field(ge=1, le=TOKEN_DAYS_MAX), NO_BOOL] = TOKEN_DAYS_DEFAULT
    """Days until it expires."""


class TokenRotation(_Body):
    """A new secret for a token."""

    overlap_hours: Annotated[int, Field(ge=0, le=OVERLAP_HOURS_MAX), NO_BOOL] = 24
    """Hours for which the old secret stays valid, with the sessions that the token has started.

    Until then, only 0 is accepted: it ends both old secrets at once."""


class MemberView(_PeopleView):
    """Role of a person in a project."""

    user: str
    role: ProjectRole


class MemberSet(_Body):
    """Role to give to a person."""

    role: ProjectRole


Devices = Annotated[int, Field(ge=1, le=100_000), NO_BOOL]
Jobs = Annotated[int, Field(ge=1, le=1_000_000), NO_BOOL]
Weight = Annotated[float, Field(ge=0.01, le=1_000), NO_BOOL]


class _Limits(_PeopleView):
    """Limits of a project that a change and a view have alike."""

    gpus_max: Devices | None = None
    """Devices that its jobs have at one time. More of them wait."""
    gpus_per_user_max: Devices | None = None
    """The same for the jobs of one person in the project."""
    gpus_per_job_max: Devices | None = None
    queued_max: Jobs | None = None
    """Jobs that wait at the same time. One more is refused with status 409."""
    queued_per_user_max: Jobs | None = None
    """The same for the jobs of one person in the project."""
    priority_max: Annotated[int, Field(ge=0, le=100), NO_BOOL] | None = None
    timeout_default_seconds: Annotated[float, Field(gt=0, le=366 * 24 * 3600), NO_BOOL] | None = (
        None
    )
    """``timeout_seconds`` of a job that gives none."""
    timeout_max_seconds: Annotated[float, Field(gt=0, le=366 * 24 * 3600), NO_BOOL] | None = None
    budget_gpu_hours: Annotated[float, Field(gt=0, le=1e9), NO_BOOL] | None = None
    """Device-hours of its jobs in 30 days."""


class ProjectLimits(_Limits, extra="forbid"):
    """Limits of the jobs of a project; null for none."""

    budget_action: BudgetAction | None = None
    """Consequence of more; null warns."""


class ProjectLimitsView(_Limits):
    """Limits of the jobs of a project; null for none."""

    budget_action: str | None = None
    """Consequence of more; null warns. One that only a newer version knows holds the jobs."""


class ProjectView(_PeopleView):
    """A project."""

    name: str
    title: str
    visibility: Visibility
    weight: float
    """Its part of the devices, compared with the weights of the other projects."""
    limits: ProjectLimitsView
    role: ProjectRole | None
    """The caller's own role."""
    members: list[MemberView]
    created_at: datetime
    archived_at: datetime | None


class ProjectNew(_Body):
    """A project to make."""

    name: Name
    title: Title = ""
    visibility: Visibility = Visibility.PRIVATE
    weight: Weight = 1.0
    limits: ProjectLimits = ProjectLimits()


class ProjectChange(_Body):
    """Changes of a project; an absent field stays."""

    title: Title | None = None
    visibility: Visibility | None = None
    weight: Weight | None = None
    """Only an admin of the service may change it, and the limits."""
    limits: ProjectLimits | None = None
    """An absent limit stays, null removes it."""
    archived: StrictBool | None = None
    """True refuses new jobs; refused itself while jobs of the project wait or run."""


class UsageBy(StrEnum):
    """Rows of a report of device use."""

    PROJECT = "project"
    USER = "person"
    DAY = "day"


class UsageRow(_PeopleView):
    """Device-hours of a project, a person or a day."""

    name: str
    """Of the project or the person; the date (UTC) of a day."""
    allocated: float
    """Sum of the next three."""
    productive: float
    repeated: float
    """For steps that an earlier attempt of the job had computed and lost."""
    idle: float
    """For starts, and until devices are free again."""
    jobs: int


class UsageView(_PeopleView):
    """Use of devices in a range of time."""

    by: UsageBy
    begins_at: datetime
    ends_at: datetime
    rows: list[UsageRow]


BODIES: Final[tuple[type[BaseModel], ...]] = (
    UserNew,
    UserChange,
    TokenNew,
    TokenRotation,
    MemberSet,
    ProjectNew,
    ProjectChange,
)
"""Models of request bodies, for the API's description."""
