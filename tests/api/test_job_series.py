"""``GET /v1/jobs/{id}/series``: metadata and figures over HTTP, and the main series of a list."""

from __future__ import annotations

import json
import math

from lockstep.domain.life.outcomes import Reason
from lockstep.domain.series_views import JobSeriesSummary, SeveralSeriesSummary
from lockstep.domain.training.definitions import SeriesDefinition
from lockstep.domain.training.metrics import StepValues
from lockstep.storage.series import definitions
from tests.api.conftest import Api, problem
from tests.api.test_reading import upload_metrics
from tests.storage import scenes

LOWER = SeriesDefinition(direction="lower", unit="nats", group="quality")


def _define(api: Api, job_id: str, **fields: SeriesDefinition) -> None:
    with api.database.series() as session:
        definitions.store(session, job_id, fields)


def test_series_have_metadata_figures_and_an_order(api: Api) -> None:
    claim = scenes.run(api.database)
    values = [3.0, math.nan, 1.0, math.inf, 2.0]
    records = [
        StepValues(step, float(step), {"val": value, "heap": 2.0**step, "train/loss": value})
        for step, value in enumerate(values, 1)
    ]
    _define(api, claim.job_id, val=LOWER, heap=SeriesDefinition(kind="bytes", domain=(0, None)))
    upload_metrics(api, claim, *records)
    answer = api.http.get(f"/v1/jobs/{claim.job_id}/series")
    assert answer.status_code == 200
    found = JobSeriesSummary.model_validate_json(answer.content)
    assert [(each.group, each.name) for each in found.series] == [
        ("train", "train/loss"),
        ("quality", "val"),
        ("metrics", "heap"),
    ]
    loss, val, heap = found.series
    assert (loss.unit, loss.direction, loss.best) == ("", "lower", 1.0)
    assert val.model_dump() == {
        **{"name": "val", "group": "quality", "unit": "nats", "kind": "number"},
        **{"direction": "lower", "axis": "step", "domain": (None, None), "attempt": 1},
        **{"last": 2.0, "last_step": 5, "last_time": 5.0, "count": 5, "non_finite": 2},
        **{"min": 1.0, "max": 3.0, "best": 1.0, "best_step": 3},
    }
    assert (heap.unit, heap.kind, heap.domain) == ("bytes", "bytes", (0.0, None))
    assert (heap.best, heap.best_step) == (None, None)
    (curve,) = api.http.get(f"/v1/jobs/{claim.job_id}/metrics?names=val").json()["series"]
    assert (curve["unit"], curve["kind"], curve["direction"]) == ("nats", "number", "lower")


def test_a_not_finite_last_value_is_a_name_in_json(api: Api) -> None:
    claim = scenes.run(api.database)
    upload_metrics(api, claim, StepValues(1, 1.0, {"a": math.nan}))
    (series,) = json.loads(api.http.get(f"/v1/jobs/{claim.job_id}/series").content)["series"]
    assert (series["last"], series["min"], series["non_finite"]) == ("NaN", None, 1)


def test_the_answer_has_a_tag_that_changes_with_points_and_definitions(api: Api) -> None:
    claim = scenes.run(api.database)
    upload_metrics(api, claim, StepValues(1, 1.0, {"a": 1.0}))
    path = f"/v1/jobs/{claim.job_id}/series"
    tag = api.http.get(path).headers["ETag"]
    assert api.http.get(path, headers={"If-None-Match": tag}).status_code == 304
    _define(api, claim.job_id, a=LOWER)
    upload_metrics(api, claim)
    fresh = api.http.get(path, headers={"If-None-Match": tag})
    assert (fresh.status_code, fresh.json()["series"][0]["unit"]) == (200, "nats")


def test_series_of_several_jobs_are_described_once(api: Api) -> None:
    first = scenes.run(api.database)
    claims = [first, scenes.start(api.database, scenes.submit(api.database), (2, 3))]
    other = api.job_id()
    _define(api, claims[1].job_id, val=LOWER)
    upload_metrics(api, claims[0], StepValues(1, 1.0, {"a": 1.0}), StepValues(2, 2.0, {"val": 5.0}))
    upload_metrics(api, claims[1], StepValues(3, 1.0, {"val": math.inf, "b": 1.0}))
    jobs = [claims[1].job_id, claims[0].job_id, other]
    path = "/v1/series/summaries"
    answer = api.http.get(path, params={"jobs": ",".join(jobs), "names": "val,unknown"})
    found = SeveralSeriesSummary.model_validate_json(answer.content)
    described = [(each.name, each.group, each.unit, each.direction) for each in found.series]
    assert described == [
        ("a", "metrics", "", "none"),
        ("b", "metrics", "", "none"),
        ("val", "quality", "nats", "none"),
    ]
    assert [each.job_id for each in found.jobs] == jobs
    figures = [
        [(each.name, each.last, each.last_step) for each in job.series] for job in found.jobs
    ]
    assert figures == [[("val", math.inf, 3)], [("val", 5.0, 2)], []]
    same = api.http.get(
        path,
        params={"jobs": ",".join(jobs), "names": "val,unknown"},
        headers={"If-None-Match": answer.headers["ETag"]},
    )
    assert same.status_code == 304
    for asked, says in (
        ({"jobs": ","}, "expected at least one job"),
        ({"jobs": ",".join(map(str, range(201)))}, "expected at most 200 jobs, got 201"),
        ({"jobs": jobs[0], "names": ",".join(map(str, range(21)))}, "expected at most 20 names"),
    ):
        refused = problem(api.http.get(path, params=asked), 422, "invalid")
        assert says in refused["errors"][0]["message"]


def test_definitions_survive_the_attempt(api: Api) -> None:
    claim = scenes.run(api.database)
    _define(api, claim.job_id, val=LOWER)
    upload_metrics(api, claim, StepValues(1, 1.0, {"val": 1.0}), StepValues(2, 2.0, {"val": 4.0}))
    scenes.end(api.database, claim, Reason.KILLED)
    scenes.release(api.database, claim)
    scenes.skip_backoff(api.database, claim.job_id)
    again = scenes.start(api.database, claim.job_id)
    upload_metrics(api, again, StepValues(2, 3.0, {"val": 2.0}))
    (val,) = api.http.get(f"/v1/jobs/{claim.job_id}/series").json()["series"]
    assert (val["unit"], val["attempt"], val["count"], val["max"]) == ("nats", 2, 2, 2.0)


def test_a_list_names_the_main_series_of_each_job(api: Api) -> None:
    claim = scenes.run(api.database)
    upload_metrics(api, claim, StepValues(1, 1.0, {"acc": 0.5, "loss": 2.0, "time/x": 1.0}))
    assert api.http.get("/v1/jobs").json()["items"][0]["progress"]["main"] == "acc"
    _define(api, claim.job_id, loss=LOWER)
    upload_metrics(api, claim)
    assert api.http.get("/v1/jobs").json()["items"][0]["progress"]["main"] == "loss"
