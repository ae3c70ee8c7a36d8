"""Faults of a node and of the store: frozen past its lease, lost, a damaged checkpoint.

F4, F16 and F20. The long forms have two nodes: the service's own, and a second agent that gets the
faults. Leases are a fifth as long there. The short form of F16 removes the lease instead of waiting
for its end.

Not here: single processes of a job on an intact node (``test_ranks``).
"""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import psutil
import pytest
import torch
from sqlalchemy import select

from lockstep.domain.life import attempt
from lockstep.domain.life.outcomes import Outcome, Reason
from lockstep.domain.life.timings import Timings
from lockstep.engine.checkpoints import checkpoint
from lockstep.storage.attempts import attempts, checkpoints
from lockstep.storage.attempts.attempts import Published
from lockstep.storage.db.database import Database
from lockstep.storage.db.tables import AssignmentRow
from lockstep.storage.objects.blobs import BlobStore
from lockstep.storage.objects.unpublished import NOTE
from lockstep.storage.series import series, streams
from lockstep.worker.folders import Folder
from lockstep.worker.launch import resuming
from tests.harness.builders import put_tree
from tests.harness.databases import Urls
from tests.harness.drills import Drill, long
from tests.harness.node import Node, node_on
from tests.harness.processes import gone, signalled, stop_between_writes, until
from tests.harness.service import (
    Gang,
    Service,
    event_at,
    gang_in,
    hurry,
    points,
    same,
    service,
    stepped_at,
    train,
    undisturbed,
    wait_for_checkpoint,
    weights,
)
from tests.worker.test_agent_faults import take_away
from tests.worker.test_agent_with_the_real_launcher import COUNT

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
SEED = 20
SCALE = 0.2
STEPS = 300


@pytest.fixture(scope="module")
def lockstep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Run the service and its own node, with short leases."""
    home = tmp_path_factory.mktemp("lockstep")
    yield from service(
        home,
        LOCKSTEP_NODE_NAME="first",
        LOCKSTEP_TIMINGS_SCALE=str(SCALE),
        LOCKSTEP_FILES_SECONDS="5",
    )


class Second:
    """Another node of a running service, with two CPU slots."""

    def __init__(self, running: Service):
        self.folder = running.home / "second-node"
        self._running = running
        self.start()

    def start(self) -> None:
        self.agent = self._running.another_node("second", LOCKSTEP_CPU_SLOTS="2")

    def kill(self) -> None:
        self.agent.kill()
        self.agent.wait()

    def gang(self, job_id: str) -> Gang:
        """Return the processes that run the job here, of its newest attempt."""

        def ask() -> Path | None:
            found = sorted(path.parent for path in self.folder.glob("*/ranks.json"))
            return next(
                (
                    one
                    for one in reversed(found)
                    if job_id in (one / attempt.ASSIGNMENT).read_text()
                ),
                None,
            )

        return gang_in(until(ask, 60, "the second node's ranks"))


@pytest.fixture(scope="module")
def second(lockstep: Service) -> Iterator[Second]:
    made = Second(lockstep)
    try:
        until(lambda: _node(lockstep, "second"), 60, "the second node")
        yield made
    finally:
        made.agent.terminate()
        made.agent.wait(60)


def _node(lockstep: Service, name: str) -> dict[str, Any] | None:
    return next(
        (one for one in lockstep.http.get("/v1/nodes").json()["items"] if one["name"] == name), None
    )


def on_the_second(lockstep: Service, spec: dict[str, Any]) -> str:
    """Submit a job that runs on the second node and may resume on any; return its id."""
    until(
        lambda: (_node(lockstep, "second") or {}).get("devices_free") == 2,
        60,
        "the second node's devices",
    )
    # It has lost jobs before, for which it is quarantined.
    assert lockstep.http.post("/v1/nodes/second/resume").status_code == 200
    assert lockstep.http.post("/v1/nodes/first/drain").status_code == 200
    job_id = lockstep.submit(spec)["id"]
    _, placed = event_at(lockstep, job_id, "placed", None)
    assert "second" in placed["message"], placed
    assert lockstep.http.post("/v1/nodes/first/resume").status_code == 200
    return job_id


def refused(home: Path, job_id: str) -> bool:
    """Return True if the token of the job's first attempt can write nothing."""
    database = Database(f"sqlite:///{home}/jobs.db", f"sqlite:///{home}/series.db")
    try:
        with database.read_jobs() as session:
            first = (
                select(AssignmentRow)
                .where(AssignmentRow.job_id == job_id)
                .order_by(AssignmentRow.id)
                .limit(1)
            )
            row = session.scalars(first).one()
            assignment, token, node = row.id, row.token, row.node_name
        with database.jobs() as session:
            told = [
                bool(attempts.renew(session, node, {assignment: token}, lease_seconds=60.0)),
                attempts.mark_running(session, assignment, token),
                attempts.settle_plan(session, assignment, token, {}),
                checkpoints.publish(
                    session,
                    assignment,
                    token,
                    step=10**6,
                    location="stale",
                    bytes=1,
                    sha256="0" * 64,
                    final=True,
                ),
                attempts.end(
                    session,
                    assignment,
                    token,
                    Outcome.of(Reason.SUCCEEDED, "stale"),
                    timings=Timings(),
                ),
            ]
        with database.series() as session:
            state = streams.state(session, assignment)
            assert state is not None
            piece = {"assignment_id": assignment, "token": token}
            before = state.metrics_offset
            told.append(
                series.append(
                    session, **piece, offset_before=before, offset_after=before + 1, records=[]
                )
            )
        return not any(told)
    finally:
        database.close()


