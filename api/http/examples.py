"""Examples of the OpenAPI description: specs, responses and errors.

Responses are built with the API's own response types, and therefore match its schemas.

Not here: adding them to the description (``api.http.openapi``).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pydantic import BaseModel

from lockstep.api.http.problems import problem_of
from lockstep.domain.audit import Action, AuditOutcome
from lockstep.domain.errors import ErrorCode, FieldError, LockstepError
from lockstep.domain.life.lifecycle import AttemptState, JobState
from lockstep.domain.list_views import JobPage, ListedJob
from lockstep.domain.people_views import (
    InvitationView,
    MemberView,
    ProjectLimitsView,
    ProjectView,
    TokenSecretView,
    TokenView,
    UsageBy,
    UsageRow,
    UsageView,
    UserView,
)
from lockstep.domain.queue_views import (
    JobAhead,
    QueuePlace,
    SharesView,
    ShareView,
    TimeLimit,
    UserShare,
    WhyView,
)
from lockstep.domain.rights import (
    ProjectRole,
    Right,
    Scope,
    UserState,
    Visibility,
    forbidden,
)
from lockstep.domain.scheduling.reasons import sentence
from lockstep.domain.scheduling.state import WaitCode, WaitReason
from lockstep.domain.spec.job import JobSpec
from lockstep.domain.training.plan import plan_of
from lockstep.domain.views import (
    AttemptView,
    AuditView,
    CallerView,
    CheckpointView,
    DeviceView,
    EventView,
    Health,
    JobView,
    LogLine,
    LogPage,
    NodeView,
    PlanView,
    SessionView,
    SignedIn,
    SignInCode,
    SpecView,
    UploadView,
)

TRAIN: Final[dict[str, Any]] = {
    "name": "stdlib-gpt",
    "kind": "train",
    "resources": {"gpus": 2},
    "train": {
        "task": "causal_lm",
        "batch": {"size": 64, "micro_size": 8},
        "steps": 200,
        "optimizer": {"name": "adamw", "lr": 3.0e-4},
        "schedule": {"name": "cosine", "warmup_steps": 20, "min_lr": 3.0e-5},
        "checkpoint": {"every_steps": 50, "keep_last": 3},
    },
}
SCRIPT: Final[dict[str, Any]] = {
    "name": "my-script",
    "kind": "script",
    "resources": {"gpus": 2},
    "script": {"command": ["train.py", "--lr", "3e-4"]},
    "code": {"upload": "0" * 64},
    "env": {"OMP_NUM_THREADS": "1"},
}
_AT: Final = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)
_ID: Final = "019cac3a-5f40-7c11-9f3e-5f1f4b1f8a2d"
_OTHER: Final = "019cac3a-5f40-7c11-9f3e-5f1f4b1f0000"
_FACTS: Final[dict[str, Any]] = {
    "job": None,
    "needs": 2,
    "nodes": 1,
    "type": None,
    "free": 1,
    "offers": [],
}
_WAITS: Final = sentence(WaitReason(WaitCode.BEHIND, _FACTS))
_SPEC: Final = JobSpec.model_validate(TRAIN)
_PLAN: Final = plan_of(_SPEC)
_JOB: Final = JobView(
    id=_ID,
    name="stdlib-gpt",
    project="default",
    kind="train",
    state=JobState.QUEUED,
    reason=_WAITS,
    spec=TRAIN,
    plan=_PLAN,
    plan_sentence=None if _PLAN is None else _PLAN.sentence(),
    progress=None,
    attempt=None,
    queue=QueuePlace(position=1, reason=_WAITS, code=WaitCode.BEHIND, facts=_FACTS),
    limit=TimeLimit(seconds=86_400, source="service"),
    intent=None,
    outcome=None,
    priority=50,
    labels={},
    owner="ada",
    created_at=_AT,
    started_at=None,
    finished_at=None,
    version=2,
)
_ATTEMPT: Final = AttemptView(
    number=1,
    state=AttemptState.RUNNING,
    nodes=["gpu-a"],
    world_size=2,
    plan_sentence=_JOB.plan_sentence,
    outcome=None,
    created_at=_AT,
    running_at=_AT + timedelta(seconds=4),
    ended_at=None,
)
_NODE: Final = NodeView(
    name="gpu-a",
    state="ready",
    seen_at=_AT,
    devices=[
        DeviceView(
            index=0,
            kind="cuda",
            type="NVIDIA H200",
            memory_bytes=150_754_820_096,
            job_id=_ID,
            held=True,
        )
    ],
    devices_free=0,
    version="0.1.0",
    offers=["data:imagenet", "kind:cuda", "python:3.12"],
)
_CHECKPOINT: Final = CheckpointView(
    step=200,
    attempt=1,
    bytes=1_492_817_920,
    sha256="5e" * 32,
    final=True,
    created_at=_AT + timedelta(minutes=20),
    location=f"/srv/lockstep/store/jobs/{_ID}/1/step-00000200",
)
_EVENT: Final = EventView(
    id=17, at=_AT, kind="submitted", attempt=None, actor="ada", message="submitted by ada"
)
_LINE: Final = LogLine(
    line=0, attempt=1, time=_AT, rank=0, stream="stdout", text="step 1: loss 5.02"
)
_AUDIT: Final = AuditView(
    id=204,
    at=_AT,
    actor="ada",
    token="019cac39-0000-7000-8000-5f1f4b1f8a2d",  # noqa: S106 -- an id, no secret
    address="192.0.2.7",
    request_id="019cac3a-6000-7000-8000-2d8a1f4b1f5f",
    action=Action.NODE_DRAIN,
    target="gpu-a",
    outcome=AuditOutcome.OK,
    detail={
        "before": {"draining": False, "drain_reason": None, "quarantine": None},
        "after": {"draining": True, "drain_reason": "new power supply", "quarantine": None},
    },
)

_USER: Final = UserView(
    name="lea",
    title="Lea Weber",
    service=False,
    role=None,
    state=UserState.ACTIVE,
    created_at=_AT,
)
_TOKEN: Final = TokenView(
    id=_ID,
    name="laptop",
    owner="lea",
    prefix="lsp_a1b2c",
    scopes=[Scope.JOBS_READ, Scope.JOBS_WRITE],
    projects=None,
    created_at=_AT,
    expires_at=_AT + timedelta(days=90),
    used_at=_AT + timedelta(minutes=20),
    revoked_at=None,
)

ANSWERS: Final[Mapping[str, BaseModel]] = {
    type(answer).__name__: answer
    for answer in (
        _JOB,
        _ATTEMPT,
        _NODE,
        _CHECKPOINT,
        _EVENT,
        _AUDIT,
        PlanView(
            plan=_PLAN,
            sentence=_JOB.plan_sentence,
            spec=_SPEC.model_dump(mode="json"),
            placement=["gpu-a"],
            queue=None,
        ),
        JobPage(items=[ListedJob(**dict(_JOB))], next_cursor=_ID, total=1_250),
        SpecView(job_id=_ID, spec=_SPEC.model_dump(mode="json")),
        LogPage(lines=[_LINE], next_cursor="1.1", complete=False),
        SignedIn(
            token="lst_…",  # noqa: S106 -- no real token
            name="ada",
            expires_at=_AT + timedelta(days=30),
        ),
        SignInCode(code="lsc_…", expires_at=_AT + timedelta(seconds=60)),
        SessionView(
            id="9f86d081884c7d65",
            address="10.0.0.7",
            agent="lockstep/0.1.0",
            created_at=_AT,
            seen_at=_AT,
            expires_at=_AT + timedelta(days=30),
            is_own=True,
        ),
        CallerView(
            name="ada",
            title="Ada Lovelace",
            role=None,
            projects={"nlp": ProjectRole.MEMBER},
            credential="session",
            scopes=None,
            rights=[Right.JOB_READ, Right.JOB_SUBMIT],
            rights_everywhere=[],
            rights_in={"nlp": [Right.JOB_READ, Right.JOB_SUBMIT]},
            has_password=True,
            is_alone=False,
            expires_at=_AT + timedelta(days=30),
        ),
        UploadView(sha256="0" * 64, bytes=48_213, files=12, created=True),
        _USER,
        InvitationView(name="lea", code="lsi_…", expires_at=_AT + timedelta(days=7)),
        _TOKEN,
        TokenSecretView(token=_TOKEN, secret="lsp_" + "0" * 36),
        ProjectView(
            name="nlp",
            title="Language models",
            visibility=Visibility.PRIVATE,
            weight=2.0,
            limits=ProjectLimitsView(queued_max=200),
            role=ProjectRole.ADMIN,
            members=[MemberView(user="lea", role=ProjectRole.MEMBER)],
            created_at=_AT,
            archived_at=None,
        ),
        SharesView(
            devices=64,
            half_life_seconds=172_800,
            items=[
                ShareView(
                    project="nlp",
                    weight=2.0,
                    entitled=42.7,
                    in_use=40,
                    average=35.2,
                    queued=3,
                    gpus_max=None,
                    budget_gpu_hours=20_000,
                    used_gpu_hours=11_250.5,
                    people=[UserShare(user="lea", in_use=40, average=35.2, queued=3)],
                )
            ],
        ),
        WhyView(
            id=_ID,
            name="stdlib-gpt",
            state=JobState.QUEUED,
            queue=_JOB.queue,
            start="it starts about 2026-03-02 14:00 UTC",
            ahead=[
                JobAhead(id=_OTHER, name="b", project="nlp", owner="lea", devices=8, position=1)
            ],
            ahead_count=1,
            limit=_JOB.limit,
        ),
        UsageView(
            by=UsageBy.PROJECT,
            begins_at=_AT - timedelta(days=30),
            ends_at=_AT,
            rows=[
                UsageRow(
                    name="nlp",
                    allocated=1_204.0,
                    productive=1_150.5,
                    repeated=12.25,
                    idle=41.25,
                    jobs=318,
                )
            ],
        ),
        Health(
            status="ok", checks={"database": "ok", "broker": "ok", "scheduler": "ok", "store": "ok"}
        ),
    )
}
"""Example of each type of answer, by its name. A page of a type shows one item."""

_REFUSALS: Final = (
    LockstepError(
        ErrorCode.MALFORMED,
        "the body is not JSON: expecting value at line 3, column 12; nothing was written",
        next_step="send the spec as JSON",
    ),
    LockstepError(
        ErrorCode.UNAUTHENTICATED,
        "missing bearer token, got no Authorization header; nothing was written",
        next_step="send Authorization: Bearer TOKEN",
    ),
    forbidden("ada", Right.JOB_CONTROL, "vision"),
    LockstepError(
        ErrorCode.NOT_FOUND, "there is no job 'gtp'", next_step="list all jobs with: lockstep ps -a"
    ),
    LockstepError(
        ErrorCode.CONFLICT,
        f"job {_ID} has already succeeded; an ended job cannot be changed",
        next_step="None of its processes is running.",
    ),
    LockstepError(
        ErrorCode.CONDITION, 'If-Match: "a" does not hold', next_step="send it without If-Match"
    ),
    LockstepError(
        ErrorCode.TOO_LARGE,
        "a job spec is at most 262144 bytes, got 300000 bytes; nothing was written",
        next_step="move the data to files or to the code folder, and give their paths in the spec",
    ),
    LockstepError(
        ErrorCode.MEDIA_TYPE,
        "the body is 'text/plain'; expected application/json; nothing was written",
        next_step="send Content-Type: application/json",
    ),
    LockstepError(
        ErrorCode.RANGE,
        "state.safetensors has 4096 bytes; the requested range starts at byte 5000",
        next_step="send the request without Range",
    ),
    LockstepError(
        ErrorCode.INVALID,
        "resources.gpus: input should be greater than 0",
        next_step="see errors",
        fields=(FieldError("/resources/gpus", "input should be greater than 0", 0),),
    ),
    LockstepError(
        ErrorCode.TOO_MANY_REQUESTS,
        "more than 36000 requests in 60 s; this request was not processed",
        next_step="wait 1 s, then send fewer requests, or use a stream instead of polling",
    ),
    LockstepError(
        ErrorCode.INTERNAL,
        "internal error; it is unknown whether anything was written",
        next_step="find this request in the log of the api, and report the error",
    ),
    LockstepError(
        ErrorCode.UNAVAILABLE,
        "the jobs database does not answer: connection refused",
        next_step="Try again in a few seconds; if it persists, check the log of the database.",
    ),
    LockstepError(
        ErrorCode.STORAGE_FULL,
        "the disk of the jobs database is full; nothing was written",
        next_step="Free space on the database's disk, then try again.",
    ),
)
PROBLEMS: Final[Mapping[int, BaseModel]] = {
    problem.status: problem
    for problem in (problem_of(refusal, instance=_ID) for refusal in _REFUSALS)
}
"""Example of a problem document by status."""
