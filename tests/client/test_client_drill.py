"""``lockstep drill``: its refusals, its findings, and the text of its report.

A drill against a real service is in ``tests/faults/test_drill_command.py``.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lockstep.cli.service import drill as command
from lockstep.client.drills.report import DrillReport, document, problems
from lockstep.client.errors import ClientError, UsageError
from lockstep.client.files import weights
from lockstep.client.files.checkpoints import DigestMismatchError
from lockstep.client.local.home import Home, RunFile
from lockstep.client.local.machine import JOB, Machine, kill
from lockstep.domain.life.lifecycle import JobState
from lockstep.domain.queue_views import QueuePlace
from lockstep.domain.spec.reading import read_spec
from lockstep.domain.views import PlanView
from lockstep.system.processes import ProcessKey, ProcessStat, is_alive
from tests.client import examples
from tests.client.server import ReplayServer
from tests.client.terminal import CommandLine

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")

HELD = DrillReport(
    fault="rank",
    held=True,
    problems=[],
    killed="rank 1 of 0199 (process 4242)",
    at_step=24,
    gone_seconds=1.25,
    noticed_seconds=1.5,
    recovered_seconds=6.5,
    went_on="a new attempt completed a step",
    attempts=2,
    steps=240,
    steps_lost=0,
    steps_doubled=0,
    steps_again=4,
    pause_seconds=6.0,
    undisturbed_pause_seconds=0.2,
    processes_left=0,
    tensors=8,
    numbers=10_282,
    different=[],
    undisturbed="calm",
    disturbed="hit",
)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as held:
        yield held


def service_here(stack: ExitStack, tmp_path: Path, url: str, **pids: int) -> Machine:
    """Write the files of a running ``lockstep up``, with this process in its place."""
    home = Home(tmp_path / "home")
    home.create()
    stack.enter_context(home.locked())
    home.write_run_file(
        RunFile(
            url=url,
            pid=os.getpid(),
            pids=pids,
            started=0,
            ready=True,
            token_file=str(home.token_file),
        )
    )
    return Machine(home)


def sleeper(stack: ExitStack, **environment: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(["sleep", "600"], env={**os.environ, **environment})
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


# Refusals


def test_on_another_machine_a_drill_is_refused_with_advice(
    lockstep: CommandLine, server: ReplayServer
) -> None:
    said = lockstep("drill", "rank")
    assert said.code == 2
    assert "no service runs in" in said.err
    assert server.url in said.err
    assert "on the machine of `lockstep up`, with its LOCKSTEP_HOME" in said.err
    assert server.asked == []


def test_another_server_than_the_one_here_is_not_drilled(
    lockstep: CommandLine, server: ReplayServer, stack: ExitStack, tmp_path: Path
) -> None:
    service_here(stack, tmp_path, "http://127.0.0.1:1")
    said = lockstep("drill", "rank")
    assert said.code == 2
    assert f"{server.url} is not the service in" in said.err
    assert "omit --url" in said.err


def test_a_machine_without_two_free_devices_is_refused_with_reason(
    lockstep: CommandLine, server: ReplayServer, stack: ExitStack, tmp_path: Path
) -> None:
    service_here(stack, tmp_path, server.url)
    waits = PlanView(
        plan=None,
        sentence=None,
        spec={},
        placement=[],
        queue=QueuePlace(position=1, reason="waits for 2 free devices; node-1 has 1"),
    )
    server.on("POST", "/v1/jobs/plan", waits)
    said = lockstep("drill", "rank")
    assert said.code == 1
    assert "needs two free devices on one node" in said.err
    assert "node-1 has 1" in said.err
    assert not server.requests("POST", "/v1/jobs")


def test_no_program_is_killed_under_other_jobs_without_consent(
    lockstep: CommandLine, server: ReplayServer, stack: ExitStack, tmp_path: Path
) -> None:
    service_here(stack, tmp_path, server.url)
    server.on("GET", "/v1/jobs", examples.listed(items=[examples.job(JobState.RUNNING)]))
    server.on("POST", "/v1/jobs/plan", examples.plan_view())
    for fault in ("agent", "scheduler", "api", "broker"):
        said = lockstep("drill", fault)
        assert said.code == 1
        assert "1 job of others (tiny) runs" in said.err
        assert "--yes" in said.err
        assert not server.requests("POST", "/v1/jobs/plan")
    # With consent, it continues to the next check: the program must run on this machine.
    assert (
        "no broker of this service runs on this machine" in lockstep("drill", "broker", "--yes").err
    )
    assert not server.requests("POST", "/v1/jobs")


def test_a_number_of_steps_that_proves_nothing_is_refused(lockstep: CommandLine) -> None:
    said = lockstep("drill", "rank", "--steps", "3")
    assert (said.code, "from 24 to 10000, got 3" in said.err) == (2, True)


def test_a_run_that_fails_ends_the_drill_and_leaves_no_job_behind(
    lockstep: CommandLine, server: ReplayServer, stack: ExitStack, tmp_path: Path
) -> None:
    service_here(stack, tmp_path, server.url)
    server.on("POST", "/v1/jobs/plan", examples.plan_view())
    server.on("POST", "/v1/jobs", examples.job())
    server.on("GET", f"/v1/jobs/{examples.ID}", examples.job(JobState.RUNNING))
    server.on("POST", f"/v1/jobs/{examples.ID}/cancel", examples.job(JobState.CANCELLED))
    said = lockstep("drill", "rank", "--wait-seconds", "0.2")
    assert said.code == 124
    assert len(server.requests("POST", f"/v1/jobs/{examples.ID}/cancel")) == 1
    (sent,) = server.requests("POST", "/v1/jobs")
    assert sent.json()["name"] == "drill-rank-undisturbed"
    assert sent.json()["labels"] == {"drill": "rank", "drill-role": "undisturbed"}


def test_the_jobs_of_a_drill_are_specs_of_this_service() -> None:
    spec = read_spec(document("agent", "disturbed", 24))
    assert (spec.device_count(), spec.train.steps if spec.train else 0) == (2, 24)


# Targets


def test_a_program_is_taken_only_as_a_child_of_lockstep_up(
    stack: ExitStack, tmp_path: Path
) -> None:
    child = sleeper(stack)
    machine = service_here(
        stack, tmp_path, "http://127.0.0.1:1", api=child.pid, broker=os.getppid()
    )
    found = machine.program("api")
    assert found.key.pid == child.pid
    with pytest.raises(ClientError, match=r"broker .* has just ended"):
        machine.program("broker")
    with pytest.raises(ClientError, match="no scheduler of this service"):
        machine.program("scheduler")
    assert machine.replaced("api", found) is False
    kill(found)
    child.wait()
    assert not is_alive(found.key)
    with pytest.raises(ClientError, match="ended before it could be killed"):
        kill(found)


def test_a_process_that_has_the_pid_of_another_is_left_alone(stack: ExitStack) -> None:
    child = sleeper(stack)
    with pytest.raises(ClientError):
        kill(ProcessStat(ProcessKey(child.pid, 1), os.getpid(), 1, "S"))
    assert child.poll() is None


def test_a_rank_is_taken_only_with_the_jobs_name_in_its_environment(
    stack: ExitStack, tmp_path: Path
) -> None:
    machine = service_here(stack, tmp_path, "http://127.0.0.1:1")
    rank, signed_out = sleeper(stack, **{JOB: "mine"}), sleeper(stack)
    for number, job_id in ((1, "mine"), (2, "theirs")):
        folder = tmp_path / f"home/node/{number}"
        folder.mkdir()
        (folder / "assignment.json").write_text(json.dumps({"job_id": job_id, "attempt_number": 1}))
        ranks = [{"rank": 0, "pid": rank.pid}, {"rank": 1, "pid": signed_out.pid}]
        (folder / "ranks.json").write_text(json.dumps({"ranks": ranks}))
    assert {number: one.key.pid for number, one in machine.ranks("mine").items()} == {0: rank.pid}
    assert machine.ranks("theirs") == {}
    assert machine.ranks("nobody's") == {}
    assert [one.key.pid for one in machine.of_job("mine")] == [rank.pid]
    assert machine.launcher("mine") is None


def test_a_service_elsewhere_is_no_machine_to_drill(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no service runs in"):
        Machine(Home(tmp_path)).check("http://somewhere")


# Findings


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"noticed_seconds": None}, "was not noticed within 60 s"),
        ({"recovered_seconds": None}, "was not recovered from within 60 s"),
        ({"gone_seconds": None}, "ranks of the ended attempt were still running"),
        ({"attempts": 3}, "attempts: 3, expected 2"),
        ({"fault": "agent", "attempts": 2}, "attempts: 2, expected 1"),
        ({"fault": "api", "attempts": 1}, "repeated although no rank was killed: 4"),
        ({"steps_lost": 2}, "steps of 240 that are missing from train/loss: 2"),
        ({"steps_doubled": 1}, "in train/loss twice: 1"),
        ({"processes_left": 1}, "after the job's end: 1"),
        (
            {"different": ["head.weight"]},
            "tensors of 8 in the final weights that differ: 1 (head.weight)",
        ),
        ({"tensors": 0}, "none was found"),
    ],
)
def test_each_failed_condition_is_named(changes: dict[str, object], words: str) -> None:
    assert problems(HELD, within_seconds=60) == []
    assert any(
        words in problem for problem in problems(HELD.model_copy(update=changes), within_seconds=60)
    )


def exported(path: Path, tensors: dict[str, tuple[list[int], bytes]], job: str) -> Path:
    """Write a file like safetensors, of float32 tensors."""
    header: dict[str, object] = {"__metadata__": {"format": "pt", "job": job}}
    place = 0
    for name, (shape, content) in tensors.items():
        header[name] = {
            "dtype": "F32",
            "shape": shape,
            "data_offsets": [place, place + len(content)],
        }
        place += len(content)
    text = json.dumps(header).encode()
    path.write_bytes(
        struct.pack("<Q", len(text)) + text + b"".join(content for _, content in tensors.values())
    )
    return path


def test_models_are_equal_if_their_tensors_are(tmp_path: Path) -> None:
    content = {"a": ([2, 2], bytes(16)), "b": ([1], b"\0\0\x80?")}
    one = weights.tensors(exported(tmp_path / "one", content, "0199"))
    # In another order, and of another job: the files differ, but the weights do not.
    other = weights.tensors(exported(tmp_path / "other", dict(reversed(content.items())), "0200"))
    assert weights.differences(one, other) == []
    assert (len(one), one["a"].numbers) == (2, 4)
    for changed in (
        {**content, "b": ([1], b"\x01\0\x80?")},  # one bit
        {**content, "b": ([1, 1], b"\0\0\x80?")},
        {"a": content["a"]},
        {**content, "c": ([0], b"")},
    ):
        found = weights.tensors(exported(tmp_path / "changed", changed, "0199"))
        assert weights.differences(one, found) in (["b"], ["c"])


@pytest.mark.parametrize(
    "content", [b"", b"short", struct.pack("<Q", 2**60), struct.pack("<Q", 4) + b"nope"]
)
def test_a_file_that_is_no_exported_model_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model").write_bytes(content)
    with pytest.raises(DigestMismatchError, match="is not a safetensors file"):
        weights.tensors(tmp_path / "model")


def test_an_exported_model_that_is_cut_is_found(tmp_path: Path) -> None:
    path = exported(tmp_path / "model", {"a": ([2], bytes(8))}, "0199")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DigestMismatchError, match="a ends 1 bytes early"):
        weights.tensors(path)


# Text of the report


def test_a_drill_that_held_reads_plainly(capsys: pytest.CaptureFixture[str]) -> None:
    command._print(HELD, "table")
    assert capsys.readouterr().out.splitlines() == [
        "drill       passed: no step was lost or doubled, and the weights are equal",
        "killed      rank 1 of 0199 (process 4242) with SIGKILL, after step 24",
        "ranks gone  after 1.2 s",
        "noticed     after 1.5 s",
        "recovered   after 6.5 s: a new attempt completed a step",
        "training    2 attempts; the longest pause between two steps was 6 s (0.2 s in the "
        "undisturbed run)",
        "steps       240: 0 lost, 0 doubled; 4 repeated from the checkpoint, reported once",
        "processes   0 left over",
        "weights     8 tensors, 10,282 numbers: bitwise the undisturbed run's",
        "jobs        calm undisturbed, hit disturbed",
    ]


def test_a_failed_drill_prints_its_failures_first(capsys: pytest.CaptureFixture[str]) -> None:
    report = HELD.model_copy(
        update={"held": False, "problems": ["2 steps are missing"], "different": ["a", "b"]}
    )
    command._print(report, "wide")
    first, second, *rest = capsys.readouterr().out.splitlines()
    assert first == "drill       did not hold"
    assert second.strip() == "2 steps are missing"
    assert "weights     2 of 8 tensors differ from the undisturbed run's" in rest
    assert "a, b" in "\n".join(rest)


def test_json_is_the_report_itself(capsys: pytest.CaptureFixture[str]) -> None:
    command._print(HELD, "json")
    assert DrillReport.model_validate_json(capsys.readouterr().out) == HELD
    command._print(HELD, "name")
    assert capsys.readouterr().out == "hit\n"