def stored_by_the_first(lockstep: Service, job_id: str) -> tuple[int, int, list[int]]:
    """Return the stored data of a job's first attempt: points, lines and checkpoints' steps."""
    found = points(lockstep, job_id, 1, "train/loss")
    kept = [
        event["data"]["step"]
        for event in lockstep.events(job_id)
        if event["kind"] == "checkpoint" and event["attempt"] == 1
    ]
    return found["count"] if found else 0, len(lockstep.log_lines(job_id, attempt=1)), kept


def ended_as_undisturbed(lockstep: Service, drill: Drill, job_id: str) -> None:
    hurry(lockstep, job_id)
    ended = lockstep.ended(job_id, 120)
    assert (ended["state"], ended["attempt"]["number"]) == ("succeeded", 2), ended
    drill.lost += STEPS - len(lockstep.series(job_id)["train/loss"])
    assert same(weights(lockstep, job_id), undisturbed(lockstep, STEPS))


@pytest.mark.parametrize("times", [1, long(3)])
def test_a_job_whose_node_is_lost_resumes_elsewhere(
    lockstep: Service, second: Second, drill: Drill, times: int
) -> None:
    drill.begin("F4", "the whole node gone", recovery=70.0 * SCALE + 5.0)
    undisturbed(lockstep, STEPS)
    for number in range(times):
        job_id = on_the_second(lockstep, train(lockstep, f"gone-{number}", STEPS))
        wait_for_checkpoint(lockstep, job_id, 1)
        gang = second.gang(job_id)
        killed = signalled([psutil.Process(second.agent.pid), *gang.members], signal.SIGKILL)
        drill.injected += 1
        second.agent.wait()
        placed, _ = event_at(lockstep, job_id, "placed", None, 60, nth=2)
        drill.recoveries.append(placed - killed)
        noticed, requeued = event_at(lockstep, job_id, "requeued", 1)
        drill.detections.append(noticed - killed)
        assert requeued["data"]["reason"] == "lost"
        before = stored_by_the_first(lockstep, job_id)
        second.start()  # It finds the leftovers of the old attempt.
        ended_as_undisturbed(lockstep, drill, job_id)
        until(
            lambda folder=gang.folder: not folder.exists(),
            60,
            "the end of the old attempt's folder",
        )
        drill.doubled += stored_by_the_first(lockstep, job_id) != before
        assert refused(lockstep.home, job_id)
        drill.orphans += len(lockstep.processes_of(job_id))


@pytest.mark.drill
def test_a_node_frozen_past_its_lease_writes_nothing_afterwards(
    lockstep: Service, second: Second, drill: Drill
) -> None:
    """The node continues while the job's next attempt runs elsewhere."""
    drill.begin("F16", "agent, launcher and ranks frozen past the lease", seed=SEED, detection=5.0)
    undisturbed(lockstep, STEPS)
    for number in range(3):
        job_id = on_the_second(lockstep, train(lockstep, f"frozen-{number}", STEPS))
        wait_for_checkpoint(lockstep, job_id, 1)
        gang = second.gang(job_id)
        processes = [psutil.Process(second.agent.pid), *gang.members]
        stopped = stop_between_writes(processes, lockstep.home)
        drill.injected += 1
        try:
            drill.recoveries.append(stepped_at(lockstep, job_id, 2) - stopped)
            before = stored_by_the_first(lockstep, job_id)
        finally:
            thawed = signalled(processes, signal.SIGCONT)
        drill.detections.append(gone(gang.members, 60, "the old attempt") - thawed)
        assert lockstep.job(job_id)["state"] == "running"
        ended_as_undisturbed(lockstep, drill, job_id)
        drill.doubled += stored_by_the_first(lockstep, job_id) != before
        assert refused(lockstep.home, job_id)
        drill.orphans += len(lockstep.processes_of(job_id))


@pytest.fixture
def node(sqlite_urls: Urls, tmp_path: Path) -> Iterator[Node]:
    """Run a node with the real launcher and without a service."""
    with node_on(tmp_path, sqlite_urls, scale=1.0) as made:
        made.start(launcher=[])
        yield made


