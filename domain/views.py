"""Responses of the HTTP API: types that ``api`` fills and ``client`` reads.

Times are seconds since the epoch in the database and RFC 3339 UTC here. A null means "not yet" or
"does not apply", never zero.

Not here: request bodies (``domain.spec.job``), creation of views from rows (``api``).
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, PlainSerializer, WithJsonSchema

from lockstep.domain.audit import AuditOutcome
from lockstep.domain.life.grace import Grace
from lockstep.domain.life.lifecycle import AttemptState, Intent, JobState
from lockstep.domain.life.outcomes import Outcome, Reason
from lockstep.domain.queue_views import QueuePlace, TimeLimit
from lockstep.domain.rights import ProjectRole, Right, Scope, ServiceRole
from lockstep.domain.schema_docs import Described
from lockstep.domain.training.memory import PlannedMemory
from lockstep.domain.training.metrics import jsonable
from lockstep.domain.training.plan import BatchPlan

T = TypeVar("T")

Value = Annotated[
    float,
    PlainSerializer(jsonable, when_used="json"),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string"}]}),
]
"""Value of a metric: a float in Python; in JSON non-finite ones are "NaN", "Infinity" and
"-Infinity"."""


class View(Described, BaseModel, frozen=True, defer_build=True):
    """A response or a part of one."""


class Page(View, Generic[T]):
    """One page of a list. ``next_cursor`` is null on the last page."""

    items: list[T]
    next_cursor: str | None = None


class Progress(View):
    step: int
    """Optimizer steps completed."""
    steps: int | None
    samples: int | None
    fraction: float | None
    """0 to 1."""
    eta_seconds: float | None
    latest: dict[str, Value] = {}
    """The newest value of each series."""
    main: str | None = None
    """The series that stands for the job in lists: the first one with a direction, or the first
    one."""


class AttemptView(View):
    number: int
    """Counted from 1."""
    state: AttemptState
    nodes: list[str]
    world_size: int
    plan_sentence: str | None = None
    """Split of the batch in this attempt; null for a script, and until its ranks have chosen it."""
    outcome: Outcome | None
    created_at: datetime
    running_at: datetime | None
    ended_at: datetime | None


class JobView(View):
    id: str
    name: str
    project: str
    kind: Literal["train", "script"]
    state: JobState
    reason: str | None
    """The newest outcome's reason, or why the job waits."""
    spec: dict[str, Any]
    """The submitted document, as it was sent."""
    plan: BatchPlan | None
    plan_sentence: str | None
    progress: Progress | None
    attempt: AttemptView | None
    """The newest attempt."""
    queue: QueuePlace | None
    """Only while queued."""
    limit: TimeLimit | None = None
    """Null without a time limit."""
    intent: Intent | None
    stop_grace: Grace | None = None
    """Limit of a requested stop: its processes are killed after it. Null without a request."""
    outcome: Outcome | None
    priority: int
    labels: dict[str, str]
    note: str | None = None
    starred: bool = False
    owner: str = ""
    """Name of the submitter; empty from a service of the version before."""
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    deleting: bool = False
    """True from a request to delete it until the last of its data is gone."""
    version: int


class SpecView(View):
    job_id: str
    spec: dict[str, Any]
    """The submitted document with every default filled in."""


class RetriesView(View):
    """Reasons for the end of a script's attempt, by what follows."""

    again: list[Reason]
    """The script is started again, at most ``max`` times in a row without progress."""
    not_counted: list[Reason]
    """The script is started again; these ends do not count against ``max``."""
    never: list[Reason]
    """The job fails."""
    max: int
    """``retry.max`` of the spec."""
    sentences: list[str]
    """The same as text."""


class PlanView(View):
    """Answer of ``POST /v1/jobs/plan``. Nothing was written."""

    plan: BatchPlan | None
    sentence: str | None
    spec: dict[str, Any]
    """The document with every default filled in."""
    placement: list[str]
    """Nodes the job would get now; empty while it would wait."""
    queue: QueuePlace | None
    memory: PlannedMemory | None = None
    """Memory of each rank, and of its device; null for a script."""
    retries: RetriesView | None = None
    """Ends after which a script is started again; null for a train job."""
    limit: TimeLimit | None = None
    """Null without a time limit."""
    warnings: list[str] = []


class EventView(View):
    id: int
    at: datetime
    kind: str
    attempt: int | None
    actor: str
    message: str
    data: dict[str, Any] = {}


class LogLine(View):
    line: int
    """Counted from 0 over all ranks of one attempt."""
    attempt: int
    time: datetime
    rank: int
    """-1 for the launcher itself."""
    stream: Literal["stdout", "stderr", "launcher"]
    text: str


