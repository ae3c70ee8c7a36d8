"""Reading a running job: views, progress, entity tags, pages, logs, metrics, events, checkpoints."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from lockstep.api.jobs.views import JobRelations
from lockstep.domain.life.attempt import LogRecord
from lockstep.domain.life.outcomes import Reason
from lockstep.domain.spec.job import JobSpec
from lockstep.domain.training.metrics import StepValues
from lockstep.domain.training.plan import plan_of
from lockstep.storage.attempts import attempts, checkpoints, nodes
from lockstep.storage.attempts.attempts import Claim
from lockstep.storage.logs import logs
from lockstep.storage.series import series, streams
from tests.api.conftest import SCRIPT, TRAIN, Api, problem
from tests.storage import scenes

START = 1_790_000_000.0


def upload_metrics(api: Api, claim: Claim, *records: StepValues) -> None:
    with api.database.series() as session:
        found = streams.state(session, claim.assignment_id)
        assert found is not None
        before = found.metrics_offset
        assert series.append(
            session,
            assignment_id=claim.assignment_id,
            token=claim.token,
            offset_before=before,
            offset_after=before + 100,
            records=list(records),
        )


def upload_logs(api: Api, claim: Claim, *lines: tuple[int, str, str]) -> None:
    with api.database.series() as session:
        found = streams.state(session, claim.assignment_id)
        assert found is not None
        records = [
            LogRecord(time=START, rank=rank, stream=stream, text=text)
            for rank, stream, text in lines
        ]
        before = (found.log_segment, found.log_offset)
        assert logs.append(
            session,
            assignment_id=claim.assignment_id,
            token=claim.token,
            offset_before=before,
            offset_after=(before[0], before[1] + 100),
            records=records,
        )


def record(step: int, loss: float = 2.5, **values: float) -> StepValues:
    named = {name.replace("__", "/"): value for name, value in values.items()}
    return StepValues(step, START + step, {"train/loss": loss, **named})


def test_a_running_job_shows_attempt_progress_and_remaining_time(api: Api) -> None:
    claim = scenes.run(api.database)  # 20 steps of 64 samples
    upload_metrics(
        api,
        claim,
        *(
            record(step, 3 - step / 10, throughput__samples_per_second=128.0)
            for step in range(1, 6)
        ),
    )
    job = api.http.get(f"/v1/jobs/{claim.job_id}").json()
    assert job["state"] == "running"
    assert job["started_at"]
    assert job["attempt"]["number"] == 1
    assert job["attempt"]["nodes"] == ["n1"]
    assert job["attempt"]["world_size"] == 2
    assert job["progress"] == {
        "step": 5,
        "steps": 20,
        "samples": 320,
        "fraction": 0.25,
        "eta_seconds": 15 * 64 / 128,
        "latest": {"throughput/samples_per_second": 128.0, "train/loss": 2.5},
        "main": "train/loss",
    }


def test_a_job_that_succeeded_shows_its_last_step_though_points_are_missing(api: Api) -> None:
    """A restored backup does not have them."""
    claim = scenes.run(api.database)  # 20 steps
    upload_metrics(api, claim, record(12))
    scenes.end(api.database, claim, Reason.SUCCEEDED, last_step=20)
    progress = api.http.get(f"/v1/jobs/{claim.job_id}").json()["progress"]
    assert (progress["step"], progress["fraction"], progress["samples"]) == (20, 1.0, 20 * 64)


def test_without_a_throughput_the_mean_speed_gives_the_remaining_time(api: Api) -> None:
    claim = scenes.run(api.database)
    upload_metrics(api, claim, record(1), record(11))
    assert api.http.get("/v1/jobs/last").json()["progress"]["eta_seconds"] == pytest.approx(9.0)


def test_a_value_that_is_not_finite_is_a_string(api: Api) -> None:
    claim = scenes.run(api.database)
    upload_metrics(api, claim, record(1, math.nan, throughput__samples_per_second=math.inf))
    latest = api.http.get("/v1/jobs/last").json()["progress"]["latest"]
    assert latest == {"train/loss": "NaN", "throughput/samples_per_second": "Infinity"}


def test_a_failed_job_shows_its_outcome(api: Api) -> None:
    claim = scenes.run(api.database)
    scenes.end(
        api.database,
        claim,
        Reason.USER_ERROR,
        rank=1,
        exception="ValueError: no",
        traceback="…",
        last_step=7,
    )
    job = api.http.get(f"/v1/jobs/{claim.job_id}").json()
    assert (job["state"], job["reason"]) == ("failed", "user_error")
    assert job["outcome"]["rank"] == 1
    assert job["outcome"]["exception"] == "ValueError: no"
    assert job["outcome"]["last_step"] == 7
    assert job["outcome"] == job["attempt"]["outcome"]
    assert job["finished_at"]


def test_a_queued_job_shows_its_position_and_reason(api: Api) -> None:
    job_id = api.job_id()
    scenes.wait(api.database, job_id, 3, "waits for a free device", needs=1)
    job = api.http.get(f"/v1/jobs/{job_id}").json()
    why = {"reason": "waits for a free device", "code": "behind", "facts": {"needs": 1}}
    assert job["queue"] == {"position": 3, **why, "estimated_start": None}
    assert job["reason"] == why["reason"]


def test_an_unchanged_job_is_answered_without_a_body(api: Api) -> None:
    claim = scenes.run(api.database)
    address = f"/v1/jobs/{claim.job_id}"
    tag = api.http.get(address).headers["etag"]
    for held in (tag, tag.removeprefix("W/"), f'"other", {tag}', "*"):
        same = api.http.get(address, headers={"If-None-Match": held})
        assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    assert api.http.get(address, headers={"If-None-Match": '"other"'}).status_code == 200


@pytest.mark.parametrize("what", ["points", "lines", "state", "intent", "queue"])
def test_every_change_that_shows_changes_the_tag(api: Api, what: str) -> None:
    claim = scenes.run(api.database)
    address = f"/v1/jobs/{claim.job_id}"
    if what == "queue":
        address = f"/v1/jobs/{api.job_id()}"
    tag = api.http.get(address).headers["etag"]
    if what == "points":
        upload_metrics(api, claim, record(1))
    elif what == "lines":
        upload_logs(api, claim, (0, "stdout", "hello"))
    elif what == "state":
        scenes.end(api.database, claim, Reason.SUCCEEDED)
    elif what == "intent":
        assert api.http.post(f"{address}/cancel").status_code == 202
    else:
        scenes.wait(api.database, address.rpartition("/")[2])
    again = api.http.get(address, headers={"If-None-Match": tag})
    assert again.status_code == 200
    assert again.headers["etag"] != tag


def test_a_job_is_found_by_id_suffix_or_position(api: Api) -> None:
    older, newer = api.job_id(), api.job_id()
    for reference in (newer, newer[-8:], "first", "last"):
        assert api.http.get(f"/v1/jobs/{reference}").json()["id"] == newer
    assert api.http.get(f"/v1/jobs/{older[-8:]}").json()["id"] == older


def test_pages_hold_every_job_once_newest_first(api: Api) -> None:
    ids = [api.job_id({**SCRIPT, "name": f"job-{n}"}) for n in range(7)]
    seen: list[str] = []
    cursor = ""
    while True:
        page = api.http.get(
            "/v1/jobs", params={"limit": 3, **({"cursor": cursor} if cursor else {})}
        ).json()
        seen += [job["id"] for job in page["items"]]
        api.job_id({**SCRIPT, "name": "meanwhile"})  # changes nothing on the following pages
        if page["next_cursor"] is None:
            break
        cursor = page["next_cursor"]
    assert seen == ids[::-1]
    assert problem(api.http.get("/v1/jobs?cursor=nonsense"), 422, "invalid")["next_step"]


def test_a_list_applies_its_filters(api: Api) -> None:
    red = api.job_id({**SCRIPT, "name": "red", "labels": {"team": "a=b"}})
    blue = api.job_id({**SCRIPT, "name": "blue", "project": "vision"})
    api.http.post(f"/v1/jobs/{blue}/cancel")

    def shown(**asked: object) -> list[str]:
        return [job["id"] for job in api.http.get("/v1/jobs", params=asked).json()["items"]]

    assert shown() == [blue, red]
    assert shown(sort="created") == [red, blue]
    assert shown(state="queued") == [red]
    assert shown(state=["queued", "cancelled"]) == [blue, red]
    assert shown(name="red") == [red]
    assert shown(project="vision") == [blue]
    assert shown(label="team=a=b") == [red]
    assert shown(label="team=a") == []
    assert shown(search="E") == shown(search="") == shown(owner="ada") == [blue, red]
    assert shown(search="BL") == shown(search=blue[-12:]) == [blue]
    assert shown(owner="grace") == shown(node="n1") == []
    assert shown(owner="A*", project="*is*") == [blue]
    assert shown(project="vis") == []


def test_a_list_has_the_number_of_jobs_on_all_pages(api: Api) -> None:
    for number in range(5):
        api.job_id({**SCRIPT, "name": f"job-{number}"})

    def total(**asked: object) -> int:
        return int(api.http.get("/v1/jobs", params=asked).json()["total"])

    second = api.http.get("/v1/jobs?limit=2").json()["next_cursor"]
    assert total() == total(limit=2) == total(limit=2, cursor=second) == 5
    assert total(search="job-3") == 1
    assert total(search="none") == 0
    # A page changes when another page gets a job.
    page = api.http.get("/v1/jobs?limit=2&sort=created")
    api.job_id({**SCRIPT, "name": "more"})
    again = api.http.get(
        "/v1/jobs?limit=2&sort=created", headers={"If-None-Match": page.headers["etag"]}
    )
    assert (again.status_code, again.json()["total"]) == (200, 6)


def test_the_number_of_statements_does_not_depend_on_the_jobs(api: Api) -> None:
    scenes.add_node(api.database, devices=12)
    counted: list[str] = []

    @event.listens_for(api.database._jobs, "before_cursor_execute")
    def _count(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        counted.append(statement)

    def statements() -> int:
        api.forget_answers()
        counted.clear()
        assert api.http.get("/v1/jobs").status_code == 200
        return len(counted)

    scenes.start(api.database, scenes.submit(api.database), devices=(0, 1))
    statements()  # reads the token once
    one = statements()
    for first in range(2, 12, 2):
        scenes.start(api.database, scenes.submit(api.database), devices=(first, first + 1))
    assert statements() == one


def test_a_job_and_a_list_are_computed_once_for_all_readers(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    put_together = JobRelations.load

    def counted(*given: Any, **named: Any) -> JobRelations:
        made.append("once")
        return put_together(*given, **named)

    monkeypatch.setattr(JobRelations, "load", counted)
    job_id = api.job_id()
    for address in (f"/v1/jobs/{job_id}", "/v1/jobs", "/v1/queue"):
        made.clear()
        first = api.http.get(address)
        assert api.http.get(address).json() == first.json()
        assert len(made) == 1, address
    assert api.http.post(f"/v1/jobs/{job_id}/cancel").status_code == 202
    assert api.http.get(f"/v1/jobs/{job_id}").json()["state"] == "cancelled"
    assert [job["state"] for job in api.http.get("/v1/jobs").json()["items"]] == ["cancelled"]
    assert api.http.get("/v1/queue").json()["items"] == []


def test_the_queue_goes_by_priority_then_age(api: Api) -> None:
    late = api.job_id({**SCRIPT, "priority": 10})
    first, second = (api.job_id({**SCRIPT, "priority": 90}) for _ in range(2))
    assert [job["id"] for job in api.http.get("/v1/queue").json()["items"]] == [first, second, late]
    assert api.http.post("/v1/projects", json={"name": "nlp"}).status_code == 201
    nlp = api.job_id({**SCRIPT, "project": "nlp"})
    for pattern, found in (("nlp", [nlp]), ("N*", [nlp]), ("other", []), ("", [])):
        asked = api.http.get("/v1/queue", params={"project": pattern}).json()["items"]
        assert [job["id"] for job in asked] == found, pattern


def test_metrics_are_read_back_as_they_were_written(api: Api) -> None:
    claim = scenes.run(api.database)
    upload_metrics(api, claim, record(1, 3.0), record(2, math.inf), record(3, 2.0, train__lr=0.1))
    answer = api.http.get(f"/v1/jobs/{claim.job_id}/metrics")
    assert answer.json()["job_id"] == claim.job_id
    loss = next(found for found in answer.json()["series"] if found["name"] == "train/loss")
    assert loss["step"] == [1, 2, 3]
    assert loss["value"] == [3.0, "Infinity", 2.0]
    assert loss["time"] == [START + 1, START + 2, START + 3]
    assert (loss["direction"], loss["attempt"], loss["count"]) == ("lower", 1, 3)
    same = api.http.get(
        f"/v1/jobs/{claim.job_id}/metrics", headers={"If-None-Match": answer.headers["etag"]}
    )
    assert (same.status_code, same.content) == (304, b"")


def test_metrics_are_chosen_by_name_and_step_and_reduced(api: Api) -> None:
    claim = scenes.run(api.database)
    upload_metrics(
        api,
        claim,
        *(record(step, float(step), train__lr=0.1, eval__loss=1.0) for step in range(1, 101)),
    )
    address = f"/v1/jobs/{claim.job_id}/metrics"

    def names(query: str) -> list[str]:
        return sorted(
            found["name"] for found in api.http.get(f"{address}?{query}").json()["series"]
        )

    assert names("") == ["eval/loss", "train/loss", "train/lr"]
    assert (
        names("names=train/loss,train/lr")
        == names("names=train/loss&names=train/lr")
        == ["train/loss", "train/lr"]
    )
    (some,) = api.http.get(f"{address}?names=train/loss&from_step=11&to_step=20").json()["series"]
    assert some["step"] == list(range(11, 21))
    (few,) = api.http.get(f"{address}?names=train/loss&max_points=10").json()["series"]
    assert len(few["step"]) <= 10
    assert (few["count"], min(few["min"]), max(few["max"])) == (100, 1.0, 100.0)


def test_logs_are_read_in_pages_and_marked_when_complete(api: Api) -> None:
    claim = scenes.run(api.database)
    upload_logs(api, claim, *((n % 2, "stdout", f"line {n}") for n in range(5)))
    address = f"/v1/jobs/{claim.job_id}/logs"
    first = api.http.get(address, params={"limit": 3}).json()
    rest = api.http.get(address, params={"cursor": first["next_cursor"]}).json()
    assert [line["text"] for line in first["lines"] + rest["lines"]] == [
        f"line {n}" for n in range(5)
    ]
    assert [line["line"] for line in first["lines"] + rest["lines"]] == list(range(5))
    assert not rest["complete"]
    upload_logs(api, claim, (0, "stderr", "the last words"))
    scenes.end(api.database, claim, Reason.USER_ERROR)
    last = api.http.get(address, params={"cursor": rest["next_cursor"]}).json()
    assert [(line["text"], line["rank"], line["stream"]) for line in last["lines"]] == [
        ("the last words", 0, "stderr")
    ]
    assert last["complete"]


def test_logs_are_chosen_by_rank_stream_text_and_end(api: Api) -> None:
    claim = scenes.run(api.database)
    upload_logs(
        api,
        claim,
        (0, "stdout", "alpha"),
        (1, "stdout", "beta"),
        (1, "stderr", "gamma"),
        (0, "stdout", "delta"),
    )
    address = f"/v1/jobs/{claim.job_id}/logs"

    def texts(**asked: object) -> list[str]:
        return [line["text"] for line in api.http.get(address, params=asked).json()["lines"]]

    assert texts(rank=1) == ["beta", "gamma"]
    assert texts(rank=1, stream="stderr") == ["gamma"]
    assert texts(search="lt") == ["delta"]
    assert texts(tail=2) == ["gamma", "delta"]
    assert texts(attempt=2) == []


def test_logs_come_as_plain_text_for_a_pipe(api: Api) -> None:
    claim = scenes.run(api.database)
    upload_logs(api, claim, (0, "stdout", "größe"), (1, "stdout", ""), (0, "stdout", "end"))
    answer = api.http.get(f"/v1/jobs/{claim.job_id}/logs", headers={"Accept": "text/plain"})
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.content.decode() == "größe\n\nend\n"
    assert answer.headers["x-complete"] == "false"
    more = api.http.get(
        f"/v1/jobs/{claim.job_id}/logs", params={"cursor": answer.headers["x-next-cursor"]}
    )
    assert more.json()["lines"] == []


def test_published_checkpoints_are_listed_newest_first(api: Api) -> None:
    claim = scenes.run(api.database)
    with api.database.jobs() as session:
        for step, final in ((10, False), (20, True)):
            assert checkpoints.publish(
                session,
                claim.assignment_id,
                claim.token,
                step=step,
                location=f"jobs/x/1/step-{step:08d}",
                bytes=123,
                sha256="ab" * 32,
                final=final,
            )
    found = api.http.get(f"/v1/jobs/{claim.job_id}/checkpoints").json()["items"]
    assert [(one["step"], one["final"], one["attempt"], one["bytes"]) for one in found] == [
        (20, True, 1, 123),
        (10, False, 1, 123),
    ]
    # The location that a user can open, and not the store's own key.
    assert Path(found[0]["location"]).is_absolute()
    assert found[0]["location"].endswith("/jobs/x/1/step-00000020")


def test_nodes_show_their_devices_and_the_jobs_on_them(api: Api) -> None:
    claim = scenes.run(api.database)
    with api.database.jobs() as session:
        nodes.register(
            session,
            "n2",
            [nodes.DeviceInfo(0, "cuda", "NVIDIA H200", 150_000_000_000)],
            version="2",
            boot_id="b",
        )
        nodes.set_draining(session, "n2", True)
    first, second = api.http.get("/v1/nodes").json()["items"]
    assert (first["name"], first["state"], first["devices_free"]) == ("n1", "ready", 2)
    assert [device["job_id"] for device in first["devices"]] == [
        claim.job_id,
        claim.job_id,
        None,
        None,
    ]
    assert (second["state"], second["devices"][0]["type"]) == ("draining", "NVIDIA H200")


def test_the_newest_attempt_is_the_one_shown(api: Api) -> None:
    claim = scenes.run(api.database)
    scenes.end(api.database, claim, Reason.KILLED, rank=0, signal="SIGKILL")
    scenes.release(api.database, claim)
    scenes.skip_backoff(api.database, claim.job_id)
    again = scenes.start(api.database, claim.job_id)
    job = api.http.get(f"/v1/jobs/{claim.job_id}").json()
    assert (
        (job["attempt"]["number"], job["state"])
        == (again.attempt_number, "starting")
        == (2, "starting")
    )
    with api.database.jobs() as session:
        assert attempts.mark_running(session, again.assignment_id, again.token)
    assert api.http.get(f"/v1/jobs/{claim.job_id}").json()["state"] == "running"


def test_every_attempt_is_listed_with_its_batch_plan_and_outcome(api: Api) -> None:
    claim = scenes.run(api.database)
    address = f"/v1/jobs/{claim.job_id}/attempts"
    tag = api.http.get(address).headers["etag"]
    assert api.http.get(address, headers={"If-None-Match": tag}).status_code == 304
    plan = plan_of(JobSpec.model_validate(scenes.document()))
    assert plan is not None
    halved = plan.halved()
    assert halved is not None
    with api.database.jobs() as session:
        assert attempts.settle_plan(
            session, claim.assignment_id, claim.token, halved.model_dump(mode="json")
        )
    scenes.end(api.database, claim, Reason.KILLED, rank=0, signal="SIGKILL")
    scenes.release(api.database, claim)
    scenes.skip_backoff(api.database, claim.job_id)
    scenes.start(api.database, claim.job_id)
    answer = api.http.get(address, headers={"If-None-Match": tag})
    newest, first = answer.json()["items"]
    assert (newest["number"], newest["state"], newest["outcome"]) == (2, "starting", None)
    assert (first["number"], first["state"], first["nodes"]) == (1, "ended", ["n1"])
    assert (
        first["plan_sentence"]
        == halved.sentence()
        == "64 = 2 ranks × 4 samples × 8 accumulation steps"
    )
    assert first["outcome"]["signal"] == "SIGKILL"


def test_the_spec_a_job_runs_by_has_every_default(api: Api) -> None:
    job_id = api.job_id(TRAIN)
    answer = api.http.get("/v1/jobs/last/spec")
    assert answer.json()["job_id"] == job_id
    assert answer.json()["spec"] == JobSpec.model_validate(TRAIN).model_dump(mode="json")
    assert api.http.get(f"/v1/jobs/{job_id}").json()["spec"] == TRAIN
    held = {"If-None-Match": answer.headers["etag"]}
    assert api.http.get("/v1/jobs/last/spec", headers=held).status_code == 304
    problem(api.http.get("/v1/jobs/nobody/spec"), 404, "not_found")
    problem(api.http.get("/v1/jobs/nobody/attempts"), 404, "not_found")
