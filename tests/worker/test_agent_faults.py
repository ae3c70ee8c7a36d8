"""Faults of a node: the death of its agent, of a launcher, the end of a lease.

Each test has an agent of its own. No broker is running in this module, and the launcher is a fake
that runs each job's code.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lockstep.api.jobs.views import node_state
from lockstep.domain.life.quarantine import to_quarantine
from lockstep.domain.life.timings import Timings
from lockstep.domain.version import VERSION
from lockstep.storage.attempts import attempts, nodes
from lockstep.storage.control import snapshots
from lockstep.storage.db.clock import now
from lockstep.storage.db.tables import AssignmentRow, JobRow
from lockstep.storage.series import streams
from tests.harness.node import RARE, Node
from tests.harness.processes import alive, until

TALK = """
ranks(); event('running')
def each(turn):
    log(f'line {turn}', segment=turn // 100); metric({'step': turn + 1, 'loss': turn})
    if (folder / 'enough').exists(): (folder / 'turns').write_text(str(turn + 1)); finish()
until_told(each)
"""


def take_away(node: Node, job_id: str) -> None:
    """Act as the scheduler after the end of a lease: the attempt is lost, its stream is sealed."""
    assignment = node.assignment(job_id)
    with node.database.jobs() as session:
        session.get_one(AssignmentRow, assignment.id).lease_expires_at = 0.0
        session.flush()
        assert attempts.lose(session, assignment.id, assignment.token, timings=node.timings)
    with node.database.series() as session:
        streams.seal(session, assignment.id, job_id=job_id, attempt=node.job(job_id).attempt_count)


def orphaned(node: Node) -> tuple[str, int, Path]:
    """Return a running job whose agent is dead: its id, a child that ignores signals, its folder."""
    job_id = node.submit("ranks(); stubborn_child(); time.sleep(600)")
    child, folder = node.child(job_id), node.folder(job_id)
    node.wait(job_id, "running")
    node.kill()
    return job_id, child, folder


def test_a_dead_launcher_is_detected_at_once_and_its_processes_are_killed(
    own_node: Node,
) -> None:
    node = own_node
    job_id = node.start_with_rare_heartbeats(
        "ranks(); log('half way'); log('there', segment=1, rank=1); stubborn_child(); "
        "time.sleep(600)"
    )
    child = node.child(job_id)
    launcher = json.loads((node.folder(job_id) / "launcher.json").read_text())["pid"]
    node.wait(job_id, "running")
    os.kill(launcher, signal.SIGKILL)
    job = node.wait(job_id, "queued")
    assert job.outcome["reason"] == "killed"  # it had launched, so this is not the node's failure
    assert "signal 9" in job.outcome["message"]
    assert job.outcome["log_excerpt"].endswith("[rank 1] there")  # uploaded segments are deleted
    assert not alive(child)


@pytest.mark.parametrize("is_cut", [False, True], ids=["whole files", "a file without contents"])
def test_an_attempt_from_before_a_reboot_is_lost(mortal: Node, is_cut: bool) -> None:
    """A power cut takes what was written in the last seconds."""
    node = mortal
    job_id, _, folder = orphaned(node)
    launcher = json.loads((folder / "launcher.json").read_text())
    os.kill(launcher["pid"], signal.SIGKILL)
    (folder / "launcher.json").write_text(json.dumps({**launcher, "boot_id": "an earlier one"}))
    if is_cut:
        (folder / "assignment.json").write_bytes(b"")
    node.start()
    outcome = node.wait(job_id, "queued").outcome
    assert outcome["reason"] == "lost"
    assert outcome["message"].startswith("the node was restarted while the attempt ran")


def test_a_lost_lease_kills_at_once_and_nothing_more_is_written(mortal: Node) -> None:
    node = mortal
    job_id = node.submit(
        "ranks(); stubborn_child()\ndef each(turn): metric({'step': turn + 1, 'loss': 1}); "
        "log(str(turn))\nuntil_told(each)"
    )
    node.wait(job_id, "running")
    child, folder = node.child(job_id), node.folder(job_id)
    until(lambda: len(node.logs(job_id)) > 5)
    take_away(node, job_id)
    stored = len(node.logs(job_id))
    node.released(job_id)
    assert not alive(child)
    until(lambda: not folder.exists())
    assert len(node.logs(job_id)) == stored
    assert node.job(job_id).state.value == "queued"
    assert [row.outcome["reason"] for row in node.attempts(job_id)] == ["lost"]


def test_renewals_keep_the_ranks_alive_beyond_one_fence(
    own_node: Node,
) -> None:
    node = own_node
    node.start()
    job_id = node.submit(
        "ranks(); first = json.loads((folder / 'fence').read_text())['deadline_boottime']\n"
        "def each(turn):\n"
        "    if time.clock_gettime(time.CLOCK_BOOTTIME) > first: finish()\n"
        "until_told(each)"
    )
    assert node.wait(job_id, "succeeded").outcome["reason"] == "succeeded"


def test_after_a_killed_agent_the_next_one_uploads_every_line_once(
    mortal: Node,
) -> None:
    node = mortal
    job_id = node.submit(TALK, devices=2)
    node.wait(job_id, "running")
    folder = node.folder(job_id)
    launcher = json.loads((folder / "launcher.json").read_text())
    for _ in range(3):
        before = len(node.logs(job_id))
        until(lambda before=before: len(node.logs(job_id)) > before + 20)
        node.kill()
        node.start()
    assert json.loads((folder / "launcher.json").read_text()) == launcher
    (folder / "enough").touch()
    node.wait(job_id, "succeeded")
    lines = [line.text for line in node.logs(job_id)]
    assert len(lines) > 60
    assert lines == [f"line {turn}" for turn in range(len(lines))]
    assert node.series(job_id)["loss"].step == list(range(1, len(lines) + 1))
    assert len(node.attempts(job_id)) == 1


def test_a_restarted_agent_adopts_and_renews_at_once(own_node: Node) -> None:
    node = own_node
    node.start(scale=1.0)
    job_id = node.submit("ranks(); until_told()")
    node.wait(job_id, "running")
    node.kill()
    killed_at = _boottime()
    node.start(scale=RARE)
    until(lambda: node.said("adopting") == 1)
    fence = node.folder(job_id) / "fence"
    fence_seconds = Timings().scaled(RARE).fence_seconds
    # Before its second heartbeat, 75 s after the registration.
    until(lambda: json.loads(fence.read_text())["deadline_boottime"] > killed_at + fence_seconds)
    assert node.job(job_id).state.value == "running"


def _boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def test_a_job_that_ended_without_agent_is_finished_by_the_next(mortal: Node) -> None:
    node = mortal
    job_id = node.submit(TALK)
    node.wait(job_id, "running")
    folder = node.folder(job_id)
    node.kill()
    (folder / "enough").touch()
    until((folder / "result.json").exists)
    turns = int((folder / "turns").read_text())
    node.start()
    node.wait(job_id, "succeeded")
    assert len(node.logs(job_id)) == turns
    node.released(job_id)


def test_a_launcher_that_died_without_agent_is_detected_by_the_next(
    mortal: Node,
) -> None:
    node = mortal
    job_id, child, folder = orphaned(node)
    os.kill(json.loads((folder / "launcher.json").read_text())["pid"], signal.SIGKILL)
    assert alive(child)
    node.start()
    assert node.wait(job_id, "queued").outcome["reason"] == "killed"
    node.released(job_id)
    assert not alive(child)


@pytest.mark.parametrize(
    ("begun", "why"), [(True, "ended while it prepared"), (False, "a backup from before")]
)
def test_an_attempt_in_preparation_at_the_agents_death_is_requeued_uncharged(
    mortal: Node, begun: bool, why: str
) -> None:
    node = mortal
    node.kill()
    job_id = node.submit("ranks(); finish()", retry={"max": 0}, place=False)
    assignment_id = node.place(job_id)
    with node.database.jobs() as session:
        # The agent died directly after this commit.
        assert attempts.claim(
            session, assignment_id, node.name, lease_seconds=60, rendezvous_port=1
        )
    if begun:
        (node.dir / assignment_id).mkdir()
    node.start()
    outcome = node.wait(job_id, "queued").outcome
    assert outcome["reason"] == "shutdown"
    assert why in outcome["message"]
    node.place(job_id)
    node.wait(job_id, "succeeded")


def test_an_ended_attempt_is_released_by_the_next_agent(
    mortal: Node,
) -> None:
    node = mortal
    job_id, child, folder = orphaned(node)
    take_away(node, job_id)
    node.start()
    node.released(job_id)
    assert not alive(child)
    until(lambda: not folder.exists())


def test_an_unheld_folder_is_emptied_of_processes_and_deleted(mortal: Node) -> None:
    node = mortal
    job_id, child, folder = orphaned(node)
    take_away(node, job_id)
    assignment = node.assignment(job_id)
    with node.database.jobs() as session:
        assert attempts.release(session, assignment.id, node.name)
    node.start()
    until(lambda: not folder.exists())
    assert not alive(child)


def test_sigterm_leaves_training_running(mortal: Node) -> None:
    node = mortal
    job_id = node.submit(TALK)
    node.wait(job_id, "running")
    folder = node.folder(job_id)
    launcher = json.loads((folder / "launcher.json").read_text())["pid"]
    assert node.terminate(seconds=60) == 0
    assert alive(launcher)
    node.start()
    (folder / "enough").touch()
    node.wait(job_id, "succeeded")


def test_sigterm_stops_the_jobs_uncharged_with_that_setting(own_node: Node) -> None:
    node = own_node
    node.start(LOCKSTEP_STOP_JOBS_ON_EXIT="on")
    source = (
        "ranks(); checkpoint(7)\nwhile not asked_to_stop(): time.sleep(0.01)\ncheckpoint(9); "
        "finish('shutdown', 'saved')"
    )
    job_id = node.submit(source, retry={"max": 0})
    node.wait(job_id, "running")
    assert node.terminate(seconds=60) == 0
    job = node.job(job_id)
    assert (job.state.value, job.outcome["reason"], job.charged_attempts) == (
        "queued",
        "shutdown",
        0,
    )
    assert node.checkpoints(job_id) == [9]
    assert node.assignment(job_id).state.value == "released"


def test_a_stop_requested_without_agent_is_executed_by_the_next(mortal: Node) -> None:
    node = mortal
    job_id = node.submit("ranks(); until_told()")
    node.wait(job_id, "running")
    node.kill()
    node.cancel(job_id)
    node.start()
    node.wait(job_id, "cancelled")


def test_ranks_end_by_their_fence_when_no_agent_comes_back(own_node: Node) -> None:
    node = own_node
    node.start()
    job_id = node.submit("ranks(); until_told()")
    node.wait(job_id, "running")
    launcher = json.loads((node.folder(job_id) / "launcher.json").read_text())["pid"]
    node.kill()
    until(lambda: not alive(launcher))


def test_a_second_agent_on_one_folder_waits_for_the_first(mortal: Node) -> None:
    node = mortal
    first = node.agent
    assert first is not None
    registered = node.said("registered")
    second = node.spawn()
    try:
        until(lambda: node.said("waiting for the previous agent") == 1)
        assert node.said("registered") == registered
        first.terminate()
        until(lambda: node.said("registered") == registered + 1)
        assert first.wait(60) == 0
    finally:
        first.kill()
        first.wait()
        node.agent = second


def move_away(path: Path) -> Callable[[], object]:
    """Move a database away and return a function that moves it back atomically.

    Meanwhile its path is a link into a missing folder, which SQLite can neither open nor create.
    """
    away = path.rename(path.with_suffix(".away"))
    path.symlink_to(path.parent / "missing" / path.name)
    return lambda: away.rename(path)


def test_an_agent_registers_after_a_database_outage(own_node: Node) -> None:
    node = own_node
    node.store_timings()
    path = Path(node.urls[0].removeprefix("sqlite:///"))
    bring_back = move_away(path)
    node.agent = node.spawn()
    until(lambda: node.said("the schema version cannot be checked yet") > 0)
    bring_back()
    until(lambda: node.said("registered") == 1)


def test_a_job_is_stopped_without_the_series_database(own_node: Node) -> None:
    node = own_node
    path = Path(node.urls[1].removeprefix("sqlite:///"))
    bring_back = move_away(path)
    node.start()
    job_id = node.submit("ranks(); log('kept'); stubborn_child(); until_told()")
    child, folder = node.child(job_id), node.folder(job_id)
    launcher = json.loads((folder / "launcher.json").read_text())["pid"]
    node.cancel(job_id)
    until((folder / "result.json").exists)
    until(lambda: not alive(launcher))
    bring_back()
    node.wait(job_id, "cancelled")
    node.released(job_id)
    assert not alive(child)
    assert [line.text for line in node.logs(job_id)] == ["kept"]


def test_a_folder_that_was_damaged_while_no_agent_ran_ends_its_attempt(mortal: Node) -> None:
    node = mortal
    job_id, child, folder = orphaned(node)
    for name in ("assignment.json", "launcher.json", "stop"):
        (folder / name).write_text("damaged")
    node.start()
    assert node.wait(job_id, "queued").outcome["reason"] == "launch_failed"
    node.released(job_id)
    assert not alive(child)


def test_a_launcher_that_cannot_be_started_at_all_ends_the_attempt(own_node: Node) -> None:
    node = own_node
    node.start(launcher=["/no/such/program"])
    outcome = node.wait(node.submit("pass", retry={"max": 0}), "failed").outcome
    assert outcome["reason"] == "launch_failed"
    assert "/no/such/program" in outcome["message"]
    with node.database.read_jobs() as session:
        (failure,) = nodes.failures(session)
    assert (failure.node, failure.reason.value) == (node.name, "launch_failed")


def test_a_repository_that_does_not_answer_is_no_failure_of_the_nodes_disk(
    own_node: Node, tmp_path: Path
) -> None:
    node = own_node
    node.start()
    code = {"git": f"file://{tmp_path}/gone", "ref": "0" * 40}
    outcome = node.wait(node.submit("pass", code=code, retry={"max": 0}), "failed").outcome
    assert outcome["reason"] == "code_unavailable"
    assert "the code could not be fetched: git fetch: fatal:" in outcome["message"]
    assert "the repository" in outcome["advice"]


def test_two_jobs_that_a_full_disk_failed_count_against_the_node(own_node: Node) -> None:
    node = own_node
    node.started(lambda: node.spawn(module="tests.worker.full_disk_agent"))
    failed = []
    for _ in range(2):
        failed.append(node.submit("ranks(); finish()", retry={"max": 0}))
        outcome = node.wait(failed[-1], "failed").outcome
        assert outcome["reason"] == "storage"
        assert "the disk has " in outcome["message"]
        node.released(failed[-1])
    with node.database.read_jobs() as session:
        found = nodes.failures(session)
    assert list(to_quarantine(found, together_seconds=300.0)) == [node.name]
    assert {failure.job_id for failure in found} == set(failed)


def test_a_cancel_without_notification_is_read_in_time(own_node: Node) -> None:
    node = own_node
    job_id = node.start_with_rare_heartbeats("ranks(); until_told()")
    node.wait(job_id, "running")
    node.cancel(job_id)
    node.wait(job_id, "cancelled")  # the next heartbeat is later than this deadline


def test_a_spec_of_a_newer_version_is_returned_and_not_refused(own_node: Node) -> None:
    node = own_node
    node.start()
    job_id = node.submit("pass", place=False)
    with node.database.jobs() as session:
        # Placed by a newer scheduler, which can read the whole spec.
        assert attempts.place(session, job_id, ((node.name, (0,)),), lease_seconds=60) is not None
        job = session.get_one(JobRow, job_id)
        job.spec = {**job.spec, "retry": {**job.spec["retry"], "novel": 3}}
    row = node.wait(job_id, "queued")
    assert row.outcome["reason"] == "version"
    assert row.outcome["message"] == (
        f"node {node.name}: Lockstep {VERSION} cannot read the job's spec: unknown field "
        "retry.novel = 3; not counted as a retry"
    )
    assert "Upgrade Lockstep on the node, or torch" in row.outcome["advice"]
    assert (row.charged_attempts, row.avoid_nodes) == (0, [node.name])
    assert row.outcome["message"] in [message for _kind, message in node.events(job_id)]


def state(node: Node) -> str:
    with node.database.read_jobs() as session:
        return node_state(
            nodes.get(session, node.name),
            now=now(session),
            lease_seconds=node.timings.lease_seconds,
        )


def place_now(node: Node, job_id: str) -> bool:
    """Place as the scheduler does in a cycle.

    It reads the nodes first, and again during the write.
    """
    with node.database.jobs() as session:
        rows = snapshots.read(session, Timings(lease_seconds=600, replace_after_seconds=700))
        seen = next(each for each in rows.nodes if each.name == node.name)
        placed = attempts.place(session, job_id, ((node.name, (1,)),), lease_seconds=600)
        assert seen.ready == (placed is not None)
        return placed is not None


def test_a_stopped_agent_leaves_at_once_and_its_node_gets_no_job(own_node: Node) -> None:
    node = own_node
    node.start(scale=1.0)  # a lease of a minute
    running = node.submit("ranks(); event('running'); until_told()")
    node.wait(running, "running")
    waiting = node.submit("pass", place=False)
    assert state(node) == "ready"
    assert node.terminate() == 0
    assert state(node) == "leaving"
    assert not place_now(node, waiting)
    node.start(scale=1.0)
    assert state(node) == "ready"
    assert place_now(node, waiting)


def test_a_job_that_its_leaving_agent_requeues_is_not_placed_there(own_node: Node) -> None:
    node = own_node
    node.start(scale=1.0, LOCKSTEP_STOP_JOBS_ON_EXIT="true")
    job_id = node.submit("ranks(); event('running'); until_told()")
    node.wait(job_id, "running")
    assert node.agent is not None
    node.agent.terminate()
    node.wait(job_id, "queued")
    assert state(node) == "leaving"
    assert not place_now(node, job_id)
    assert node.agent.wait(60) == 0
    assert state(node) == "leaving"