class LogPage(View):
    lines: list[LogLine]
    next_cursor: str
    """Cursor of the next page; pass it again later for new lines."""
    prev_cursor: str | None = None
    """Cursor of the page before, for ``before``; None at the beginning of the log."""
    complete: bool
    """True when the job has ended and every line up to here has been read."""


class LogEnd(View):
    """The last event of a log that is followed."""

    state: JobState
    """In which the job ended."""
    next_cursor: str


class DeviceView(View):
    index: int
    kind: str
    """``cuda`` or ``cpu``; a newer agent may know others."""
    type: str
    memory_bytes: int | None
    job_id: str | None
    """The job that holds it; null also for one that the caller may not read."""
    held: bool = False
    """True if a job holds it."""
    free_since: datetime | None = None
    """Time since which no job holds it; null for one that no job has held."""


class NodeView(View):
    name: str
    state: Literal["ready", "draining", "quarantined", "leaving", "lost"]
    """``leaving``: its agent was stopped in order, and no other is there yet."""
    reason: str | None = None
    """Reason for its quarantine or its drain: it gets no jobs until an operator resumes it."""
    since: datetime | None = None
    """Time of its quarantine or its drain."""
    drained_by: str | None = None
    """Person who drained it."""
    seen_at: datetime
    """Time of its agent's last heartbeat."""
    devices: list[DeviceView]
    devices_free: int
    version: str
    offers: list[str] = []
    """Names that jobs can need (``resources.needs``)."""


class CheckpointView(View):
    step: int
    attempt: int
    bytes: int
    sha256: str
    """Of its manifest."""
    final: bool
    value: float | None = None
    """Of the metric that ``keep_best`` names; null where its step did not measure it."""
    best: bool = False
    """True if it has the lowest value of the job's checkpoints, the earliest of equal ones."""
    created_at: datetime
    location: str


class CheckpointFile(View):
    name: str
    bytes: int
    sha256: str


class CheckpointDetail(CheckpointView):
    """A checkpoint with its files; its manifest is the last of them."""

    files: list[CheckpointFile]


class UploadView(View):
    sha256: str
    bytes: int
    files: int
    created: bool
    """False when the same archive was already there."""


class SignedIn(View):
    """Answer to a sign-in. No other answer contains the token."""

    token: str
    """Send it as ``Authorization: Bearer TOKEN``."""
    name: str
    expires_at: datetime
    """The session ends earlier after 12 hours without a request."""


class SignInCode(View):
    """Code that starts one session, for a browser on another way than a command line."""

    code: str
    expires_at: datetime


class SessionView(View):
    """A session of the caller that is not over."""

    id: str
    address: str
    """Of the sign-in."""
    agent: str
    """``User-Agent`` of the sign-in."""
    created_at: datetime
    seen_at: datetime
    """Time of the newest request, to the minute."""
    expires_at: datetime
    is_own: bool
    """True for the session of this request."""


class CallerView(View):
    """Caller of a request, with the present roles."""

    name: str
    title: str
    """Full name; empty if none is stored."""
    role: ServiceRole | None
    """Role in the whole service."""
    projects: dict[str, ProjectRole]
    """Role in each project; for a token, in those of its projects."""
    credential: Literal["token", "session", "none"]
    """``none`` if authentication is off."""
    scopes: list[Scope] | None
    """Scopes of the token; null for all rights."""
    rights: list[Right]
    """Rights in the service, or in at least one project."""
    rights_everywhere: list[Right]
    """Rights in every project."""
    rights_in: dict[str, list[Right]]
    """Other rights by project. ``job.control_own`` is the right to control the own jobs."""
    has_password: bool
    is_alone: bool
    """True if no other person is active."""
    expires_at: datetime | None


class AuditView(View):
    id: int
    at: datetime
    actor: str
    """Name of the person; ``lockstep`` for a change of the service itself."""
    token: str | None = None
    """Id of the token, which is no secret."""
    address: str | None = None
    """IP address of the client."""
    request_id: str | None = None
    action: str
    """The action; of a refusal the missing right."""
    target: str
    """Id or name of the changed object; of a refusal method and path of the request."""
    project: str | None = None
    outcome: AuditOutcome
    detail: dict[str, Any] | None = None
    """``before`` and ``after``, where they exist, and other facts."""


class Health(View):
    status: Literal["ok", "degraded", "unavailable"]
    checks: dict[str, str] = {}
    version: str | None = None
    """Version of the server, in ``/livez``."""


class FieldProblem(View):
    pointer: str
    message: str
    value: Any = None
    next_step: str = ""


class Problem(View):
    """RFC 9457 problem document, media type ``application/problem+json``."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    code: str
    """A value of ``domain.errors.ErrorCode``."""
    next_step: str = ""
    errors: list[FieldProblem] = []
    instance: str | None = None
