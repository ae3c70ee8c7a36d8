"""Faults of the processes of one job: ranks, launcher and agent die, hang, lag or refuse to end.

On a running service. The numbers F1, F2, … are those of ``tests.harness.drills.FAULTS``. A short
form is one round, with limits 30 times longer (``drills.CROWDED``); F21 and F22 have only a long
form.

Not here: a whole node, and leases that expire (``test_node``); a rank killed during a save
(``tests.engine.checkpoints.test_saving``).
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.harness.builders import tricky
from tests.harness.drills import Drill, long
from tests.harness.processes import alive, gone, signalled, until
from tests.harness.service import (
    STEPS_PER_FAULT,
    Gang,
    Service,
    event_at,
    gang_of,
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

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
SEED = 20
DEVICES = 4


@pytest.fixture(scope="module")
def lockstep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Run the service with its default timings."""
    yield from service(tmp_path_factory.mktemp("lockstep"))


def ended_as_undisturbed(
    lockstep: Service, drill: Drill, job_id: str, steps: int, attempts: int
) -> None:
    """Check that the job succeeds in this number of attempts, as without faults.

    Every step is there once, the weights are equal, and no process is left.
    """
    hurry(lockstep, job_id)
    ended = lockstep.ended(job_id)
    assert (ended["state"], ended["attempt"]["number"]) == ("succeeded", attempts), ended
    drill.lost += steps - len(lockstep.series(job_id)["train/loss"])
    assert same(weights(lockstep, job_id), undisturbed(lockstep, steps))
    drill.orphans += len(lockstep.processes_of(job_id))


@pytest.mark.parametrize("times", [1, long(20)])
def test_a_killed_rank_ends_its_gang_and_the_job_ends_bitwise_equal(
    lockstep: Service, drill: Drill, times: int
) -> None:
    chance = drill.begin("F1", "SIGKILL one rank mid-step", seed=SEED, detection=5.0, recovery=15.0)
    steps = STEPS_PER_FAULT * (times + 1)
    undisturbed(lockstep, steps)
    job_id = lockstep.submit(train(lockstep, "lost-rank", steps))["id"]
    for attempt in range(1, times + 1):
        gang = gang_of(lockstep, job_id, attempt)
        saved = wait_for_checkpoint(lockstep, job_id, attempt)
        time.sleep(chance.uniform(0.0, 0.2))  # the moment is varied
        rank = chance.randrange(len(gang.ranks))
        killed = signalled([gang.ranks[rank]], signal.SIGKILL)
        drill.injected += 1
        drill.detections.append(gone(gang.ranks, 5.0 * drill.patience, "the gang") - killed)
        drill.recoveries.append(stepped_at(lockstep, job_id, attempt + 1) - killed)
        _, requeued = event_at(lockstep, job_id, "requeued", attempt)
        assert f"rank {rank} was killed by SIGKILL" in requeued["message"]
        _, resumed = event_at(lockstep, job_id, "resumed", attempt + 1)
        assert resumed["data"]["step"] >= saved
    ended_as_undisturbed(lockstep, drill, job_id, steps, times + 1)


@pytest.mark.parametrize("times", [1, long(5)])
def test_a_killed_launcher_ends_its_ranks_and_the_job_is_retried(
    lockstep: Service, drill: Drill, times: int
) -> None:
    chance = drill.begin("F2", "SIGKILL the launcher of the ranks", seed=SEED, detection=2.0)
    steps = STEPS_PER_FAULT * (times + 1)
    undisturbed(lockstep, steps)
    job_id = lockstep.submit(train(lockstep, "lost-launcher", steps))["id"]
    for attempt in range(1, times + 1):
        gang = gang_of(lockstep, job_id, attempt)
        wait_for_checkpoint(lockstep, job_id, attempt)
        time.sleep(chance.uniform(0.0, 0.2))  # the moment is varied
        killed = signalled([gang.launcher], signal.SIGKILL)
        drill.injected += 1
        assert (
            gone(gang.members, 5.0 * drill.patience, "the ranks") - killed <= 5.0 * drill.patience
        )
        noticed, requeued = event_at(lockstep, job_id, "requeued", attempt)
        drill.detections.append(noticed - killed)
        drill.recoveries.append(stepped_at(lockstep, job_id, attempt + 1) - killed)
        # Its ranks had started, so this is no failure to launch, and does not count against the
        # node.
        assert requeued["data"]["reason"] == "killed", requeued
    ended_as_undisturbed(lockstep, drill, job_id, steps, times + 1)


