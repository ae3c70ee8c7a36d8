"""One job over two nodes: two real agents and launchers, and the scheduler's real cycle.

The ranks are scripts. The two nodes are on one machine. The information that a rank gets about the
others, and the effect of the loss of a node, do not depend on that. The address for the other nodes
does, and has tests of its own.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lockstep.scheduler.reconcile import run_cycle
from lockstep.storage.attempts import attempts, nodes
from lockstep.storage.db.database import Database
from lockstep.storage.db.file_tables import KeptFileRow
from lockstep.storage.db.migrate import upgrade
from lockstep.storage.db.tables import AssignmentRow
from tests.harness.node import Node
from tests.harness.processes import alive, until

SCALE = 0.2
"""Heartbeat 1 s, fence 10 s, lease 12 s, grace 1 s."""
GANG = '''
"""Ranks that hold connections to rank 0, and fail as Gloo does when one of these breaks."""
import json, os, signal, socket, sys, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
done = os.path.join(sys.argv[1], "done")
peers = []
if rank == 0:
    with socket.create_server(address) as server:
        while len(peers) < world - 1:
            peers.append(server.accept()[0])
else:
    for _ in range(600):
        try:
            peers.append(socket.create_connection(address))
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
for peer in peers:
    peer.setblocking(False)
names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "GLOO_SOCKET_IFNAME"]
print(json.dumps({name: os.environ.get(name) for name in names}), flush=True)
with open(os.environ["LOCKSTEP_METRICS"], "a") as file:
    file.write(json.dumps({"step": 1, "said_by": rank}) + "\\n")
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
while not stop and not os.path.exists(done):
    time.sleep(0.02)
    for peer in peers if "hangs" not in sys.argv else ():
        try:
            if not peer.recv(1) and not stop and not os.path.exists(done):
                raise RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer")
        except BlockingIOError:
            pass
if stop and "hangs" in sys.argv:
    with open(os.environ["LOCKSTEP_METRICS"], "a") as file:
        file.write(json.dumps({"step": 2, "said_by": rank}) + "\\n")
    with open(os.path.join(os.environ["LOCKSTEP_OUTPUT"], f"last{rank}.txt"), "w") as file:
        file.write("saved")
    print(f"rank {rank} saved", flush=True)
'''


class Cluster:
    """Two nodes with two devices each, and a scheduler's cycle that the test runs repeatedly."""

    def __init__(self, folder: Path):
        urls = (f"sqlite:///{folder}/jobs.db", f"sqlite:///{folder}/series.db")
        upgrade(*urls)
        self.database = Database(*urls)
        broker = f"redis+socket://{folder}/no-broker.sock"
        self.a, self.b = (
            Node(folder, self.database, urls, broker, scale=SCALE, name=name) for name in ("a", "b")
        )
        self.nodes = (self.a, self.b)
        self.folder = folder
        self._over = threading.Event()
        self._scheduler = threading.Thread(target=self._schedule, daemon=True)

    def start(self) -> None:
        for node in self.nodes:
            if not node.runs:
                node.start(launcher=[], LOCKSTEP_CPU_SLOTS="2", LOCKSTEP_STOP_JOBS_ON_EXIT="true")
        if not self._scheduler.is_alive():
            self._scheduler.start()

    def _schedule(self) -> None:
        notifier = SimpleNamespace(publish=lambda message: None)
        while not self._over.wait(0.1):
            run_cycle(self.database, notifier, self.a.timings, owner="test")

    def close(self) -> None:
        self._over.set()
        self._scheduler.join()
        for node in self.nodes:
            node.close()
        self.database.close()

    def submit(self, name: str, words: tuple[str, ...] = (), **spec: Any) -> str:
        code = self.folder / name
        code.mkdir()
        (code / "gang.py").write_text(GANG)
        document = {
            "name": name,
            "kind": "script",
            "script": {"command": ["gang.py", str(code), *words]},
            "resources": {"gpus": 4, "nodes": 2},
            "code": {"path": str(code)},
        }
        return self.a.create({**document, **spec})

    def parts(self, job_id: str, attempt: int | None = None) -> list[AssignmentRow]:
        """Return the parts of the newest attempt, by node rank."""
        with self.database.read_jobs() as session:
            found = (
                session.query(AssignmentRow)
                .filter_by(job_id=job_id)
                .order_by(AssignmentRow.id)
                .all()
            )
            return sorted((one for one in found[-2:]), key=lambda one: one.node_rank)

    def folders(self, job_id: str) -> list[Path]:
        return [self.folder / part.node_name / part.id for part in self.parts(job_id)]

    def running(self, job_id: str, attempt: int = 1) -> dict[int, int]:
        """Return the pids of all ranks, after all have reported them."""

        def told() -> dict[int, int] | None:
            if self.a.job(job_id).attempt_count < attempt:
                return None
            files = [folder / "ranks.json" for folder in self.folders(job_id)]
            if not all(file.exists() for file in files):
                return None
            ranks = {
                one["rank"]: one["pid"]
                for file in files
                for one in json.loads(file.read_text())["ranks"]
            }
            lines = [
                line
                for line in self.a.logs(job_id)
                if line.attempt == attempt and line.text.startswith("{")
            ]
            return ranks if len(lines) == 4 else None

        try:
            return until(told, 60, "all ranks run")
        except AssertionError as error:
            logs = "\n".join(node.log.read_text()[-3000:] for node in self.nodes)
            raise AssertionError(f"{error}\n{self.a.events(job_id)}\n{logs}") from None

    def launchers(self, job_id: str) -> list[int]:
        return [
            json.loads((folder / "launcher.json").read_text())["pid"]
            for folder in self.folders(job_id)
        ]

    def released(self, job_id: str, seconds: float) -> None:
        until(
            lambda: all(part.state.value == "released" for part in self.parts(job_id)),
            seconds,
            "devices released",
        )

    def done(self, name: str) -> None:
        (self.folder / name / "done").touch()


