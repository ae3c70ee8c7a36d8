"""The answer for the first page: own jobs, what needs attention, and who uses what."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest
from sqlalchemy import update

from lockstep.domain.life.outcomes import Reason
from lockstep.domain.training.metrics import StepValues
from lockstep.storage.attempts import nodes
from lockstep.storage.attempts.attempts import Claim
from lockstep.storage.db.database import Database
from lockstep.storage.db.tables import JobRow
from lockstep.storage.jobs.foreign import OTHER
from lockstep.storage.series import idle, series, streams
from tests.api.conftest import TRAIN, Api
from tests.api.test_access import Team
from tests.storage import scenes


def home(api: Api, tag: str = "") -> Any:
    return api.http.get("/v1/home", headers={"If-None-Match": tag})


def sampled(database: Database, claim: Claim, used: dict[int, list[float]], since: float) -> None:
    """Store samples of the use of each rank, ten seconds apart."""
    count = max(map(len, used.values()))
    records = [
        StepValues(at, since + 10 * at, {f"system/rank{r}/cpu_percent": used[r][at] for r in used})
        for at in range(count)
    ]
    with database.series() as session:
        assert series.append(
            session,
            assignment_id=claim.assignment_id,
            token=claim.token,
            offset_before=0,
            offset_after=count,
            records=records,
            source=streams.SYSTEM_SOURCE,
        )


def test_devices_are_in_use_idle_free_or_closed(api: Api) -> None:
    claim = scenes.run(api.database)  # two of four devices of n1
    scenes.add_node(api.database, "n2", 3)
    with api.database.jobs() as session:
        nodes.set_draining(session, "n2", draining=True, reason="new fan", by="lea")
    now = time.time()
    # Rank 0 pauses for four minutes, rank 1 for more than five.
    sampled(
        api.database, claim, {0: [90.0] * 10 + [1.0] * 24, 1: [90.0] * 3 + [4.9] * 31}, now - 340
    )
    found = home(api).json()
    use = {"total": 7, "in_use": 1, "idle": 1, "free": 2, "closed": 3}
    assert (found["nodes"], found["devices"], found["others"]) == (2, use, 0)
    (project,) = found["projects"]
    assert (project["in_use"], project["idle"], project["queued"]) == (2, 1, 0)
    assert project["people"] == [{"user": "ada", "in_use": 2}]
    (notice,) = found["attention"]
    assert (notice["kind"], notice["name"], notice["reason"]) == ("node", "n2", "new fan")
    assert (notice["drained_by"], notice["seen_at"]) == ("lea", None)


@pytest.mark.parametrize("seed", range(20))
def test_idle_ranks_are_those_of_a_plain_loop(api: Api, seed: int) -> None:
    chance, claim = random.Random(seed), scenes.run(api.database)
    used = {
        rank: [90.0] * chance.randrange(600) + [chance.choice([1.0, 4.9])] * chance.randrange(60)
        for rank in range(2)
    }
    length = max(len(values) for values in used.values())
    used = {rank: [50.0] * (length - len(values)) + values for rank, values in used.items()}
    if not length:
        return
    sampled(api.database, claim, used, 1_000.0)
    expected = 0
    for values in used.values():
        low = 0
        while low < length and values[length - 1 - low] < 5:
            low += 1
        expected += low > 0 and 10 * (low - 1) >= 300
    with api.database.read_series() as session:
        found = idle.idle_ranks(session, {claim.job_id: (1, "cpu")})
        assert found[claim.job_id] == expected
        assert not idle.idle_ranks(session, {claim.job_id: (2, "cpu")})
        assert not idle.idle_ranks(session, {claim.job_id: (1, "cuda")})
        assert not idle.idle_ranks(session, {claim.job_id: (1, "of a newer agent")})


def test_own_jobs_that_wait_are_a_list_of_their_own(api: Api) -> None:
    claim = scenes.run(api.database)
    waiting = [api.job_id(TRAIN) for _ in range(9)]
    scenes.wait(api.database, waiting[3], 1)
    scenes.wait(api.database, waiting[1], 2)
    jobs = home(api).json()["jobs"]
    order = [waiting[3], waiting[1], *reversed([waiting[0], waiting[2], *waiting[4:]])]
    assert [job["id"] for job in jobs["first"]] == [claim.job_id]
    assert [job["id"] for job in jobs["waiting"]] == order[:7]
    assert (jobs["running"], jobs["queued"], jobs["failed"]) == (1, 9, 0)


def test_failed_jobs_of_the_last_day_need_attention(api: Api) -> None:
    ended = []
    for age in (10, 90_000):
        claim = scenes.run(api.database)
        scenes.end(api.database, claim, Reason.USER_ERROR, exception="RuntimeError: shape")
        scenes.release(api.database, claim)
        with api.database.jobs() as session:
            row = update(JobRow).where(JobRow.id == claim.job_id)
            session.execute(row.values(state="failed", finished_at=time.time() - age))
        ended.append(claim.job_id)
    found = home(api).json()
    assert [(each["id"], each["message"]) for each in found["attention"]] == [
        (ended[0], "RuntimeError: shape")
    ]
    assert found["jobs"]["failed"] == 1
    assert [job["id"] for job in found["jobs"]["first"]] == ended[::-1]


def test_an_unchanged_answer_has_no_body_and_a_change_has_one(api: Api) -> None:
    claim = scenes.run(api.database)
    tag = home(api).headers["ETag"]
    with api.database.jobs() as session:
        nodes.touch(session, "n1")
    assert home(api, tag).status_code == 304
    scenes.end(api.database, claim, Reason.SUCCEEDED)
    again = home(api, tag)
    assert (again.status_code, again.json()["jobs"]["running"]) == (200, 0)


def test_a_reader_sees_devices_of_other_projects_as_others(api: Api) -> None:
    team = Team(api)
    scenes.add_node(api.database)
    scenes.start(api.database, team.waiting["vision"], (0,))
    with api.database.jobs() as session:
        nodes.quarantine(session, "n1", f"it failed job {team.waiting['vision']}")
    mine = team.ask("member", "GET", "/v1/home").json()
    assert (mine["others"], mine["devices"]["in_use"]) == (1, 1)
    assert team.waiting["vision"] not in str(mine)
    assert "vision" not in str(mine)
    assert mine["attention"][0]["reason"] == f"it failed {OTHER}"
    whole = team.ask("admin", "GET", "/v1/home").json()
    assert whole["others"] == 0
    assert team.waiting["vision"] in whole["attention"][0]["reason"]