@pytest.mark.parametrize(("times", "dead_seconds"), [(1, 3.0), long(3, 20.0)])
def test_training_continues_after_its_agent_died_and_the_next_adopts_it(
    lockstep: Service, drill: Drill, times: int, dead_seconds: float
) -> None:
    """``lockstep up`` stands still while the agent is away."""
    drill.begin("F3", f"SIGKILL the agent, away for {dead_seconds:g} s", recovery=5.0)
    step_seconds = 0.05
    steps = int(times * (dead_seconds + 5) / step_seconds)
    job_id = lockstep.submit(train(lockstep, "lost-agent", steps, pause=step_seconds / 8))["id"]
    lockstep.at_step(job_id, 3, 120)
    gang = gang_of(lockstep, job_id, 1)
    keeper = psutil.Process(json.loads((lockstep.home / "run.json").read_text())["pid"])
    for _ in range(times):
        agent = lockstep.program("worker")
        keeper.suspend()
        try:
            signalled([agent], signal.SIGKILL)
            drill.injected += 1
            time.sleep(dead_seconds)
            assert all(map(alive, gang.members))
        finally:
            keeper.resume()
        back = until(
            lambda gone=agent.pid: _another(lockstep, gone), 60, "the next agent"
        ).create_time()
        renewed = until(
            lambda since=back: _renewed_since(lockstep, job_id, since),
            60,
            "a renewal by the next agent",
        )
        drill.recoveries.append(renewed - back)
    hurry(lockstep, job_id)
    ended = lockstep.ended(job_id, 120)
    assert (ended["state"], ended["attempt"]["number"]) == ("succeeded", 1), ended
    assert lockstep.rank_pids(job_id) == {
        rank: process.pid for rank, process in enumerate(gang.ranks)
    }
    # Every change of its state is an event of its own.
    kinds = [event["kind"] for event in lockstep.events(job_id)]
    assert [
        kind
        for kind in kinds
        if kind in {"placed", "running", "requeued", "lost", "succeeded", "failed"}
    ] == [
        "placed",
        "running",
        "succeeded",
    ]
    for name in ("train/loss", "time/step_seconds"):
        found = points(lockstep, job_id, 1, name)
        assert found is not None
        drill.lost += len(set(range(1, steps + 1)) - set(found["step"]))
        drill.doubled += found["count"] - len(set(found["step"]))
    drill.orphans += len(lockstep.processes_of(job_id))


def _another(lockstep: Service, pid: int) -> psutil.Process | None:
    found = lockstep.program("worker")
    return found if found.pid != pid else None


def _renewed_since(lockstep: Service, job_id: str, since: float) -> float | None:
    at = (lockstep.folders(job_id)[-1] / "fence").stat().st_mtime
    return at if at > since else None