@pytest.fixture(scope="module")
def _cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.close()


@pytest.fixture
def cluster(_cluster: Cluster) -> Cluster:
    """Return the cluster with both agents running, after any earlier test."""
    _cluster.start()
    return _cluster


def test_two_nodes_form_one_gang_and_its_metrics_are_rank_0s(cluster: Cluster) -> None:
    job_id = cluster.submit("calm")
    cluster.running(job_id)
    first, second = (
        json.loads((folder / "assignment.json").read_text()) for folder in cluster.folders(job_id)
    )
    assert [one["devices"] for one in (first, second)] == [[0, 1], [0, 1]]
    assert (first["rendezvous_host"], first["rendezvous_port"]) == (
        second["rendezvous_host"],
        second["rendezvous_port"],
    )
    told = sorted(
        (json.loads(line.text) for line in cluster.a.logs(job_id)), key=lambda one: int(one["RANK"])
    )
    names = (
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "GROUP_RANK",
        "GROUP_WORLD_SIZE",
    )
    assert [tuple(int(one[name]) for name in names) for one in told] == [
        (0, 4, 0, 2, 0, 2),
        (1, 4, 1, 2, 0, 2),
        (2, 4, 0, 2, 1, 2),
        (3, 4, 1, 2, 1, 2),
    ]
    assert {one["GLOO_SOCKET_IFNAME"] for one in told} == {"lo"}
    cluster.done("calm")
    job = cluster.a.wait(job_id, "succeeded")
    assert job.outcome["message"] == "all ranks on 2 nodes succeeded"
    assert set(cluster.a.series(job_id)["said_by"].value) <= {0.0, 1.0}
    cluster.released(job_id, 60)


def test_a_killed_rank_ends_both_parts_and_is_named_as_cause(
    cluster: Cluster,
) -> None:
    job_id = cluster.submit("killed", retry={"max": 1})
    ranks = cluster.running(job_id)
    os.kill(ranks[3], signal.SIGKILL)
    until(lambda: not any(map(alive, ranks.values())), 60, "no rank lives")
    parts = cluster.parts(job_id)
    cluster.running(job_id, attempt=2)
    outcome = cluster.a.attempts(job_id)[0].outcome
    assert (outcome["reason"], outcome["rank"], outcome["node"], outcome["signal"]) == (
        "killed",
        3,
        "b",
        "SIGKILL",
    )
    assert parts[0].node_name == "a"
    cluster.done("killed")
    job = cluster.a.wait(job_id, "succeeded", seconds=60)
    assert (job.attempt_count, job.charged_attempts) == (2, 1)
    cluster.released(job_id, 60)


