"""Charts of one or several jobs over HTTP, compared with the raw points; and refusals."""

from __future__ import annotations

import csv
import random

import pytest
from sqlalchemy import event

from lockstep.api.http.response_cache import ResponseCache
from lockstep.domain import limits
from lockstep.domain.life.outcomes import Reason
from lockstep.domain.series_views import JobSeriesView, MetricsView, SeriesView, SeveralMetricsView
from lockstep.domain.training.metrics import StepValues, from_json, jsonable
from lockstep.storage.series import series_query
from lockstep.storage.series.series_query import SeriesData
from tests.api.conftest import Api, problem
from tests.api.test_reading import record, upload_metrics
from tests.storage import scenes
from tests.storage.raw_points import NAMES, Stored, check, plant, wanted


def _curve(view: SeriesView) -> SeriesData:
    """Return the curve with numbers instead of their names."""
    fields = view.model_dump()
    return SeriesData(
        **{**fields, **{name: [*map(from_json, fields[name])] for name in ("value", "min", "max")}}
    )


def _check(view: JobSeriesView, stored: Stored, query: dict[str, object]) -> None:
    attempts = str(query.get("attempts", "current"))
    low, high = query.get("from_step"), query.get("to_step")
    for name in NAMES:
        drawn = [_curve(found) for found in view.series if found.name == name]
        expected = wanted(
            stored,
            name,
            low if isinstance(low, int) else None,
            high if isinstance(high, int) else None,
            attempts,
        )
        for curve, inside in zip(drawn, expected, strict=True):
            check(curve, inside, int(str(query["max_points"])))


QUERIES: list[dict[str, object]] = [
    {"max_points": 10_000},
    {"max_points": 1},
    {"max_points": 30},
    {"max_points": 400, "attempts": "all"},
    {"max_points": 50, "from_step": 100, "to_step": 900},
]


def test_buckets_of_one_job_and_of_several_agree_with_the_points(api: Api) -> None:
    stored = {
        api.job_id(): plant(api.database, "", random.Random(0), []),
        **{
            job_id: plant(
                api.database, job_id, random.Random(number), [[700, 900], [20, 800]][: number + 1]
            )
            for number, job_id in enumerate([api.job_id(), api.job_id()])
        },
    }
    for query in QUERIES:
        for job_id, points in stored.items():
            answer = api.http.get(f"/v1/jobs/{job_id}/metrics", params=query)
            _check(MetricsView.model_validate_json(answer.content), points, query)
        answer = api.http.get(
            "/v1/series", params={**query, "jobs": ",".join(stored), "names": ",".join(NAMES)}
        )
        several = SeveralMetricsView.model_validate_json(answer.content)
        assert [view.job_id for view in several.jobs] == list(stored)
        for view in several.jobs:
            _check(view, stored[view.job_id], query)


def test_a_follower_of_a_job_gets_new_points(api: Api) -> None:
    claim = scenes.run(api.database)

    def ask(since: str | None = None) -> MetricsView:
        query = {} if since is None else {"since": since}
        answer = api.http.get(f"/v1/jobs/{claim.job_id}/metrics", params=query)
        return MetricsView.model_validate_json(answer.content)

    upload_metrics(api, claim, record(1), record(2))
    first = ask()
    assert (first.complete, first.series[0].step) == (True, [1, 2])
    upload_metrics(api, claim, record(3))
    second = ask(first.cursor)
    assert (second.complete, second.series[0].step) == (False, [3])
    third = ask(second.cursor)
    assert (third.complete, third.series, third.cursor) == (False, [], second.cursor)
    refused = api.http.get(f"/v1/jobs/{claim.job_id}/metrics", params={"since": "yesterday!"})
    assert "is not a cursor of a job's series" in problem(refused, 422, "invalid")["detail"]