@pytest.mark.parametrize("ways", [["cancel"], long(["cancel", "rank", "launcher"])])
def test_a_job_that_refuses_to_end_leaves_no_process(
    lockstep: Service, drill: Drill, tmp_path: Path, ways: list[str]
) -> None:
    """After any cause of the end, the devices are not free before the last process is gone."""
    drill.begin("F23", "SIGTERM trapped, daemons double-forked", recovery=10.0)
    for way in ways:
        here = tmp_path / way
        here.mkdir()
        args = {"folder": str(here), "hang_from": 20}
        options = {"steps": 10_000, "retry": {"max": 0}, "loader": {"workers": 2}}
        job_id = lockstep.submit(
            tricky(lockstep, tmp_path / "code", "Stubborn", args=args, **options)
        )["id"]
        lockstep.at_step(job_id, 5, 120)
        gang = gang_of(lockstep, job_id, 1)
        assert len(daemons(here)) >= 2
        assert len(lockstep.processes_of(job_id)) >= 2 + 2 * 2  # with those that load
        if way == "cancel":
            assert lockstep.http.post(f"/v1/jobs/{job_id}/cancel").status_code == 202
        else:
            signalled([gang.launcher if way == "launcher" else gang.ranks[1]], signal.SIGKILL)
        began = time.time()
        drill.injected += 1
        freed = until(partial(_freed, lockstep, gang, here), 60, f"its end by {way}")
        drill.recoveries.append(freed - began)
        drill.orphans += len(lockstep.processes_of(job_id))
        assert lockstep.ended(job_id, 60)["state"] == ("cancelled" if way == "cancel" else "failed")


def daemons(folder: Path) -> list[psutil.Process]:
    """Return the processes that the job's ranks left."""
    pids = {int(path.name) for path in folder.iterdir()}
    return [process for process in psutil.process_iter() if process.pid in pids and alive(process)]


def _freed(lockstep: Service, gang: Gang, folder: Path) -> float | None:
    """Return the current time if the devices are free.

    The devices are read first: a process found alive afterwards was alive while they were free.
    """
    free = lockstep.http.get("/v1/nodes").json()["items"][0]["devices_free"] == DEVICES
    left = [*filter(alive, gang.members), *daemons(folder)]
    assert not (free and left), f"the devices were free while {left} lived"
    return time.time() if free else None


@pytest.mark.drill
def test_a_rank_five_times_slower_is_named_and_left_to_train(
    lockstep: Service, drill: Drill, tmp_path: Path
) -> None:
    drill.begin("F21", "a rank five times slower")
    # More than the minute over which ranks are compared, at some 160 ms a step.
    job_id = lockstep.submit(
        tricky(lockstep, tmp_path / "code", "Lagging", args={"pause": 0.004}, steps=500)
    )["id"]
    began = stepped_at(lockstep, job_id, 1)
    drill.injected += 1
    told, warning = event_at(lockstep, job_id, "warning", 1, 240)
    drill.detections.append(told - began)
    assert "rank 1 is slower than the others" in warning["message"]
    ended = lockstep.ended(job_id, 120)
    assert (ended["state"], ended["attempt"]["number"]) == ("succeeded", 1), ended


@pytest.mark.drill
def test_a_hung_collective_is_named_with_stacks_and_the_job_is_retried(
    lockstep: Service, drill: Drill, tmp_path: Path
) -> None:
    limit_seconds = 5.0
    drill.begin("F22", "a collective that never completes", detection=limit_seconds + 30.0)
    stall = {"min_seconds": limit_seconds, "first_step_seconds": 120.0}
    for how in ("sleeps", "receives"):
        job_id = lockstep.submit(
            tricky(
                lockstep,
                tmp_path / "code",
                "Stuck",
                args={"how": how},
                steps=40,
                stall=stall,
                checkpoint={"every_steps": 5},
            )
        )["id"]
        stepped_at(lockstep, job_id, 1)
        drill.injected += 1
        noticed, requeued = event_at(lockstep, job_id, "requeued", 1, 120)
        outcome = lockstep.job(job_id)["outcome"]
        assert outcome["rank"] == 1, outcome
        assert "in stay_away" in outcome["traceback"]
        assert all(f"rank {rank}, " in outcome["traceback"] for rank in (0, 1))
        found = points(lockstep, job_id, 1, "train/loss")
        assert found is not None
        drill.detections.append(noticed - found["time"][-1])
        drill.recoveries.append(stepped_at(lockstep, job_id, 2) - found["time"][-1])
        assert requeued["data"]["reason"] == "stall"
        ended = lockstep.ended(job_id, 120)
        assert (ended["state"], ended["attempt"]["number"]) == ("succeeded", 2), ended
