"""``rm``: jobs by name, and jobs that ended long ago."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from lockstep.domain.life.lifecycle import JobState
from lockstep.domain.views import JobView
from tests.client import examples
from tests.client.server import RESET, Answer, ReplayServer, problem
from tests.client.terminal import CommandLine, Terminal

JOB = f"/v1/jobs/{examples.ID}"


def test_rm_finds_every_job_before_it_deletes_the_first(
    lockstep: CommandLine, server: ReplayServer
) -> None:
    server.on("GET", "/v1/jobs/tiny", examples.succeeded())
    server.on(
        "DELETE", JOB, RESET, problem(404, "not_found", "there is no such job")
    )  # the first answer was lost
    said = lockstep("rm", "tiny", "--yes")
    assert (said.code, said.out) == (0, f"{examples.ID}  tiny  deleted\n")
    assert lockstep("rm", "tiny", "mistyped", "--yes").code == 3
    assert len(server.requests("DELETE", JOB)) == 2


def test_rm_prints_why_a_job_is_not_deleted(lockstep: CommandLine, server: ReplayServer) -> None:
    server.on("GET", "/v1/jobs/tiny", examples.job(JobState.RUNNING))
    server.on(
        "DELETE",
        JOB,
        problem(409, "conflict", "tiny has not ended", next_step="lockstep cancel tiny ends it."),
    )
    said = lockstep("rm", "tiny", "-y")
    assert (said.code, said.out) == (1, "")
    assert said.err.splitlines() == [
        "lockstep: tiny has not ended",
        "          lockstep cancel tiny ends it.",
    ]


@pytest.mark.parametrize(("typed", "deleted"), [("\n", 0), ("n\n", 0), ("y\n", 1)])
def test_rm_asks_for_confirmation(server: ReplayServer, typed: str, deleted: int) -> None:
    server.on("GET", "/v1/jobs/tiny", examples.succeeded())
    server.on("DELETE", JOB, Answer(204))
    terminal = Terminal("rm", "tiny", "--url", server.url)
    try:
        terminal.read_until(f"delete tiny ({examples.ID}), succeeded? [y/N]")
        terminal.type(typed)
        terminal.read_until("deleted" if deleted else "tiny stays")
    finally:
        terminal.close()
    assert len(server.requests("DELETE", JOB)) == deleted


def _ended(number: int, days_ago: float) -> JobView:
    ended = datetime.now(UTC) - timedelta(days=days_ago)
    return examples.succeeded().model_copy(
        update={"id": f"{examples.ID[:-1]}{number}", "name": f"job-{number}", "finished_at": ended}
    )


def test_rm_deletes_old_jobs_and_names_the_remaining_ones(
    lockstep: CommandLine, server: ReplayServer
) -> None:
    young, first, second = _ended(1, 29.9), _ended(2, 30.1), _ended(3, 400)
    server.on(
        "GET",
        "/v1/jobs",
        examples.listed(items=[young, first], next_cursor="c"),
        examples.listed(items=[second]),
    )
    server.on(
        "DELETE",
        f"/v1/jobs/{first.id}",
        problem(409, "conflict", "node a has not said yet that nothing is left"),
    )
    server.on("DELETE", f"/v1/jobs/{second.id}", Answer(204))
    said = lockstep("rm", "--older-than", "30d", "--project", "vision", "--yes")
    assert (said.code, said.out) == (1, f"{second.id}  job-3  deleted\n")
    assert said.err == "job-2 stays: node a has not said yet that nothing is left\n"
    asked = server.requests("GET", "/v1/jobs")
    assert [each.query.get("cursor") for each in asked] == [None, ["c"]]
    assert asked[0].query["project"] == ["vision"]
    assert sorted(asked[0].query["state"]) == ["cancelled", "failed", "succeeded"]


def test_rm_of_nothing_old_is_no_failure(lockstep: CommandLine, server: ReplayServer) -> None:
    server.on("GET", "/v1/jobs", examples.listed(items=[_ended(1, 1)]))
    said = lockstep("rm", "--older-than", "8w", "--state", "failed", "-y")
    assert (said.code, said.out, said.err) == (0, "", "no job ended more than 8w ago\n")
    assert server.asked[-1].query["state"] == ["failed"]


@pytest.mark.parametrize(("typed", "deleted"), [("\n", 0), ("y\n", 2)])
def test_rm_asks_once_for_all_that_are_old(server: ReplayServer, typed: str, deleted: int) -> None:
    old = [_ended(1, 31), _ended(2, 32)]
    server.on("GET", "/v1/jobs", examples.listed(items=old))
    for job in old:
        server.on("DELETE", f"/v1/jobs/{job.id}", Answer(204))
    terminal = Terminal("rm", "--older-than", "30d", "--url", server.url)
    try:
        terminal.read_until("delete 2 jobs that ended more than 30d ago? [y/N]")
        terminal.type(typed)
        terminal.read_until("job-2  deleted" if deleted else "nothing was deleted")
    finally:
        terminal.close()
    assert sum(asked.method == "DELETE" for asked in server.asked) == deleted


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "no job is given"),
        (["last", "--older-than", "3d"], "no job is given"),
        (["last", "--state", "failed"], "--state and --project filter --older-than"),
        (["--older-than", "3d", "--state", "running"], "a job that is running has not ended"),
        (["--older-than", "soon"], "expected a whole number of hours, days or weeks"),
    ],
)
def test_rm_refuses_ambiguous_arguments(
    lockstep: CommandLine, server: ReplayServer, words: list[str], says: str
) -> None:
    said = lockstep("rm", *words, "--yes")
    assert said.code == 2
    assert says in said.err
    assert not server.requests("DELETE", JOB)
