"""Reports of device use: their rows, their range, and the jobs that they count."""

from __future__ import annotations

import pytest

from lockstep.storage.db.clock import now
from tests.api.conftest import Api, problem
from tests.storage.test_ledger import DAY, account, lived


def test_a_report_has_running_use_and_use_of_deleted_jobs(api: Api) -> None:
    with api.database.read_jobs() as session:
        at = now(session)
    hour = 3_600.0
    lived(
        api.database,
        placed=at - 4 * hour,
        running=at - 3.5 * hour,
        ended=at - 3 * hour,
        released=at - 2 * hour,
    )
    account(api.database)
    (gone,) = api.http.get("/v1/jobs").json()["items"]
    assert api.http.delete(f"/v1/jobs/{gone['id']}").status_code == 204
    lived(api.database, placed=at - hour, running=at - hour, ended=at + DAY, released=None)
    report = api.http.get("/v1/usage").json()
    (row,) = report["rows"]
    assert (row["name"], row["jobs"], report["by"]) == ("default", 2, "project")
    assert row["allocated"] == pytest.approx(6, abs=0.2)
    assert row["productive"] == pytest.approx(3, abs=0.2)
    assert row["idle"] == pytest.approx(3)
    (person,) = api.http.get("/v1/usage", params={"by": "person"}).json()["rows"]
    assert person["name"] == "ada"
    days = api.http.get("/v1/usage", params={"by": "day"}).json()["rows"]
    assert report["ends_at"].startswith(days[-1]["name"])
    asked = {"from": str(at - 3 * hour), "to": str(at - 2.5 * hour)}
    (cut,) = api.http.get("/v1/usage", params=asked).json()["rows"]
    assert (cut["jobs"], cut["allocated"]) == (1, pytest.approx(1))


@pytest.mark.parametrize(
    "asked",
    [
        {"from": "2026-01-02T00:00:00Z", "to": "2026-01-01T00:00:00Z"},
        {"from": "2024-01-01T00:00:00Z", "to": "2026-01-01T00:00:00Z"},
        {"from": "9000-01-01T00:00:00Z"},
        {"from": "yesterday"},
        {"by": "node"},
    ],
)
def test_an_invalid_range_or_grouping_is_refused(api: Api, asked: dict[str, str]) -> None:
    problem(api.http.get("/v1/usage", params=asked), 422, "invalid")
