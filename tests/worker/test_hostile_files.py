"""Hostile files at every name that the agent and the launcher read, made by running jobs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.storage.db.migrate import upgrade
from tests.harness.node import Node, node_on
from tests.harness.processes import until

NAMES = (
    "spool/metrics.jsonl",
    "spool/events.jsonl",
    "spool/system.jsonl",
    "logs/000000.jsonl",
    "logs/000001.jsonl",
    "logs/uploaded",
    "followed.json",
    "event_files.json",
    "reported.json",
    "save_time.json",
    "launcher.log",
    "memory_before.json",
    "resume",
    "ranks.json",
    "tensorboard/events.out.tfevents.1.host",
    "checkpoints/step-00000001/manifest.json",
    "stop",
    ".fence.spare",
)
HOSTILE = """
import socket
def hostile(kind, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        return
    path.unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        os.chdir(path.parent)
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    elif kind == "link":
        path.symlink_to("/proc/self/environ" if path.name != "resume" else "/etc")
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "sparse":
        with path.open("wb") as file:
            file.truncate(2**40)
"""
EVERYWHERE = (
    HOSTILE
    + """
for name in {names!r}:
    hostile({kind!r}, folder / name)
hostile({kind!r}, folder / "result.json")
time.sleep(600)
"""
)


@pytest.mark.parametrize("kind", ["fifo", "socket", "link", "loop", "folder", "sparse"])
def test_no_kind_of_file_keeps_an_attempt_from_its_end(node: Node, kind: str) -> None:
    other = node.submit("ranks(); until_told(lambda turn: metric({'loss': turn}))")
    node.wait(other, "running")
    job_id = node.submit(EVERYWHERE.format(names=NAMES, kind=kind), retry={"max": 0})
    outcome = node.wait(job_id, "failed").outcome
    node.released(job_id)
    assert outcome["reason"] == "launch_failed"
    assert "result.json" in outcome["message"]
    until(lambda: not list(node.dir.glob(f"*{node.assignment(job_id).id}*")), what="removed")
    node.cancel(other)
    node.wait(other, "cancelled")  # its lease was renewed all the time


FORGED = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
ranks()
_write("result.json", {"outcome": {"reason": "succeeded", "message": "done"}, "ended_at": 1})
while True:
    metric('{"loss": 1.0}\\n' * 10_000)
    time.sleep(0.01)
"""


def test_a_forged_result_ends_the_processes_of_its_job(node: Node) -> None:
    job_id = node.submit(FORGED)
    # The flood of the seconds before is read to its end; it is faster than the agent reads.
    ended = node.wait(job_id, "succeeded", seconds=240.0)
    assert ended.outcome["message"] == "done"
    node.released(job_id)


LONGER = """
document = json.loads((folder / "assignment.json").read_text())
document["spec"]["stop_grace_seconds"] = 300.0
ranks()
while not (folder / "go").exists():
    time.sleep(0.05)
_write("assignment.json", document)
(folder / "changed").touch()
time.sleep(600)
"""


def test_a_job_cannot_lengthen_its_grace(node: Node) -> None:
    job_id = node.submit(LONGER, stop_grace_seconds=1)
    node.wait(job_id, "running")
    (node.folder(job_id) / "go").touch()
    until((node.folder(job_id) / "changed").exists)
    node.cancel(job_id)
    node.wait(job_id, "cancelled")


NESTED = """
os.chdir(folder / "spool")
for _ in range(1500):
    os.mkdir("d")
    os.chdir("d")
os.chdir(folder / "logs")
for number in range(5000):
    os.symlink("nowhere", f"{number:06d}.jsonl")
ranks()
finish()
"""


def test_a_folder_of_any_depth_and_number_is_removed(node: Node) -> None:
    job_id = node.submit(NESTED)
    node.wait(job_id, "succeeded")
    node.released(job_id)
    until(lambda: not list(node.dir.glob(f"*{node.assignment(job_id).id}*")), what="removed")


HOSTILE_RANK = (
    "import os, signal, sys, time\nfrom pathlib import Path\n"
    + HOSTILE
    + """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
folder = Path(os.environ["LOCKSTEP_METRICS"]).parents[1]
for name in ("errors/rank0.json", "errors/elastic0.json", "heartbeats/rank0",
             "heartbeats/rank0.ask", "stacks/rank0.txt", "stacks/rank0.json", "logs/uploaded",
             "logs/000001.jsonl", "stop", "save_time.json", "spool/metrics.jsonl",
             "spool/events.jsonl", "fence"):
    hostile("fifo", folder / name)
for number in range(30000):
    print(number, "x" * 60)
print("ready", flush=True)
Path(sys.argv[1]).touch()
time.sleep(600)
"""
)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Return a node whose agent starts the real launcher."""
    folder = tmp_path_factory.mktemp("real")
    urls = (f"sqlite:///{folder}/jobs.db", f"sqlite:///{folder}/series.db")
    upgrade(*urls)
    with node_on(folder, urls, scale=0.3) as made:
        made.start(launcher=[])
        yield made


def test_a_launcher_whose_files_a_rank_replaced_still_stops_it(real: Node, tmp_path: Path) -> None:
    (tmp_path / "hostile.py").write_text(HOSTILE_RANK)
    job_id = real.submit_command(
        [sys.executable, "hostile.py", str(tmp_path / "ready")], tmp_path, retry={"max": 0}
    )
    until((tmp_path / "ready").exists)
    real.cancel(job_id)
    outcome = real.wait(job_id, "cancelled").outcome
    real.released(job_id)
    assert "killed" in outcome["message"]
    assert "ready" in [line.text for line in real.logs(job_id)]
