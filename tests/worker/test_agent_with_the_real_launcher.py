"""The agent with ``engine.launcher``: script jobs whose ranks are real processes.

These properties cannot be tested with the fake launcher.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.storage.attempts import nodes
from tests.harness.databases import copied
from tests.harness.node import Node, node_on
from tests.harness.processes import alive, until

STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(sys.argv[1], "w").write(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
print("rank", os.environ["RANK"], flush=True)
time.sleep(600)
"""
COUNT = """
import json, os, sys, time
rank = int(os.environ["RANK"])
turn = 0
while not os.path.exists(sys.argv[1]):
    print(f"{rank} {turn}", flush=True)
    if rank == 0:
        with open(os.environ["LOCKSTEP_METRICS"], "a") as file:
            file.write(json.dumps({"step": turn + 1, "loss": turn}) + "\\n")
    turn += 1
    time.sleep(0.01)
print(f"{rank} last", flush=True)
"""


@pytest.fixture(scope="module")
def node(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("node")
    with node_on(folder, copied(sqlite_template, folder), scale=1.0) as made:
        made.start(launcher=[])
        yield made


def test_the_exit_code_of_a_program_decides(node: Node, tmp_path: Path) -> None:
    well = node.submit_command(["true"], tmp_path)
    badly = node.submit_command(["sh", "-c", "exit 3"], tmp_path)
    node.wait(well, "succeeded")
    outcome = node.wait(badly, "failed").outcome
    assert (outcome["reason"], outcome["exit_code"], outcome["rank"]) == ("user_error", 3, 0)


def test_jobs_that_raise_a_full_disk_are_retried_elsewhere(node: Node, tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise OSError(28, 'No space left on device')"]
    for _ in range(2):
        job_id = node.submit_command(command, tmp_path, retry={"max": 1})
        outcome = node.wait(job_id, "queued").outcome
        assert outcome["reason"] == "storage"
        assert node.job(job_id).avoid_nodes == [node.name]
        node.released(job_id)
    with node.database.read_jobs() as session:
        assert nodes.failures(session) == []


def test_a_cancelled_job_has_no_process_after_10_s(node: Node, tmp_path: Path) -> None:
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    job_id = node.submit_command(["stubborn.py", str(tmp_path / "pid")], tmp_path, ranks=2)
    pid = int(until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), 60))
    node.wait(job_id, "running")
    node.cancel(job_id)
    until(
        lambda: node.said("a stop was requested"),
        60,
        "the next heartbeat reads it; there is no broker here",
    )
    until(lambda: not alive(pid))
    node.wait(job_id, "cancelled")
    assert {"rank 0", "rank 1"} <= {line.text for line in node.logs(job_id)}


def test_a_killed_agent_loses_and_doubles_no_line_of_any_rank(node: Node, tmp_path: Path) -> None:
    (tmp_path / "count.py").write_text(COUNT)
    job_id = node.submit_command(["count.py", str(tmp_path / "enough")], tmp_path, ranks=2)
    until(lambda: len(node.logs(job_id)) > 20)
    node.kill()
    node.start(launcher=[])
    until(lambda: node.said("adopting") > 0)
    (tmp_path / "enough").touch()
    node.wait(job_id, "succeeded")
    lines = [line for line in node.logs(job_id) if line.rank >= 0]
    for rank in (0, 1):
        texts = [line.text for line in lines if line.rank == rank]
        assert texts == [*(f"{rank} {turn}" for turn in range(len(texts) - 1)), f"{rank} last"]
    loss = node.series(job_id)["loss"]
    assert loss.step == list(range(1, len([line for line in lines if line.rank == 0])))


def test_a_silent_script_gets_one_event_despite_an_agent_restart(
    node: Node, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("import time\ndef wait():\n    time.sleep(600)\nwait()")
    script = {"command": ["train.py"], "silence_seconds": 1}
    job_id = node.submit_command(["train.py"], tmp_path, script=script)

    def told(wanted: str = "silent") -> list[str]:
        return [message for kind, message in node.events(job_id) if kind == wanted]

    until(told, 60, "the event")
    node.kill()
    node.start(launcher=[])
    node.cancel(job_id)
    node.wait(job_id, "cancelled")
    # On a busy machine a silence of one second may end and begin again, which is reported, too.
    message, *more = told()
    assert len(more) <= len(told("output_again"))
    assert "rank 0 is at train.py line 3 in wait. The log has the stacks." in message
    assert any("in wait" in line.text for line in node.logs(job_id))


MASK = """
import os, sys, time
mask = os.umask(0)
print(f"mask {mask:03o}", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
"""


def test_the_services_files_are_for_its_user_and_a_rank_has_its_own_mask(
    node: Node, tmp_path: Path
) -> None:
    (tmp_path / "mask.py").write_text(MASK)
    job_id = node.submit_command(["mask.py", str(tmp_path / "enough")], tmp_path)
    until(lambda: node.logs(job_id))
    made = {path: path.lstat().st_mode for path in node.dir.rglob("*") if not path.is_symlink()}
    (tmp_path / "enough").touch()
    node.wait(job_id, "succeeded")
    mask = os.umask(0o022)
    os.umask(mask)
    assert f"mask {mask:03o}" in [line.text for line in node.logs(job_id)]
    assert {"fence", "launcher.log", "000000.jsonl", ".lock"} <= {path.name for path in made}
    others = [path for path, mode in made.items() if mode & 0o077]
    assert [path.name for path in others] == ["rank0.txt"], "the rank makes the file of its stacks"


def test_a_continued_job_shows_one_curve_despite_a_killed_agent(node: Node, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import json, os, sys\n"
        "with open(os.environ['LOCKSTEP_METRICS'], 'a') as file:\n"
        "    for step in range(int(sys.argv[1]), int(sys.argv[2])):\n"
        "        print(json.dumps({'step': step, 'loss': step / int(sys.argv[1])}), file=file)\n"
    )
    first = node.submit_command(["train.py", "1", "6"], tmp_path)
    node.wait(first, "succeeded")
    second = node.submit_command(["train.py", "4", "9"], tmp_path, continues=first)
    node.kill()
    node.start(launcher=[])
    node.wait(second, "succeeded")
    curve = node.series(second)["loss"]
    assert curve.step == [1, 2, 3, 4, 5, 6, 7, 8]
    assert curve.value == [1, 2, 3, 1, 5 / 4, 6 / 4, 7 / 4, 2]
    assert node.series(first)["loss"].step == [1, 2, 3, 4, 5]