def test_a_follower_of_several_jobs_gets_new_points_of_each(api: Api) -> None:
    claim = scenes.run(api.database)
    query = {"jobs": f"{claim.job_id},{api.job_id()}", "names": "train/loss", "attempts": "all"}

    def ask(**more: object) -> SeveralMetricsView:
        answer = api.http.get("/v1/series", params={**query, **more})
        assert answer.status_code == 200, answer.text
        return SeveralMetricsView.model_validate_json(answer.content)

    def new(view: SeveralMetricsView) -> list[tuple[bool, list[int]]]:
        return [
            (job.complete, [step for series in job.series for step in series.step])
            for job in view.jobs
        ]

    upload_metrics(api, claim, record(1), record(2))
    first = ask()
    assert new(first) == [(True, [1, 2]), (True, [])]
    upload_metrics(api, claim, record(3))
    cursors = ",".join(job.cursor for job in first.jobs)
    second = ask(since=cursors)
    assert new(second) == [(False, [3]), (False, [])]
    # A client that requests one job at a time gets the same cursors.
    for job in second.jobs:
        alone = api.http.get(f"/v1/jobs/{job.job_id}/metrics?names=train/loss&attempts=all").json()
        assert alone["cursor"] == job.cursor
    third = ask(since=[job.cursor for job in second.jobs])
    assert new(third) == [(False, []), (False, [])]
    few = problem(
        api.http.get("/v1/series", params={**query, "since": first.jobs[0].cursor}), 422, "invalid"
    )
    assert "one cursor for each of the 2 jobs" in few["errors"][0]["message"]
    twice = {**query, "jobs": f"{claim.job_id},{claim.job_id[-8:]}", "since": cursors}
    assert (
        "some more than once"
        in problem(api.http.get("/v1/series", params=twice), 422, "invalid")["detail"]
    )


def test_points_that_are_not_finite_are_counted_also_in_few_buckets(api: Api) -> None:
    claim = scenes.run(api.database)
    upload_metrics(
        api,
        claim,
        *(
            StepValues(step, 1.0, {"a": float("nan") if step > 989 else 1.0})
            for step in range(1_500)
        ),
    )
    address = f"/v1/jobs/{claim.job_id}/metrics"
    for query, expected in (
        ("max_points=1", 510),
        ("max_points=7", 510),
        ("max_points=1&to_step=999", 10),
    ):
        (found,) = api.http.get(f"{address}?{query}").json()["series"]
        assert found["non_finite"] == expected


def test_jobs_by_any_name_are_there_once_in_the_requested_order(api: Api) -> None:
    first, second = api.job_id(), api.job_id()
    answer = api.http.get(
        "/v1/series", params={"jobs": [f"{second},{first}", "last", first[-8:]], "names": "a"}
    )
    assert [(job["job_id"], job["series"]) for job in answer.json()["jobs"]] == [
        (second, []),
        (first, []),
    ]


def test_an_answer_about_several_jobs_changes_its_tag_with_any_of_them(api: Api) -> None:
    claim = scenes.run(api.database)
    other = api.job_id()
    query = {"jobs": f"{claim.job_id},{other}", "names": "train/loss"}

    def tag() -> str:
        return str(api.http.get("/v1/series", params=query).headers["etag"])

    before = tag()
    same = api.http.get("/v1/series", params=query, headers={"If-None-Match": before})
    assert (same.status_code, same.content) == (304, b"")
    seen = {before}
    upload_metrics(api, claim, record(1))
    seen.add(tag())
    assert api.http.post(f"/v1/jobs/{other}/cancel").status_code == 202
    seen.add(tag())
    scenes.end(api.database, claim, Reason.SUCCEEDED)
    seen.add(tag())
    assert len(seen) == 4


def test_several_jobs_cost_as_many_statements_for_their_headers_as_one(api: Api) -> None:
    jobs = [api.job_id() for _ in range(6)]
    for number, job_id in enumerate(jobs):
        plant(api.database, job_id, random.Random(number), [[3]])
    counted: list[str] = []

    @event.listens_for(api.database._series, "before_cursor_execute")
    def _count(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        counted.extend([statement] if "end_value" in statement else [])

    assert (
        api.http.get("/v1/series", params={"jobs": ",".join(jobs), "names": NAMES[0]}).status_code
        == 200
    )
    assert len(counted) == 1


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("names=a", "jobs"),
        ("jobs=last", "names"),
        ("jobs=,&names=a", "expected at least one job and one name"),
        (f"jobs={','.join(map(str, range(201)))}&names=a", "expected at most 200 jobs, got 201"),
        (
            "jobs=a,b,c&names=a,b,c,d,e,f,g&max_points=10000",
            "are 210000; one response has at most 200000",
        ),
    ],
)
def test_too_much_and_too_little_is_refused(unchanged_api: Api, query: str, says: str) -> None:
    found = problem(unchanged_api.http.get(f"/v1/series?{query}"), 422, "invalid")
    assert says in found["errors"][0]["message"] + found["errors"][0]["pointer"]


def test_an_unknown_job_among_several_is_named(api: Api) -> None:
    query = {"jobs": f"{api.job_id()},nothing-like-it", "names": "a"}
    found = problem(api.http.get("/v1/series", params=query), 404, "not_found")
    assert "there is no job 'nothing-like-it'" in found["detail"]