def test_a_frozen_node_that_lost_its_lease_writes_nothing_afterwards(
    node: Node, drill: Drill, tmp_path: Path
) -> None:
    drill.begin("F16", "agent, launcher and ranks frozen past the lease", detection=5.0)
    (tmp_path / "count.py").write_text(COUNT)
    job_id = node.submit_command(["count.py", str(tmp_path / "enough")], tmp_path, ranks=2)
    until(lambda: len(node.logs(job_id)) > 20, 120, "lines")
    assert node.agent is not None
    gang = gang_in(node.folder(job_id))
    processes = [psutil.Process(node.agent.pid), *gang.members]
    stop_between_writes(processes, tmp_path)
    drill.injected += 1
    take_away(node, job_id)
    before = (len(node.logs(job_id)), node.series(job_id)["loss"].count)
    thawed = signalled(processes, signal.SIGCONT)
    drill.detections.append(gone(gang.members, 60, "the old attempt") - thawed)
    node.released(job_id)
    drill.doubled += (len(node.logs(job_id)), node.series(job_id)["loss"].count) != before
    (tmp_path / "enough").touch()
    node.place(job_id, devices=2)
    node.wait(job_id, "succeeded", seconds=120)
    assert [row.outcome["reason"] for row in node.attempts(job_id)] == ["lost", "succeeded"]


def a_file(folder: Path, chance: random.Random) -> Path:
    """Return a file of a checkpoint. The store's note beside them is read after a restore only."""
    return chance.choice(sorted(path for path in folder.iterdir() if path.name != NOTE))


def torn(folder: Path, chance: random.Random) -> None:
    file = a_file(folder, chance)
    os.truncate(file, chance.randrange(file.stat().st_size))


def flipped(folder: Path, chance: random.Random) -> None:
    file = a_file(folder, chance)
    content = bytearray(file.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    file.write_bytes(content)


def lacking(folder: Path, chance: random.Random) -> None:
    a_file(folder, chance).unlink()


Damage = Callable[[Path, random.Random], None]
WAYS: Final[tuple[Damage, ...]] = (torn, flipped, lacking)


@pytest.mark.parametrize("times", [20, long(200)])
def test_the_checkpoint_before_a_damaged_one_is_used(
    drill: Drill, tmp_path: Path, times: int
) -> None:
    chance = drill.begin("F20", "torn or bit-flipped newest checkpoint", seed=SEED)
    store = tmp_path / "store"
    blobs = BlobStore(str(store))
    published = [saved(tmp_path / "made", blobs, step) for step in (30, 20, 10)]
    newest = store / published[0].location
    whole = tmp_path / "whole"
    shutil.copytree(newest, whole)
    for number in range(times):
        chance.choice(WAYS)(newest, chance)
        drill.injected += 1
        taken = Folder(tmp_path / f"node/{number}")
        taken.create()
        resuming.bring(taken, published, blobs)
        assert checkpoint.verify(taken.file(attempt.RESUME)) == 20
        told = taken.file(attempt.EVENTS).read_text()
        assert '"checkpoint_skipped"' in told
        assert "of step 30" in told
        shutil.rmtree(newest)
        shutil.copytree(whole, newest)


def saved(made: Path, blobs: BlobStore, step: int) -> Published:
    """Save a checkpoint in the store, as its row names it."""
    location = f"jobs/1/1/{checkpoint.folder_name(step)}"
    done = checkpoint.save(made, step, {"model": {"weight": torch.full((64, 64), float(step))}})
    put_tree(blobs, done.folder, location)
    shutil.rmtree(made)
    return Published(step, location, done.sha256)


@pytest.mark.drill
def test_a_job_with_a_damaged_checkpoint_resumes_from_the_previous(
    lockstep: Service, second: Second, drill: Drill
) -> None:
    chance = drill.begin("F20", "the same, under a running job", seed=SEED)
    undisturbed(lockstep, STEPS)
    for number, way in enumerate(WAYS):
        job_id = on_the_second(lockstep, train(lockstep, f"damaged-{number}", STEPS))
        until(lambda job_id=job_id: len(_published(lockstep, job_id)) > 1, 60, "two checkpoints")
        gang = second.gang(job_id)
        signalled(gang.ranks, signal.SIGSTOP)
        until(
            lambda gang=gang: not list((gang.folder / attempt.CHECKPOINTS).glob("step-*")),
            60,
            "all published",
        )
        newest, before, *_ = _published(lockstep, job_id)
        way(Path(newest["location"].removeprefix("file://")), chance)
        killed = signalled(gang.ranks[:1], signal.SIGKILL)
        drill.injected += 1
        drill.recoveries.append(stepped_at(lockstep, job_id, 2) - killed)
        _, skipped = event_at(lockstep, job_id, "checkpoint_skipped", 2)
        assert f"of step {newest['step']} is not used" in skipped["message"]
        _, resumed = event_at(lockstep, job_id, "resumed", 2)
        assert resumed["data"]["step"] == before["step"]
        ended_as_undisturbed(lockstep, drill, job_id)


def _published(lockstep: Service, job_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = lockstep.http.get(f"/v1/jobs/{job_id}/checkpoints").json()[
        "items"
    ]
    return found
