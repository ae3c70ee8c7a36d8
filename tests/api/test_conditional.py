"""Polling with entity tags: an unchanged answer has no body, and no change is missed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from sqlalchemy import event, select, update

from lockstep.domain.life.outcomes import Reason
from lockstep.domain.life.timings import Timings
from lockstep.storage.attempts import attempts, checkpoints, events, nodes
from lockstep.storage.attempts.attempts import Claim
from lockstep.storage.control import agreed_timings
from lockstep.storage.db.clock import db_now
from lockstep.storage.db.tables import JobRow, NodeRow
from tests.api.conftest import SCRIPT, Api, problem
from tests.api.test_reading import record, upload_logs, upload_metrics
from tests.storage import scenes

Held = dict[str, tuple[str, bytes]]
"""Tag and body that a poller has, by address."""


def addresses(job_id: str) -> list[str]:
    """Return all polled addresses."""
    parts = (
        "",
        "/events",
        "/events?order=newest&limit=1",
        "/logs?tail=1",
        "/metrics",
        "/checkpoints",
        "/live?names=train/loss",
    )
    lists = ("/v1/jobs", "/v1/jobs?state=queued&limit=1", "/v1/queue", "/v1/nodes")
    return [*lists, *(f"/v1/jobs/{job_id}{part}" for part in parts)]


def poll(api: Api, held: Held, job_id: str) -> set[str]:
    """Poll all addresses.

    Each 304 is checked against the answer to a client without a tag.
    """
    changed = set()
    for address in addresses(job_id):
        before = held.get(address)
        answer = api.http.get(
            address, headers={} if before is None else {"If-None-Match": before[0]}
        )
        if before is not None and answer.status_code == 304:
            assert (answer.content, answer.headers["etag"]) == (b"", before[0])
            api.forget_answers()
            assert api.http.get(address).content == before[1], f"a wrong 304 at {address}"
            continue
        assert answer.status_code == 200, answer.text
        assert answer.headers["cache-control"] == "no-cache"
        held[address] = answer.headers["etag"], answer.content
        if before is not None and before[1] != answer.content:
            changed.add(address)
    return changed


def story(api: Api) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield after each change in a job's life and around it.

    The first change is the job's creation.
    """
    database = api.database
    job_id = scenes.submit(database)
    yield job_id, lambda: None
    yield (
        "/v1/jobs",
        lambda: scenes.add_node(database),
    )  # the reason of its wait changed without a change of the job
    yield "/v1/queue", lambda: scenes.wait(api.database, job_id, 1, "two devices are busy")
    yield "/v1/jobs?state=queued&limit=1", lambda: api.job_id({**SCRIPT, "priority": 90})
    yield "/v1/queue", lambda: scenes.wait(api.database, job_id, 2, "behind another")
    started: list[Claim] = []
    yield "/v1/nodes", lambda: started.append(scenes.start(database, job_id))
    (claim,) = started
    job = f"/v1/jobs/{job_id}"
    yield job, lambda: running(api, claim)
    yield f"{job}/metrics", lambda: upload_metrics(api, claim, record(1, 3.0), record(2, 2.5))
    yield (
        f"{job}/metrics",
        lambda: upload_metrics(api, claim, record(2, 2.0)),
    )  # the same step again
    yield (
        f"{job}/logs?tail=1",
        lambda: upload_logs(api, claim, (0, "stdout", "one"), (1, "stderr", "two")),
    )
    yield f"{job}/logs?tail=1", lambda: upload_logs(api, claim, (0, "stdout", "three"))
    yield f"{job}/checkpoints", lambda: publish(api, claim, 10)
    yield f"{job}/checkpoints", lambda: publish(api, claim, 20)
    yield f"{job}/checkpoints", lambda: prune(api, job_id)
    yield f"{job}/live?names=train/loss", lambda: warn(api, job_id)  # no new version of the job
    yield "/v1/nodes", lambda: api.http.post("/v1/nodes/n1/drain").raise_for_status()
    yield "/v1/nodes", lambda: quarantine(api)
    yield "/v1/nodes", lambda: api.http.post("/v1/nodes/n1/resume").raise_for_status()
    yield "/v1/nodes", lambda: silence(api)
    yield "/v1/nodes", lambda: api.register("n2")
    yield job, lambda: api.http.post(f"{job}/cancel").raise_for_status()
    yield (
        f"{job}/logs?tail=1",
        lambda: scenes.end(database, claim, Reason.CANCELLED),
    )  # complete, with the same lines
    yield "/v1/nodes", lambda: scenes.release(database, claim)


def running(api: Api, claim: Claim) -> None:
    with api.database.jobs() as session:
        assert attempts.mark_running(session, claim.assignment_id, claim.token)


