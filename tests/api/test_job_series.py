"""``GET /v1/jobs/{id}/series``: metadata and figures over HTTP, and the main series of a list."""

from __future__ import annotations

import json
import math

from lockstep.domain.life.outcomes import Reason
from lockstep.domain.series_views import JobSeriesSummary
from lockstep.domain.training.definitions import SeriesDefinition
from lockstep.domain.training.metrics import StepValues
from lockstep.storage.series import definitions
from tests.api.conftest import Api
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
