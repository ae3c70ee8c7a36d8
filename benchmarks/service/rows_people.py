"""Rows 9 and 10: the cost of rights, projects and the audit, on one api process.

Row 9 compares this program with an older one (``--before``), row 10 has what the older one lacks.

Not here: the same requests beside the peers (``rows_api``).
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

from sqlalchemy import insert
from uuid_utils import uuid7

from benchmarks.service.compare import Bench, Contestant, Figure, Sample, Target
from benchmarks.service.context import Context
from benchmarks.service.load import closed_loop, failed, per_second
from benchmarks.service.ours import api_alone, cpu_seconds, older_api, wire_to
from benchmarks.service.planting import SPEC
from benchmarks.service.rows_api import CONNECTIONS
from benchmarks.service.wire import Answer, Wire, median_ms, sender
from lockstep.domain.life.lifecycle import JobState
from lockstep.domain.rights import ProjectRole
from lockstep.domain.spec.reading import read_spec
from lockstep.domain.training.plan import plan_of
from lockstep.storage.db.database import Database
from lockstep.storage.db.tables import JobRow
from lockstep.storage.people import projects, tokens, users
from tests.harness.processes import Program, running_broker

LISTED_JOBS: Final = 200
PROJECTS: Final = 100
"""Half of them are the reader's."""
ROWS_AT_ONCE: Final = 5_000
PASSWORD: Final = "correct horse battery staple"
SECRET: Final = "lockstep_of_the_reader_of_a_benchmark"
POLL: Final = Target("≤", 1.03, of="ratio")


def beside_the_older(context: Context, stack: ExitStack) -> Bench:
    """Measure polls and submits beside an older api, each over a database of its own."""
    older = ("before",)
    bench = Bench(
        figures=(
            Figure("job", "GET job p50", "ms", (POLL,), older),
            Figure("job_same", "GET job p50, unchanged (304)", "ms", (POLL,), older),
            Figure("list", "GET list p50", "ms", (POLL,), older),
            Figure("list_same", "GET list p50, unchanged (304)", "ms", (POLL,), older),
            Figure(
                "accepted",
                f"POST job, {CONNECTIONS} connections",
                "accepted/s",
                (Target("≥", 300),),
                older,
            ),
            Figure("cpu", "processor time of the api for each", "ms", (), older),
        ),
        contestants=[],
    )
    if context.before is None:
        bench.absent["before"] = "name the python of an older installation with --before"
    broker = stack.enter_context(running_broker())
    for store in context.stores:
        folder = context.fresh()
        api = stack.enter_context(api_alone(folder, store.ours(folder), broker.url))
        bench.contestants.append(Contestant("lockstep", _polling(api, context), store.name, True))
        if context.before is not None:
            folder = context.fresh()
            empty = store.empty(folder)
            api = stack.enter_context(older_api(context.before, folder, empty, broker.url))
            bench.contestants.append(Contestant("before", _polling(api, context), store.name))
    return bench


def _polling(api: Program, context: Context) -> Callable[[], Sample]:
    wire = wire_to(api)
    ids = [_submit(wire, number).document()["id"] for number in range(LISTED_JOBS)]
    connect = sender(lambda: wire_to(api), _submit)
    assert api.process is not None
    pid = api.process.pid

    def reading(path: str, **headers: str) -> float:
        status = 304 if headers else 200
        return median_ms(
            lambda: wire.ask("GET", path, **headers), status=status, times=context.sizes.reads
        )

    def measure() -> Sample:
        job, jobs = f"/v1/jobs/{ids[0]}", "/v1/jobs"
        tags = [wire.ask("GET", path).headers["ETag"] for path in (job, jobs)]
        found = {
            "job": reading(job),
            "job_same": reading(job, If_None_Match=tags[0]),
            "list": reading(jobs),
            "list_same": reading(jobs, If_None_Match=tags[1]),
        }
        before = cpu_seconds(pid)
        sent = closed_loop(connect, seconds=context.sizes.load_seconds, connections=CONNECTIONS)
        refused = failed(sent, 201)
        cpu = 1e3 * (cpu_seconds(pid) - before) / (len(sent) - refused)
        return {**found, "accepted": per_second(sent, 201), "refused": refused, "cpu": cpu}

    return measure


