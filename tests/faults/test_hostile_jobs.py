"""Attacks of jobs on the files that the service reads (F35), under a real agent and launcher.

Beside each attack runs a job that does the same work in each step. An attack first makes its files
and then waits for its cancel, which it ignores. So what changes the steps of the other job, and the
agent's heartbeats, is the service itself.

Not here: a forged or hostile result, and archives (``tests/worker/test_hostile_files.py``,
``tests/api/test_archives.py``).
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from lockstep.storage.attempts import nodes
from lockstep.storage.db.migrate import upgrade
from tests.harness.drills import Drill, long
from tests.harness.node import Node, node_on
from tests.harness.processes import until
from tests.worker.test_hostile_files import HOSTILE, NAMES

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

GRACE_SECONDS = 2.0
HEARTBEAT_SECONDS_MAX = 6.0
WINDOW_SECONDS = 4.0
STEPS = """
import pathlib, sys, time
with open(sys.argv[1], "a", buffering=1) as file:
    while True:
        begin = time.monotonic()
        sum(range(400_000))
        print(begin, time.monotonic() - begin, file=file)
        time.sleep(0.02)
"""
BEGIN = (
    "import itertools, os, signal, stat, sys, time\nfrom pathlib import Path\n"
    + HOSTILE
    + """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
folder = Path(os.environ["LOCKSTEP_METRICS"]).parents[1]
names = NAMES + ("errors/rank0.json", "errors/elastic0.json", "heartbeats/rank0", "fence",
    "heartbeats/rank0.ask", "stacks/rank0.txt", "stacks/rank0.json", "stop.json", "assignment.json")
def ready():
    Path(sys.argv[1]).touch()
def everywhere(kind):
    for name in names:
        hostile(kind, folder / name)
"""
)
END = "ready()\ntime.sleep(600)\n"
ATTACKS = {
    "none": END,
    **{
        kind: f"everywhere({kind!r})\n{END}"
        for kind in ("fifo", "socket", "link", "loop", "folder", "sparse")
    },
    "device": """
for name in names:
    hostile("fifo", folder / name)
    if (folder / name).is_fifo() and os.geteuid() == 0:
        (folder / name).unlink()
        os.mknod(folder / name, stat.S_IFCHR | 0o666, os.makedev(5, 0))
"""
    + END,
    "swapped": """
ready()
for kind in itertools.cycle(("fifo", "sparse", "link", "folder", "socket")):
    for name in names:
        try:
            if (folder / name).is_dir() and not (folder / name).is_symlink():
                (folder / name).rmdir()
            hostile(kind, folder / name)
        except OSError:
            pass
    time.sleep(0.01)
""",
    "deep": """
os.chdir(folder / "spool")
for _ in range(DEEP):
    os.mkdir("d")
    os.chdir("d")
"""
    + END,
    "entries": """
for name in ("checkpoints", "logs", "tensorboard", "heartbeats", "launch"):
    (folder / name).mkdir(exist_ok=True)
    for number in range(MANY // 5):
        os.mknod(folder / name / f"{100 + number:06d}.jsonl")
"""
    + END,
    "flood": """
ready()
line = '{"kind": "KIND", "time": 1, "data": {"step": 1, "folder": "x", "bytes": 1, '
line += '"sha256": "0", "final": false, "message": "m"}}\\n'
with (folder / "spool/events.jsonl").open("a") as events:
    for kind in itertools.cycle(("warning", "checkpoint", "plan", "running", "memory")):
        events.write(line.replace("KIND", kind) * 200)
        events.flush()
        time.sleep(0.1)
""",
}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Run an agent with its default timings, and the real launcher."""
    folder = tmp_path_factory.mktemp("hostile")
    urls = (f"sqlite:///{folder}/jobs.db", f"sqlite:///{folder}/series.db")
    upgrade(*urls)
    with node_on(folder, urls, scale=1.0) as made:
        made.start(launcher=[])
        yield made


class Heartbeats(threading.Thread):
    """Longest time between two heartbeats of the node, as its row shows them."""

    def __init__(self, node: Node) -> None:
        super().__init__(daemon=True)
        self._node, self._over = node, threading.Event()
        self.longest = 0.0

    def run(self) -> None:
        before = None
        while not self._over.wait(0.1):
            with self._node.database.read_jobs() as session:
                (row,) = nodes.all_nodes(session)
            if before is not None:
                self.longest = max(self.longest, row.seen_at - before)
            before = row.seen_at

    def stop(self) -> float:
        self._over.set()
        self.join()
        return self.longest


def steps_between(file: Path, begin: float, end: float) -> list[float]:
    lines = [line.split() for line in file.read_text().splitlines()[:-1]]
    return [float(took) for at, took in lines if begin <= float(at) <= end]


def window(file: Path) -> list[float]:
    """Return the seconds of the other job's steps in one window from now on."""
    begin = time.monotonic()
    time.sleep(WINDOW_SECONDS)
    return steps_between(file, begin, begin + WINDOW_SECONDS)


@pytest.mark.parametrize(
    ("kinds", "deep", "many"),
    [
        (("none", "fifo", "swapped", "flood"), 500, 5_000),
        long(tuple(ATTACKS), 20_000, 1_000_000, seconds=900),
    ],
)
def test_a_hostile_job_harms_itself_alone(
    node: Node, drill: Drill, tmp_path: Path, kinds: tuple[str, ...], deep: int, many: int
) -> None:
    drill.begin("F35", "hostile files at every name", recovery=10.0)
    (tmp_path / "steps.py").write_text(STEPS)
    file = tmp_path / "steps"
    other = node.submit_command([sys.executable, "steps.py", str(file)], tmp_path)
    until(file.exists)
    heartbeats = Heartbeats(node)
    heartbeats.start()
    assert node.agent is not None
    agent = psutil.Process(node.agent.pid)
    medians: dict[str, float] = {}
    for kind in kinds:
        code, ready = tmp_path / kind, tmp_path / f"{kind}.ready"
        code.mkdir()
        sizes = f"NAMES, DEEP, MANY = {NAMES!r}, {deep}, {many}\n"
        (code / "attack.py").write_text(sizes + BEGIN + ATTACKS[kind])
        job_id = node.submit_command(
            [sys.executable, "attack.py", str(ready)],
            code,
            retry={"max": 0},
            stop_grace_seconds=GRACE_SECONDS,
        )
        until(ready.exists, 300, f"the files of {kind}")
        used = sum(agent.cpu_times()[:2])
        during = window(file)
        used = (sum(agent.cpu_times()[:2]) - used) / WINDOW_SECONDS
        cancelled = time.monotonic()
        node.cancel(job_id)
        node.wait(job_id, "cancelled")
        node.released(job_id)
        recovered = time.monotonic() - cancelled - GRACE_SECONDS
        folders = f"*{node.assignment(job_id).id}*"
        until(lambda folders=folders: not list(node.dir.glob(folders)), 300, "removed")
        removed = time.monotonic() - cancelled - GRACE_SECONDS
        if kind != "none":
            drill.injected += 1
            drill.recoveries.append(recovered)
        medians[kind] = statistics.median(during)
        print(
            f"{kind}: free after grace + {recovered:.2f} s, removed after {removed:.2f} s, "
            f"steps x {medians[kind] / medians['none']:.3f}, agent {100 * used:.1f} % of a core"
        )
    longest = heartbeats.stop()
    print(f"heartbeats at most {longest:.2f} s apart")
    assert longest < HEARTBEAT_SECONDS_MAX * drill.patience
    node.cancel(other)
    node.wait(other, "cancelled")
    assert node.attempts(other)[-1].number == 1