def publish(api: Api, claim: Claim, step: int) -> None:
    with api.database.jobs() as session:
        location, sha256 = f"jobs/x/1/step-{step:08d}", "ab" * 32
        assert checkpoints.publish(
            session,
            claim.assignment_id,
            claim.token,
            step=step,
            location=location,
            bytes=1,
            sha256=sha256,
            final=False,
        )


def warn(api: Api, job_id: str) -> None:
    with api.database.jobs() as session:
        events.add(
            session, job_id=job_id, attempt=1, kind="warning", message="slow", actor="node:n1"
        )


def prune(api: Api, job_id: str) -> None:
    with api.database.jobs() as session:
        assert checkpoints.prune(session, job_id, keep_last=1)


def quarantine(api: Api) -> None:
    with api.database.jobs() as session:
        assert nodes.quarantine(session, "n1", "it failed two jobs")


def silence(api: Api) -> None:
    with api.database.jobs() as session:
        session.execute(update(NodeRow).values(seen_at=db_now() - 3_600.0))


def test_after_any_change_no_poller_gets_a_304(api: Api) -> None:
    told = story(api)
    job_id, _ = next(told)
    held: Held = {}
    poll(api, held, job_id)
    for must_change, change in told:
        change()
        changed = poll(api, held, job_id)
        assert must_change in changed, (
            f"the story means to change {must_change}, and changed {changed or 'nothing'}"
        )
    assert not poll(api, held, job_id)


def test_where_nothing_happens_every_poll_is_answered_without_a_body(unchanged_api: Api) -> None:
    api = unchanged_api
    claim = scenes.run(api.database)
    upload_metrics(api, claim, record(1))
    for address in (
        *addresses(claim.job_id),
        "/v1/jobs/last",
        f"/v1/jobs/{claim.job_id}/events?limit=1",
    ):
        tag = api.http.get(address).headers["etag"]
        same = api.http.get(address, headers={"If-None-Match": tag})
        assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag), address


def test_a_node_that_is_lost_by_time_alone_changes_the_list(unchanged_api: Api) -> None:
    api = unchanged_api
    api.register("quiet")
    tag = api.http.get("/v1/nodes").headers["etag"]
    with api.database.jobs() as session:
        agreed_timings.store(session, Timings().scaled(1e-8))
    try:
        again = api.http.get("/v1/nodes", headers={"If-None-Match": tag})
    finally:
        with api.database.jobs() as session:
            agreed_timings.store(session, Timings())
    assert again.status_code == 200
    assert {node["state"] for node in again.json()["items"]} == {"lost"}


def test_a_log_as_text_and_as_json_are_two_answers(unchanged_api: Api) -> None:
    api = unchanged_api
    address = f"/v1/jobs/{api.job_id()}/logs"
    as_json = api.http.get(address)
    as_text = api.http.get(
        address, headers={"Accept": "text/plain", "If-None-Match": as_json.headers["etag"]}
    )
    assert as_text.status_code == 200
    assert as_json.headers["vary"] == as_text.headers["vary"] == "Accept"


def test_an_unchanged_poll_takes_few_statements_and_no_documents(unchanged_api: Api) -> None:
    api = unchanged_api
    for _ in range(3):
        job_id = api.job_id()
    with api.database.jobs() as session:
        for job in session.scalars(select(JobRow)):
            job.wait_reason = "examined"
    # The batches of placed jobs take one more. Own jobs are those that live, ended, or failed
    # lately, and their marks.
    few = {f"/v1/jobs/{job_id}/live": 1, "/v1/jobs": 2, "/v1/queue": 1, "/v1/home": 5}
    tags = {address: api.http.get(address).headers["etag"] for address in few}
    asked: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        asked.append(statement)

    engines = {api.database._jobs, api.database._series, api.database._lists}
    with ExitStack() as stack:
        for engine in engines:
            event.listen(engine, "before_cursor_execute", note)
            stack.callback(event.remove, engine, "before_cursor_execute", note)
        found = {}
        for address, tag in tags.items():
            assert api.http.get(address, headers={"If-None-Match": tag}).status_code == 304
            found[address] = len(asked)
            assert not [statement for statement in asked if "document" in statement]
            asked.clear()
    assert all(found[address] <= count for address, count in few.items()), found


@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
def test_a_change_under_if_match_is_refused(api: Api, method: str) -> None:
    path, body = f"/v1/jobs/{api.job_id()}", {"note": "mine"}
    tag = api.http.get(path).headers["ETag"]
    for given in (tag, tag.removeprefix("W/"), '"a", "b"'):
        sent = body if method == "PATCH" else None
        refused = api.http.request(method, path, json=sent, headers={"If-Match": given})
        assert "all tags of views are weak" in problem(refused, 412, "condition")["detail"]
    assert api.http.patch(path, json=body, headers={"If-Match": "*"}).json()["note"] == "mine"
    assert api.http.get(path, headers={"If-Match": tag}).status_code == 200