def _submit(wire: Wire, number: int) -> Answer:
    document = {**SPEC, "name": f"job-{number}"}
    return wire.ask("POST", "/v1/jobs", document, Idempotency_Key=uuid.uuid4().hex)


def large_team(context: Context, stack: ExitStack) -> Bench:
    """Measure the list of a reader of 50 of 100 projects, and a sign-in."""
    count = context.sizes.team_jobs
    bench = Bench(
        figures=(
            Figure("list", f"list, 50 projects of {count:,} jobs", "ms", (Target("≤", 15),)),
            Figure("failed", "the same, failed jobs", "ms", (Target("≤", 15),)),
            Figure("mine", "the same, own jobs", "ms", (Target("≤", 15),)),
            Figure("search", "the same, a part of a name", "ms"),
            Figure("sign_in", "sign-in with a password", "ms", (Target("≤", 150),)),
        ),
        contestants=[],
    )
    broker = stack.enter_context(running_broker())
    for store in context.stores:
        folder = context.fresh()
        urls = store.ours(folder)
        api = stack.enter_context(api_alone(folder, urls, broker.url))
        database = Database(*urls)
        stack.callback(database.close)
        _plant(database, count)
        measure = _listing(api, context)
        bench.contestants.append(Contestant("lockstep", measure, store.name, ours=True))
    return bench


def _plant(database: Database, count: int) -> None:
    """Store a reader of half of the projects, and jobs that rotate through them."""
    with database.jobs() as session:
        users.ensure(session, "reader")
        for number in range(PROJECTS):
            projects.ensure(session, f"project-{number}")
            if number % 2:
                projects.set_role(session, f"project-{number}", "reader", ProjectRole.MEMBER)
        tokens.ensure(session, SECRET, name="reader", actor="reader")
    spec = read_spec(SPEC)
    found = plan_of(spec)
    assert found is not None
    about = {
        "kind": "train",
        "priority": 0,
        "devices": 2,
        "document": SPEC,
        "spec": spec.model_dump(mode="json"),
        "plan": found.model_dump(mode="json"),
        "retries_max": 3,
        "attempt_count": 1,
        "charged_attempts": 0,
        "created_at": 1.0,
    }
    for first in range(0, count, ROWS_AT_ONCE):
        rows = [about | _row(number) for number in range(first, min(first + ROWS_AT_ONCE, count))]
        with database.jobs() as session:
            session.execute(insert(JobRow), rows)


def _row(number: int) -> dict[str, Any]:
    return {
        "id": str(uuid7()),
        "name": f"job-{number % 1000}",
        "project": f"project-{number % PROJECTS}",
        "actor": "reader" if number % 51 == 0 else f"person-{number % 50}",
        "state": JobState.FAILED if number % 10 == 0 else JobState.SUCCEEDED,
    }


def _listing(api: Program, context: Context) -> Callable[[], Sample]:
    admin, reader = wire_to(api), Wire(api.url, SECRET)
    # `ensure` gives the person of an unknown token all rights; this one is no admin.
    admin.ask("PATCH", "/v1/users/reader", {"role": None}).document()
    admin.post("/v1/users", {"name": "lea"})
    code = admin.post("/v1/users/lea/invite", None)["code"]
    admin.post("/v1/invitation", {"code": code, "password": PASSWORD})
    numbers = itertools.count()

    def reading(query: str) -> float:
        return median_ms(
            lambda: reader.ask("GET", f"/v1/jobs{query}"),
            status=200,
            times=context.sizes.reads // 4 + 1,
            # Each time after a change, because a kept answer takes less.
            before=lambda: _submit(admin, next(numbers)),
        )

    def measure() -> Sample:
        known = {"name": "lea", "password": PASSWORD}
        sign_in = median_ms(
            lambda: admin.ask("POST", "/v1/session", known),
            status=200,
            times=context.sizes.reads // 20 + 1,
        )
        return {
            "list": reading(""),
            "failed": reading("?state=failed"),
            "mine": reading("?owner=reader"),
            "search": reading("?search=job-77"),
            "sign_in": sign_in,
        }

    return measure