@pytest.mark.parametrize("restarted", [False, True])
def test_ranks_of_the_other_node_end_as_beside_the_failed_one_and_lose_nothing(
    cluster: Cluster, restarted: bool
) -> None:
    job_id = cluster.submit(f"hanging{restarted:d}", words=("hangs",), retry={"max": 0})
    ranks = cluster.running(job_id)
    if restarted:
        cluster.a.kill()
    os.kill(ranks[3], signal.SIGKILL)
    if restarted:
        until(lambda: cluster.a.attempts(job_id)[0].cause, 60, "the cause is known")
        cluster.start()
    job = cluster.a.wait(job_id, "failed", seconds=60)
    assert (job.outcome["reason"], job.outcome["rank"]) == ("killed", 3)
    lines = [line.text for line in cluster.a.logs(job_id)]
    assert {"rank 0 saved", "rank 1 saved"} <= set(lines)
    assert "A rank of another node failed; ending the ranks of this node." in lines
    assert list(cluster.a.series(job_id)["said_by"].step) == [1, 1, 2, 2]
    with cluster.database.read_jobs() as session:
        kept = {
            row.path.split("/")[-1] for row in session.query(KeptFileRow).filter_by(job_id=job_id)
        }
    assert {"last0.txt", "last1.txt"} <= kept
    assert [part.outcome["reason"] for part in cluster.parts(job_id)] == ["network", "killed"]
    cluster.released(job_id, 60)


def test_a_cancel_stops_both_parts(cluster: Cluster) -> None:
    job_id = cluster.submit("cancelled")
    ranks = cluster.running(job_id)
    cluster.a.cancel(job_id)
    until(lambda: not any(map(alive, ranks.values())), 60, "no rank lives")
    cluster.a.wait(job_id, "cancelled", seconds=60)
    cluster.released(job_id, 60)


def test_the_end_of_one_agent_stops_the_other_part_uncharged(
    cluster: Cluster,
) -> None:
    job_id = cluster.submit("moved")
    cluster.running(job_id)
    assert cluster.b.terminate() == 0
    until(lambda: cluster.a.attempts(job_id)[0].outcome, 60, "the attempt has ended")
    assert cluster.a.attempts(job_id)[0].outcome["reason"] == "shutdown"
    # A script's ranks leave at once, and node a may have lost them before it read the cause. The
    # stop is the cause in any case.
    assert cluster.a.job(job_id).charged_attempts == 0, [
        one.outcome for one in cluster.a.attempts(job_id)
    ]
    # It may have been placed on the node again, which has not been silent for long.
    cluster.a.cancel(job_id)
    cluster.a.wait(job_id, "cancelled")
    cluster.released(job_id, 60)


def test_an_agent_that_dies_while_it_prepares_its_part_leaves_no_rank_waiting(
    cluster: Cluster,
) -> None:
    cluster.b.kill()
    job_id = cluster.submit("unprepared", retry={"max": 0})
    until(lambda: len(parts := cluster.parts(job_id)) == 2 and parts[0].claimed_at, 60, "placed")
    with cluster.database.jobs() as session:
        # The agent died directly after this commit.
        part = cluster.parts(job_id)[1].id
        assert attempts.claim(session, part, "b", lease_seconds=12, rendezvous_port=1)
    cluster.start()
    cluster.running(job_id, attempt=2)
    cluster.done("unprepared")
    job = cluster.a.wait(job_id, "succeeded", seconds=60)
    assert (job.attempt_count, job.charged_attempts) == (2, 0)
    cluster.released(job_id, 60)


def test_a_lost_node_ends_the_gang_until_it_fits_again(
    cluster: Cluster,
) -> None:
    job_id = cluster.submit("lost")
    ranks = cluster.running(job_id)
    launcher = cluster.launchers(job_id)[1]
    cluster.b.kill()
    for pid in (launcher, ranks[2], ranks[3]):
        os.kill(pid, signal.SIGKILL)
    job = cluster.a.wait(job_id, "queued", seconds=cluster.a.timings.lease_seconds + 60)
    assert (job.reason, job.outcome["node"]) == ("lost", "b")
    assert not any(map(alive, ranks.values()))
    until(
        lambda: cluster.parts(job_id)[0].state.value == "released",
        60,
        "the living node's devices are free",
    )
    until(
        lambda: (cluster.a.job(job_id).wait_reason or "").startswith("needs 2 nodes"),
        60,
        "it says what is missing",
    )
    with cluster.database.read_jobs() as session:
        (a,) = [node for node in nodes.all_nodes(session) if node.name == "a"]
        assert all(device.free for device in a.devices), "a gang that waits holds nothing"
    cluster.start()
    cluster.running(job_id, attempt=2)
    cluster.done("lost")
    cluster.a.wait(job_id, "succeeded", seconds=60)
    cluster.released(job_id, 60)
