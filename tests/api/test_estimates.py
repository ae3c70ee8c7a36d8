"""Expected start of a queued job on its page, in the queue, in the list and in the plan."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import update

from lockstep.api.jobs.estimates import rounded
from lockstep.domain.training.metrics import StepValues
from lockstep.storage.attempts.attempts import Claim
from lockstep.storage.db.clock import now
from lockstep.storage.db.series_tables import SeriesLatestRow
from tests.api.conftest import SCRIPT, TRAIN, Api
from tests.api.test_reading import upload_metrics
from tests.storage import scenes

BOTH = {**SCRIPT, "resources": {"gpus": 4}}


@pytest.fixture
def claim(api: Api) -> Claim:
    """Claim a job that holds two of four devices.

    It has completed 5 of 20 steps of 64 samples, with two minutes per step.
    """
    claim = scenes.run(api.database)
    report(api, claim, step=5, samples_per_second=64 / 120)
    return claim


def report(api: Api, claim: Claim, *, step: int, samples_per_second: float) -> None:
    with api.database.read_jobs() as session:
        at = now(session)
    values = {"throughput/samples_per_second": samples_per_second}
    upload_metrics(api, claim, StepValues(step, at, values))


def wait(api: Api, spec: dict[str, Any]) -> str:
    job_id = api.job_id(spec)
    scenes.wait(api.database, job_id)
    return job_id


def seconds_ahead(start: str) -> float:
    return (datetime.fromisoformat(start) - datetime.now(UTC)).total_seconds()


def test_every_view_of_a_queued_job_has_the_same_expected_start(api: Api, claim: Claim) -> None:
    job_id = wait(api, BOTH)
    views = [
        api.http.get(f"/v1/jobs/{job_id}").json(),
        api.http.get("/v1/queue").json()["items"][0],
        next(job for job in api.http.get("/v1/jobs").json()["items"] if job["id"] == job_id),
    ]
    starts = {view["queue"]["estimated_start"] for view in views}
    assert len(starts) == 1
    # 15 steps of two minutes, to the next multiple of five minutes.
    assert 1_780 <= seconds_ahead(starts.pop()) <= 1_800 + 300


def test_a_plan_has_the_estimate_before_a_submit(api: Api, claim: Claim) -> None:
    plan = api.http.post("/v1/jobs/plan", json={**TRAIN, "resources": {"gpus": 4}}).json()
    assert plan["placement"] == []
    assert 1_780 <= seconds_ahead(plan["queue"]["estimated_start"]) <= 1_800 + 300


def test_a_job_behind_one_of_unknown_length_has_no_estimate(api: Api) -> None:
    scenes.run(api.database, kind="script", train=None, script={"command": ["train.py"]})
    job_id = wait(api, BOTH)
    assert api.http.get(f"/v1/jobs/{job_id}").json()["queue"]["estimated_start"] is None


def test_a_job_that_starts_in_the_next_cycle_has_no_estimate(api: Api, claim: Claim) -> None:
    job_id = wait(api, SCRIPT)
    assert api.http.get(f"/v1/jobs/{job_id}").json()["queue"]["estimated_start"] is None


def test_only_an_unchanged_estimate_is_a_304(
    api: Api, claim: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = wait(api, BOTH)
    addresses = (f"/v1/jobs/{job_id}", "/v1/queue", "/v1/jobs?state=queued")
    tags = [api.http.get(address).headers["etag"] for address in addresses]
    for address, tag in zip(addresses, tags, strict=True):
        assert api.http.get(address, headers={"If-None-Match": tag}).status_code == 304
    monkeypatch.setattr("lockstep.api.jobs.estimates.REMEMBER_SECONDS", -1.0)
    report(api, claim, step=6, samples_per_second=64 / 600)
    for address, tag in zip(addresses, tags, strict=True):
        assert api.http.get(address, headers={"If-None-Match": tag}).status_code == 200


def test_a_speed_that_means_nothing_gives_no_estimate(api: Api, claim: Claim) -> None:
    job_id = wait(api, BOTH)
    with api.database.series() as session:
        session.execute(update(SeriesLatestRow).values(value=0.0))
    assert api.http.get(f"/v1/jobs/{job_id}").json()["queue"]["estimated_start"] is None


@pytest.mark.parametrize(
    ("ahead", "to"), [(30.0, 60), (599.0, 60), (601.0, 300), (3_601.0, 900), (90_000.0, 3_600)]
)
def test_later_estimates_are_rounder(ahead: float, to: int) -> None:
    now_ = 1_790_000_000.0
    found = rounded(now_ + ahead, now=now_)
    assert found % to == 0
    assert now_ + ahead <= found < now_ + ahead + to
