"""``GET /v1/jobs/{id}/live``: what a follower has is what the single routes answer."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from lockstep.api.routes.live import EVENTS_MAX
from lockstep.domain.life.outcomes import Reason
from lockstep.domain.live_views import JobLiveView
from lockstep.domain.training.definitions import SeriesDefinition
from lockstep.domain.training.metrics import StepValues
from lockstep.storage.attempts import events
from lockstep.storage.attempts.attempts import Claim
from lockstep.storage.series import definitions, inherited, series, tails
from tests.api.conftest import Api, problem
from tests.api.test_reading import record, upload_metrics
from tests.storage import scenes

NAMES = ("train/loss", "val/loss", "heap", "eval/accuracy")
AWKWARD = (math.nan, math.inf, -math.inf, 0.0, -0.0, 1e300)
COLUMNS = ("step", "time", "value", "min", "max")
Curves = dict[tuple[str, int], dict[str, Any]]


class Follower:
    """Client that keeps what it has and adds what comes, as a page does."""

    def __init__(self, api: Api, job_id: str, attempts: str) -> None:
        self._http, self._path = api.http, f"/v1/jobs/{job_id}"
        self._attempts = attempts
        self._cursor: str | None = None
        self.curves: Curves = {}
        self.events: list[dict[str, Any]] = []
        self.named: set[str] = set()
        self.complete = 0

    def poll(self, names: list[str], **more: object) -> dict[str, Any]:
        """Ask for what is new about these series; return the answer."""
        query: dict[str, Any] = {"names": ",".join(names), "attempts": self._attempts, **more}
        query |= {} if self._cursor is None else {"since": self._cursor}
        answer = self._http.get(f"{self._path}/live", params=query)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        if found["complete"]:
            self.curves, self.events, self.named = {}, [], set()
            self.complete += 1
        for curve in found["series"]:
            self._add(curve)
        self.events += found["events"]
        self._cursor = found["cursor"]
        self.named |= set(names)
        return found

    def _add(self, curve: dict[str, Any]) -> None:
        key = curve["name"], 0 if self._attempts == "current" else curve["attempt"]
        before = self.curves.get(key)
        if before is not None:
            sums = {name: before[name] + curve[name] for name in (*COLUMNS, "count", "non_finite")}
            curve = {**curve, **sums}
        self.curves[key] = curve

    def expected(self, names: list[str]) -> Curves:
        if not names:
            return {}
        query = {"names": ",".join(names), "attempts": self._attempts, "max_points": 10_000}
        found = self._http.get(f"{self._path}/metrics", params=query).json()["series"]
        key = 0 if self._attempts == "current" else None
        return {(each["name"], each["attempt"] if key is None else key): each for each in found}

    def single(self, part: str = "", **query: object) -> Any:
        return self._http.get(f"{self._path}{part}", params=query).json()


def numbers_of(curves: Curves) -> str:
    """Return what is drawn. A definition of a series reaches a known curve with its summary."""
    fields = ("count", "non_finite", *COLUMNS)
    return json.dumps([[key, [curves[key][name] for name in fields]] for key in sorted(curves)])


class Story:
    """Random life of a job, whose attempts begin again at any earlier step."""

    def __init__(self, api: Api, chance: random.Random) -> None:
        self._api, self._chance = api, chance
        self._time, self._step = 0, 0
        earlier = scenes.run(api.database)
        if chance.random() < 0.5:
            self._report(earlier, 30)
        scenes.end(api.database, earlier, Reason.SUCCEEDED)
        scenes.release(api.database, earlier)
        self.job_id = scenes.submit(api.database)
        inherited.inherit(api.database, of=[earlier.job_id], by=self.job_id)
        self._claim: Claim | None = None

    def go_on(self) -> None:
        acts: list[Callable[[], object]] = [self._points] * 5
        acts += [self._restart, self._define, self._warn]
        self._chance.choice(acts)()

    def _points(self) -> None:
        if self._claim is None:
            self._claim = scenes.start(self._api.database, self.job_id)
        self._report(self._claim, self._chance.randrange(1, 40))

    def _report(self, claim: Claim, count: int) -> None:
        records = []
        for _ in range(count):
            self._time += 1
            self._step = max(0, self._step + self._chance.choice((0, 1, 1, 1, 2, -2)))
            named = [name for name in NAMES if self._chance.random() < 0.6] or ["train/loss"]
            odd = self._chance.random() < 0.1
            value = self._chance.choice(AWKWARD) if odd else self._chance.gauss(0, 1)
            records.append(StepValues(self._step, self._time, dict.fromkeys(named, value)))
        upload_metrics(self._api, claim, *records)

    def _restart(self) -> None:
        if self._claim is not None:
            scenes.end(self._api.database, self._claim, Reason.PREEMPTED)
            scenes.release(self._api.database, self._claim)
            scenes.skip_backoff(self._api.database, self.job_id)
            self._step = self._chance.randrange(self._step + 1)
            self._claim = None

    def _define(self) -> None:
        unit = f"unit {self._chance.randrange(9)}"
        with self._api.database.series() as session:
            definitions.store(session, self.job_id, {"heap": SeriesDefinition(unit=unit)})
            series.bump(session, self.job_id)

    def _warn(self) -> None:
        add_events(self._api, self.job_id, self._chance.randrange(2))


def add_events(api: Api, job_id: str, count: int) -> None:
    with api.database.jobs() as session:
        for number in range(count):
            told = f"warning {number}"
            events.add(
                session, job_id=job_id, attempt=1, kind="warning", message=told, actor="node:n1"
            )


@pytest.mark.parametrize("attempts", ["current", "visible", "all"])
@pytest.mark.parametrize("seed", range(2))
def test_what_a_follower_adds_up_is_what_the_single_routes_answer(
    api: Api, attempts: str, seed: int
) -> None:
    chance = random.Random(f"{attempts} {seed}")
    story = Story(api, chance)
    follower = Follower(api, story.job_id, attempts)
    for _ in range(15):
        for _ in range(chance.randrange(3)):
            story.go_on()
        names = [name for name in NAMES if chance.random() < 0.7]
        found = follower.poll(names, summaries=True)
        assert found["job"] == follower.single()
        assert found["summaries"] == follower.single("/series")["series"]
        assert follower.events == follower.single("/events", limit=500)["items"]
        mine = {key: curve for key, curve in follower.curves.items() if key[0] in names}
        assert numbers_of(mine) == numbers_of(follower.expected(names))
    follower.poll(list(NAMES))
    assert numbers_of(follower.curves) == numbers_of(follower.expected(list(NAMES)))
    if attempts == "all":
        assert follower.complete == 1


def test_a_series_that_was_left_out_for_a_while_goes_on_where_it_was(api: Api) -> None:
    claim = scenes.run(api.database)
    upload_metrics(api, claim, record(1, other=1.0), record(2, other=2.0))
    follower = Follower(api, claim.job_id, "all")
    follower.poll(["train/loss", "other"])
    upload_metrics(api, claim, record(3, other=3.0))
    follower.poll(["train/loss"], summaries=False)
    upload_metrics(api, claim, record(4, other=4.0))
    found = follower.poll(["train/loss", "other"], summaries=False)
    steps = {curve["name"]: curve["step"] for curve in found["series"]}
    assert steps == {"train/loss": [4], "other": [3, 4]}
    assert (found["complete"], found["summaries"]) == (False, None)


def test_nothing_new_is_an_unchanged_answer_without_a_body(api: Api) -> None:
    claim = scenes.run(api.database)
    upload_metrics(api, claim, record(1))
    path = f"/v1/jobs/{claim.job_id}/live?names=train/loss"
    first = JobLiveView.model_validate_json(api.http.get(path).content)
    second = api.http.get(f"{path}&since={first.cursor}")
    assert second.json()["series"] == second.json()["events"] == []
    assert second.json()["cursor"] == first.cursor
    tag = {"If-None-Match": second.headers["ETag"]}
    same = api.http.get(f"{path}&since={first.cursor}", headers=tag)
    assert (same.status_code, same.content) == (304, b"")


def test_a_follower_of_a_name_gets_everything_about_the_next_job_of_that_name(api: Api) -> None:
    first = scenes.run(api.database)
    upload_metrics(api, first, record(1))
    follower = Follower(api, "digits", "all")
    follower.poll(["train/loss"])
    scenes.end(api.database, first, Reason.SUCCEEDED)
    second = scenes.submit(api.database)
    found = follower.poll(["train/loss"])
    assert (found["job"]["id"], found["complete"], follower.curves) == (second, True, {})
    assert [each["kind"] for each in follower.events] == ["submitted"]


def test_a_follower_who_was_away_for_many_events_begins_at_the_newest(api: Api) -> None:
    claim = scenes.run(api.database)
    upload_metrics(api, claim, record(1))
    follower = Follower(api, claim.job_id, "all")
    assert follower.poll(["train/loss"])["older_events"] is None
    add_events(api, claim.job_id, EVENTS_MAX + 1)
    found = follower.poll(["train/loss"])
    assert (found["complete"], len(found["events"])) == (True, EVENTS_MAX)
    assert found["series"][0]["step"] == [1]
    cursor = int(found["older_events"])
    older = follower.single("/events", order="newest", cursor=cursor, limit=500)["items"]
    newest = follower.single("/events", order="newest", limit=500)["items"]
    assert found["events"][::-1] == newest
    assert older[0]["message"] == "warning 0"


def test_a_cursor_of_a_database_that_was_restored_gets_everything(api: Api) -> None:
    claim = scenes.run(api.database)
    upload_metrics(api, claim, record(1))
    path = f"/v1/jobs/{claim.job_id}/live?names=train/loss"
    job, event_id, points = api.http.get(path).json()["cursor"].split(".")
    later = api.http.get(f"{path}&since={job}.{int(event_id) + 5}.{points}").json()
    assert (later["complete"], len(later["events"]) > 0) == (True, True)


def test_a_cursor_never_grows_beyond_its_limit(api: Api) -> None:
    claim = scenes.run(api.database)
    upload_metrics(api, claim, record(1))
    path = f"/v1/jobs/{claim.job_id}/live"
    job, event_id, points = api.http.get(f"{path}?attempts=all").json()["cursor"].split(".")
    full = tails._encode(tails._decode(points)[0], dict.fromkeys(map(str, range(1_713)), 1))
    assert len(full) <= tails.CURSOR_LENGTH_MAX < len(full) + 19
    query = {"names": "train/loss", "attempts": "all", "since": f"{job}.{event_id}.{full}"}
    found = api.http.get(path, params=query).json()
    assert (found["complete"], found["series"][0]["step"]) == (True, [1])
    assert len(found["cursor"]) < 100


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("since=yesterday!", "is not a cursor of a followed job"),
        ("names=a,b,c&max_points=70000", "expected at most 10000"),
        (
            "max_points=10000&names=" + ",".join(map(str, range(21))),
            "are 210000; one response has at most 200000",
        ),
    ],
)
def test_too_much_is_refused(unchanged_api: Api, query: str, says: str) -> None:
    found = problem(unchanged_api.http.get(f"/v1/jobs/last/live?{query}"), 422, "invalid")
    assert says in found["detail"] + "".join(each["message"] for each in found.get("errors") or ())
