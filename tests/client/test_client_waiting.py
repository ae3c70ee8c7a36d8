"""``lockstep queue``, ``why`` and ``shares``: tables, JSON, and what is not there."""

from __future__ import annotations

from datetime import UTC, datetime

from lockstep.domain.life.lifecycle import JobState
from lockstep.domain.queue_views import (
    JobAhead,
    QueuePlace,
    SharesView,
    ShareView,
    TimeLimit,
    UserShare,
    WhyView,
)
from lockstep.domain.scheduling.state import WaitCode
from lockstep.domain.views import JobView, Page
from tests.client import examples
from tests.client.server import ReplayServer
from tests.client.terminal import CommandLine

AT = datetime(2026, 3, 2, 14, 0, tzinfo=UTC)
PLACE = QueuePlace(
    position=3, reason="waits for a free device", code=WaitCode.BEHIND, estimated_start=AT
)
WHY = WhyView(
    id=examples.ID,
    name="tiny",
    state=JobState.QUEUED,
    queue=PLACE,
    start="it starts about 2026-03-02 14:00 UTC",
    ahead=[JobAhead(id="a", name="wide", project="nlp", owner="lea", devices=8, position=1)],
    ahead_count=2,
    limit=TimeLimit(seconds=86_400, source="service"),
)


def test_the_queue_is_in_its_order(lockstep: CommandLine, server: ReplayServer) -> None:
    waiting = examples.job(JobState.QUEUED, queue=PLACE)
    unseen = examples.job(
        JobState.QUEUED, id="other-id", name="new", queue=None, reason="not processed yet"
    )
    server.on("GET", "/v1/queue", Page[JobView](items=[waiting, unseen]))
    heading, first, second = lockstep("queue", "--project", "nlp").out.splitlines()
    assert heading.split()[:3] == ["PLACE", "ID", "NAME"]
    assert first.split()[:3] == ["3", examples.ID[-8:], "tiny"]
    assert first.endswith("waits for a free device")
    assert (second.split()[0], second.endswith("not processed yet")) == ("-", True)
    assert server.asked[-1].query["project"] == ["nlp"]
    assert lockstep("queue", "-o", "name").out == f"{examples.ID}\nother-id\n"
    server.on("GET", "/v1/queue", Page[JobView](items=[]))
    assert "no job waits" in lockstep("queue").err


def test_why_names_reason_start_limit_and_the_jobs_ahead(
    lockstep: CommandLine, server: ReplayServer
) -> None:
    server.on("GET", f"/v1/jobs/{examples.ID}/why", WHY)
    facts = [line.split(maxsplit=1) for line in lockstep("why", examples.ID).out.splitlines()]
    assert facts == [
        ["job", f"tiny ({examples.ID})"],
        ["place", "3"],
        ["waits", "waits for a free device"],
        ["reason", "behind"],
        ["start", "it starts about 2026-03-02 14:00 UTC"],
        ["limit", "1 d, default of the service"],
        ["ahead", "1. wide (a), 8 devices, nlp, by lea"],
        ["ahead", "1 more job"],
    ]
    assert WhyView.model_validate_json(lockstep("why", examples.ID, "--json").out) == WHY
    runs = WHY.model_copy(update={"state": JobState.RUNNING, "queue": None, "start": None})
    server.on("GET", f"/v1/jobs/{examples.ID}/why", runs)
    said = lockstep("why", examples.ID)
    assert (said.code, said.out) == (0, "")
    assert "does not wait: it is running" in said.err


def test_shares_show_people_on_demand(lockstep: CommandLine, server: ReplayServer) -> None:
    person = UserShare(user="lea", in_use=3, average=2.25, queued=1)
    share = ShareView(
        project="nlp",
        weight=2,
        entitled=5.333,
        in_use=3,
        average=2.25,
        queued=1,
        gpus_max=6,
        budget_gpu_hours=1_000,
        used_gpu_hours=12.4,
        people=[person],
    )
    idle = share.model_copy(update={"entitled": None, "budget_gpu_hours": None, "gpus_max": None})
    found = SharesView(devices=8, half_life_seconds=172_800, items=[share, idle])
    server.on("GET", "/v1/shares", found)
    said = lockstep("shares")
    _, first, second = (line.split() for line in said.out.splitlines())
    assert first[:6] == ["nlp", "2", "5.3", "3", "2.2", "1"]
    assert " ".join(first[6:]) == "at most 6 devices, 12 of 1,000 device-hours used"
    assert (second[2], second[6]) == ("-", "-")
    assert "8 devices are ready" in said.err
    assert lockstep("shares", "-o", "wide").out.splitlines()[2].split() == ["lea", "3", "2.2", "1"]


def test_a_wait_refuses_a_limit_that_is_no_number(lockstep: CommandLine) -> None:
    said = lockstep("wait", "tiny", "--timeout", "nan")
    assert (said.code, "got nan" in said.err) == (2, True)
