"""Lists of jobs over HTTP: filter, order, columns, totals, and what is wrong with a token."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lockstep.domain import limits
from lockstep.domain.life.outcomes import Reason
from lockstep.storage.jobs import listing
from tests.api.conftest import SCRIPT, TRAIN, Api, problem
from tests.api.test_reading import record, upload_metrics
from tests.storage import scenes


def listed(api: Api, **asked: Any) -> Any:
    response = api.http.get("/v1/jobs", params=asked)
    assert response.status_code == 200, response.text
    return response.json()


def ids(api: Api, **asked: Any) -> list[str]:
    return [job["id"] for job in listed(api, **asked)["items"]]


def test_a_list_is_filtered_sorted_and_has_columns(api: Api) -> None:
    claim = scenes.run(api.database)
    upload_metrics(api, claim, record(1, **{"val/loss": 2.0}), record(2, **{"val/loss": 3.0}))
    big = api.job_id({**TRAIN, "resources": {"gpus": 4}, "labels": {"set": "mix"}})
    small = api.job_id(TRAIN)
    script = api.job_id({**SCRIPT, "script": {"command": ["/srv/t.py", "--lr", "0.5"]}})
    assert ids(api, filter="gpus>2") == ids(api, filter="label:mix owner:ADA") == [big]
    assert ids(api, filter="val/loss>2.5 val/loss:min<=2") == [claim.job_id]
    assert ids(api, filter="args.lr>=0.5 kind:script") == [script]
    assert ids(api, sort="-gpus", limit=1) == [big]
    assert ids(api, sort="val/loss") == [claim.job_id, script, small, big]
    columns = ["val/loss", "metric:val/loss:max", "setting:args.lr", "train.batch.size"]
    found = {job["id"]: job["values"] for job in listed(api, columns=columns)["items"]}
    assert found[claim.job_id] == {
        "metric:val/loss:last": 3.0,
        "metric:val/loss:max": 3.0,
        "setting:train.batch.size": 64.0,
    }
    assert found[script] == {"setting:args.lr": "0.5"}


def test_the_number_by_state_does_not_depend_on_the_chosen_states(api: Api) -> None:
    scenes.run(api.database)
    for _ in range(3):
        api.job_id({**SCRIPT, "labels": {"team": "a"}})
    page = listed(api, state="queued", limit=2, totals=True, group="label:team")
    assert page["total"] == 3
    assert page["totals"]["states"] == {"running": 1, "queued": 3}
    assert page["totals"]["gpus_in_use"] == 0
    (group,) = page["totals"]["groups"]
    assert (group["value"], group["total"], group["states"]) == ("a", 3, {"queued": 3})
    assert listed(api, totals=True)["totals"]["gpus_in_use"] == 2
    assert listed(api)["totals"] is None


def test_jobs_are_counted_to_a_bound_unless_totals_are_asked_for(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "COUNTED_MAX", 3)
    for number in range(5):
        api.submit({**SCRIPT, "name": f"job-{number}"})
    assert listed(api, limit=1)["total"] == 3
    assert listed(api, limit=1, totals=True)["total"] == 5


def test_every_change_of_the_totals_changes_the_tag(api: Api) -> None:
    claim = scenes.run(api.database)
    api.job_id()
    address = "/v1/jobs?limit=1&totals=true"
    tag = api.http.get(address).headers["etag"]
    assert api.http.get(address, headers={"If-None-Match": tag}).status_code == 304
    scenes.end(api.database, claim, Reason.SUCCEEDED)  # a job of another page
    again = api.http.get(address, headers={"If-None-Match": tag})
    assert (again.status_code, again.json()["totals"]["states"]["succeeded"]) == (200, 1)


@pytest.mark.parametrize(
    ("asked", "pointer", "token", "says", "near"),
    [
        ({"filter": "gpus>4 gpu>4"}, "filter", "gpu>4", "no job has a field 'gpu'", "gpus"),
        ({"filter": "gpus>many"}, "filter", "gpus>many", "expected a number, got 'many'", ""),
        ({"filter": "gpus>nan"}, "filter", "gpus>nan", "expected a number, got 'nan'", ""),
        ({"filter": "owner>ada"}, "filter", "owner>ada", "owner is a text", "owner:ada"),
        ({"filter": "state:runing"}, "filter", "state:runing", "expected queued", "running"),
        ({"filter": "age<week"}, "filter", "age<week", "expected a duration", ""),
        ({"filter": "created>soon"}, "filter", "created>soon", "expected a day", "2026"),
        ({"filter": 'name:"a'}, "filter", 'name:"a', "has no closing quote", "two words"),
        ({"filter": "gpus>"}, "filter", "gpus>", "has no value", "gpus>VALUE"),
        ({"filter": ":a"}, "filter", ":a", "has no field", "gpus>4"),
        ({"filter": "gpus>1,2"}, "filter", "gpus>1,2", "has several values", "gpus>1"),
        ({"filter": "a " * 31}, "filter", "a", "expected at most 30 tokens", ""),
        ({"sort": "-gpu"}, "sort", "-gpu", "no job has a field 'gpu'", "gpus"),
        ({"sort": "label:team"}, "sort", "label:team", "is no order", "Group by it"),
        ({"columns": ["lrr", "train.steps"]}, "columns", "lrr", "no job has a field", "lr"),
        ({"group": "gpus"}, "group", "gpus", "makes no groups", "owner"),
    ],
    ids=json.dumps,
)
def test_a_bad_token_is_refused_by_name(
    api: Api, asked: dict[str, Any], pointer: str, token: str, says: str, near: str
) -> None:
    api.job_id(TRAIN)
    found = problem(api.http.get("/v1/jobs", params=asked), 422, "invalid")
    (error,) = found["errors"]
    assert (error["pointer"], error["value"]) == (f"/query/{pointer}", token)
    assert says in error["message"]
    assert near in error["next_step"]


def test_each_bad_token_is_refused(api: Api) -> None:
    found = problem(api.http.get("/v1/jobs?filter=gpu>4 ok owners:a"), 422, "invalid")
    assert [error["value"] for error in found["errors"]] == ["gpu>4", "owners:a"]


def test_the_queue_goes_on_after_a_page(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PAGE_SIZE_MAX", 2)
    made = [api.job_id() for _ in range(3)]
    first = api.http.get("/v1/queue").json()
    last = api.http.get("/v1/queue", params={"cursor": first["next_cursor"]}).json()
    assert [job["id"] for page in (first, last) for job in page["items"]] == made
    assert (len(first["items"]), last["next_cursor"]) == (2, None)