def test_series_of_several_jobs_need_a_token_too(unchanged_api: Api) -> None:
    refused = unchanged_api.http.get("/v1/series?jobs=last&names=a", headers={"Authorization": ""})
    problem(refused, 401, "unauthenticated")


def test_the_limits_of_one_answer_allow_a_page_of_many_runs() -> None:
    assert limits.SERIES_JOBS_MAX * 100 * 6 <= limits.SERIES_POINTS_OF_JOBS_MAX
    assert limits.SERIES_POINTS_OF_JOBS_MAX >= 20 * 5 * 1_000


def test_numbers_that_json_has_no_word_for_have_names(api: Api) -> None:
    claim = scenes.run(api.database)
    upload_metrics(
        api,
        claim,
        *(StepValues(step, 1.0, {"a": value}) for step, value in enumerate((1e300, -0.0, 1e-320))),
    )
    upload_metrics(
        api, claim, *(StepValues(3, 1.0, {"a": float(value)}) for value in ("nan", "inf", "-inf"))
    )
    (found,) = api.http.get(f"/v1/jobs/{claim.job_id}/metrics").json()["series"]
    assert (
        found["value"]
        == found["min"]
        == found["max"]
        == [1e300, -0.0, 1e-320, "NaN", "Infinity", "-Infinity"]
    )
    assert set(found) == set(SeriesView.model_fields)


def test_every_point_is_downloaded_as_csv_with_its_nans(api: Api) -> None:
    job_id = api.job_id()
    stored = plant(api.database, job_id, random.Random(3), [[700, 30], [1100]])
    answer = api.http.get(f"/v1/jobs/{job_id}/metrics/download", params={"names": NAMES[0]})
    assert answer.headers["content-type"].startswith("text/csv")
    assert answer.headers["content-disposition"] == f'attachment; filename="first-{job_id}.csv"'
    head, *lines = csv.reader(answer.text.splitlines())
    assert head == ["name", "attempt", "step", "time", "value"]
    (points,) = wanted(stored, NAMES[0], None, None, "current")
    expected = [
        [
            NAMES[0],
            str(point.attempt),
            str(point.step),
            repr(point.time),
            str(jsonable(point.value)),
        ]
        for point in points
    ]
    assert lines == expected
    assert {"NaN", "Infinity"} <= {line[4] for line in lines}
    both = api.http.get(f"/v1/jobs/{job_id}/metrics/download", params={"attempts": "all"})
    assert len(both.text.splitlines()) == 1 + sum(map(len, stored.values()))


def test_a_download_of_nothing_is_a_head(api: Api) -> None:
    answer = api.http.get(f"/v1/jobs/{api.job_id()}/metrics/download")
    assert answer.content == b"name,attempt,step,time,value\r\n"
    problem(api.http.get("/v1/jobs/nothing-like-it/metrics/download"), 404, "not_found")
    problem(api.http.get("/v1/jobs/last/metrics/download?max_points=3"), 422, "invalid")


def test_an_answer_is_computed_once_for_all_readers_and_each_new_point(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = scenes.run(api.database)
    upload_metrics(api, claim, record(1))
    made = 0
    read = series_query.read_jobs

    def counted(*given: object, **named: object) -> object:
        nonlocal made
        made += 1
        return read(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(series_query, "read_jobs", counted)
    addresses = (
        f"/v1/jobs/{claim.job_id}/metrics",
        f"/v1/series?jobs={claim.job_id}&names=train/loss",
    )
    for address in addresses:
        first, second = api.http.get(address), api.http.get(address)
        assert first.content == second.content
        assert first.headers["etag"] == second.headers["etag"]
    assert made == 2
    narrower = api.http.get(f"/v1/jobs/{claim.job_id}/metrics?from_step=2").json()
    assert (made, narrower["series"]) == (3, [])
    upload_metrics(api, claim, record(2))
    for address in addresses:
        assert '"count":2' in api.http.get(address).text
    assert made == 5


def test_the_cache_is_bounded_and_keeps_recent_answers() -> None:
    kept = ResponseCache(bytes_max=100)
    for number in range(10):
        kept.keep("tag", str(number), bytes(20))
        assert kept.get("tag", "0") is not None  # requested repeatedly
    assert [number for number in range(10) if kept.get("tag", str(number))] == [0, 6, 7, 8, 9]
    kept.keep("tag", "large", bytes(26))
    assert kept.get("tag", "large") is None
    kept.keep("tag", "9", bytes(10))
    assert len(kept.get("tag", "9") or b"") == 10
    assert kept.get("other", "9") is None
