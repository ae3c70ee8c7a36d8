"""Ports of ranks on one node: none is reachable from another machine."""

from __future__ import annotations

import ipaddress
import os
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from lockstep.domain.life import attempt as files
from lockstep.domain.life.outcomes import Reason
from lockstep.domain.spec.reading import read_spec
from lockstep.domain.training.plan import plan_of
from lockstep.engine.runtime.rendezvous import store_on_loopback
from lockstep.system.processes import ProcessSnapshot
from tests.harness.attempts import Attempt
from tests.harness.processes import free_port, until

GO_ON = """
import os, pathlib, time
def wait(rank, number=0):
    pathlib.Path(f"ready{rank}-{number}").touch()
    until(f"go{number}")
def until(name):
    while not os.path.exists(name):
        time.sleep(0.01)
"""
TASK = (
    GO_ON
    + """
import torch
from torch import nn
from lockstep.engine.task.interface import Task
class Waiting(Task):
    def model(self):
        return nn.Linear(4, 1)
    def dataset(self, split):
        return [(torch.ones(4), torch.ones(1)) for _ in range(8)]
    def loss(self, model, batch):
        wait(os.environ["RANK"])
        return ((model(batch[0]) - batch[1]) ** 2).sum()
"""
)
THRICE = (
    GO_ON
    + """
import sys, torch, torch.distributed as dist
where = {"init_method": sys.argv[1], "rank": int(os.environ["RANK"]), "world_size": 2}
for number in range(3):
    dist.init_process_group("gloo", **(where if number == 1 else {}))
    one = torch.ones(1)
    dist.all_reduce(one)
    assert one.item() == 2
    rank = dist.get_rank()
    wait(rank, number)
    dist.destroy_process_group()
    if rank == 0:
        pathlib.Path(f"left{number}").touch()
    until(f"left{number}")  # torch's own order: rank 0 serves the store
"""
)


def listening(root: int) -> dict[int, list[str]]:
    """Return the listening TCP addresses of the processes below ``root``."""
    return {
        one.key.pid: sorted(_of(one.key.pid)) for one in ProcessSnapshot.take().descendants(root)
    }


def _of(pid: int) -> Iterator[str]:
    held = set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since
            held.add(str(path.readlink()))
    for version in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{version}").read_text().splitlines()[1:]:
            _, local, _, state, *_ = fields = line.split()
            if state == "0A" and f"socket:[{fields[9]}]" in held:
                yield _address(local.partition(":")[0])


def _address(words: str) -> str:
    """Return an address of ``/proc/net``: words of 32 bits in the machine's order."""
    packed = b"".join(
        struct.pack("=I", int(words[place : place + 8], 16)) for place in range(0, len(words), 8)
    )
    return str(ipaddress.ip_address(packed))


def open_to_others(attempt: Attempt, number: int = 0) -> list[str]:
    """Return the addresses beyond loopback on which a running attempt listens, once it waits."""
    ready = [attempt.folder / files.CODE / f"ready{rank}-{number}" for rank in (0, 1)]
    until(
        lambda: attempt.process_ended() or all(file.exists() for file in ready),
        what="both ranks in their first step",
    )
    assert attempt.process is not None
    by_process = listening(attempt.process.pid)
    ready[0].with_name(f"go{number}").touch()
    found = [each for addresses in by_process.values() for each in addresses]
    assert len(found) >= 2, "Gloo listens in each rank"
    return [each for each in found if not ipaddress.ip_address(each).is_loopback]


def test_a_train_job_on_one_node_listens_on_loopback(attempt: Attempt) -> None:
    train = {"task": "waiting.py:Waiting", "batch": {"size": 8, "micro_size": 4}, "steps": 2}
    job = {"name": "ports", "kind": "train", "resources": {"gpus": 2}, "train": train}
    spec = read_spec({**job, "code": {"upload": "0" * 64}})
    code = attempt.folder / files.CODE
    code.mkdir()
    (code / "waiting.py").write_text(TASK)
    attempt.assign(spec.model_dump(), ranks=2, plan=plan_of(spec), stop_grace_seconds=5.0).start()
    assert open_to_others(attempt) == []
    assert attempt.outcome().reason is Reason.SUCCEEDED, attempt.outcome()


def test_a_script_on_one_node_listens_on_loopback(attempt: Attempt) -> None:
    """Its code is unchanged, and may open its process group again, at an address of its own."""
    attempt.script(THRICE, f"tcp://localhost:{free_port()}", ranks=2).start()
    assert [open_to_others(attempt, number) for number in range(3)] == [[], [], []]
    assert attempt.outcome().reason is Reason.SUCCEEDED, attempt.outcome()


def test_a_store_for_cuda_listens_on_loopback() -> None:
    port, hour = free_port(), timedelta(hours=1)
    with ThreadPoolExecutor() as threads:  # Each waits for the other.
        made = [threads.submit(store_on_loopback, port, rank, 2, hour) for rank in (0, 1)]
        store, other = (each.result() for each in made)
    other.set("key", "value")
    assert (store.get("key"), sorted(_of(os.getpid()))) == (b"value", ["127.0.0.1"])


OLD_TORCH = """
def TCPStore(*arguments): return arguments
def _create_c10d_store(hostname, port, rank, world_size, timeout):
    return TCPStore(hostname, port, world_size, rank == 0, timeout)
"""
OLD_SCRIPT = """
from torch.distributed.rendezvous import _create_c10d_store
for host in ("127.0.0.1", "192.0.2.1"):
    print(_create_c10d_store(host, {port}, 0, 2, 9.0))
"""


def test_a_torch_that_takes_no_socket_makes_its_own_store(attempt: Attempt) -> None:
    package = attempt.folder / files.CODE / "torch" / "distributed"
    package.mkdir(parents=True)
    for name in ("torch/__init__.py", "torch/distributed/__init__.py"):
        (attempt.folder / files.CODE / name).touch()
    (package / "rendezvous.py").write_text(OLD_TORCH)
    attempt.script(OLD_SCRIPT.format(port=(port := free_port()))).start().outcome()
    hosts = ("127.0.0.1", "192.0.2.1")
    assert attempt.lines() == [str((host, port, 2, True, 9.0)) for host in hosts]
