"""Processes that train with one engine for ``engine_overhead.py``, and measure or count its steps.

Not here: the loops (``engine_loops.py``), and the comparison (``engine_overhead.py``).
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import tempfile
import time
import traceback
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from engine_loops import LOOPS, Setting

DROPPED = 5
"""First steps of a run, which are not timed."""
DEADLINE_SECONDS = 180.0


class Processes:
    """The ranks of one engine, which live between runs."""

    def __init__(self, engine: str, world_size: int, folder: Path):
        self.engine = engine
        spawn = multiprocessing.get_context("spawn")
        self.connections, self.processes = [], []
        for rank in range(world_size):
            ours, theirs = spawn.Pipe()
            for name in environment(0, 2):
                os.environ.pop(name, None)
            os.environ.update(environment(rank, world_size))  # A spawned process starts with it.
            process = spawn.Process(
                target=serve, args=(theirs, engine, rank, world_size, str(folder)), daemon=True
            )
            process.start()
            self.connections.append(ours)
            self.processes.append(process)

    def run(self, setting: Setting, *, counted: bool) -> Any:
        """Return rank 0's answer."""
        for connection in self.connections:
            connection.send((counted, setting))
        answers = []
        for rank, connection in enumerate(self.connections):
            if not connection.poll(DEADLINE_SECONDS):
                raise SystemExit(
                    f"{self.engine}: rank {rank} gave no answer within {DEADLINE_SECONDS:.0f} s"
                )
            try:
                answers.append(connection.recv())
            except EOFError:
                self.processes[rank].join(10)
                raise SystemExit(
                    f"{self.engine}: rank {rank} died: {self.processes[rank].exitcode}"
                ) from None
            if isinstance(answers[-1], str):
                raise SystemExit(f"{self.engine}, rank {rank}, {setting}:\n{answers[-1]}")
        return answers[0]

    def close(self) -> None:
        for connection, process in zip(self.connections, self.processes, strict=True):
            connection.send(None)
            process.join(10)
            if process.is_alive():
                process.kill()


def environment(rank: int, world_size: int) -> dict[str, str]:
    """Return the variables that torchrun sets for a rank, and none for a process that trains alone.

    The rendezvous is a file, so address and port are only read.
    """
    if world_size == 1:
        return {"OMP_NUM_THREADS": "1"}
    return {
        "OMP_NUM_THREADS": "1",
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": "benchmark",
    }


def serve(connection: Connection, engine: str, rank: int, world_size: int, folder: str) -> None:
    """Run one rank of one engine: it runs each received setting, until None."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    if world_size > 1:
        dist.init_process_group(
            "gloo",
            store=dist.FileStore(f"{folder}/{engine}-{world_size}", world_size),
            rank=rank,
            world_size=world_size,
        )
    here = Path(folder) / f"{engine}-{world_size}-{rank}"
    # Lines for users are discarded, the profiler's on stderr included; spools and logs are written,
    # errors are sent.
    for descriptor in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    while (message := connection.recv()) is not None:
        counted, setting = message
        with tempfile.TemporaryDirectory(prefix=here.name, dir=folder) as attempt:
            try:
                connection.send((count if counted else clock)(engine, setting, rank, Path(attempt)))
            except BaseException:  # noqa: BLE001 - the parent ends with it
                connection.send(traceback.format_exc())
    connection.close()
    os._exit(
        0
    )  # Not destroy_process_group: a wrapper of DDP may still be alive, and would wait forever.


def clock(engine: str, setting: Setting, rank: int, folder: Path) -> list[tuple[float, float]]:
    """Measure the times between updates.

    Seconds of the clock, and seconds of processor time of all threads of this rank.
    """
    from torch.optim.optimizer import register_optimizer_step_post_hook

    at: list[tuple[float, float]] = []
    hook = register_optimizer_step_post_hook(
        lambda *_: at.append((time.perf_counter(), time.process_time()))
    )
    try:
        LOOPS[engine](setting, rank, folder)
    finally:
        hook.remove()
    assert len(at) == setting.steps, f"{engine} made {len(at)} updates, not {setting.steps}"
    return [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(at)][DROPPED:]


def count(engine: str, setting: Setting, rank: int, folder: Path) -> dict[str, float]:
    """Count collectives and host reads per step.

    And the maximum of bytes in use, before the first update and up to the last one.
    """
    import torch

    # Cyclic garbage of earlier runs must not be freed during the count.
    gc.collect()
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profiler:
        LOOPS[engine](setting, rank, folder)
    trace = folder / "trace.json"
    profiler.export_chrome_trace(str(trace))
    events = [event for event in json.loads(trace.read_text())["traceEvents"] if "ts" in event]
    updates = sorted(
        event["ts"] for event in events if event["name"].startswith("Optimizer.step#")
    )[-setting.steps :]
    first, last = updates[1], updates[-1]  # DDP rebuilds its buckets after the first.

    def per_step(name: str) -> float:
        return sum(
            event["name"].startswith(name) and first <= event["ts"] < last for event in events
        ) / (setting.steps - 2)

    memory = [
        (event["ts"], event["args"]["Total Allocated"], event["args"]["Bytes"])
        for event in events
        if event["name"] == "[memory]" and event["args"].get("Device Type") == 0
    ]
    # Memory that was freed between two profiles is still in the allocator's total.
    _, total, own = min(memory)
    held = [(at, bytes_held - (total - own)) for at, bytes_held, _ in memory]
    return {
        "collectives": per_step("gloo:"),
        "host_reads": per_step("aten::_local_scalar_dense"),
        "peak_bytes": max(bytes_held for at, bytes_held in held if updates[0] <= at <= last),
        "peak_bytes_at_start": max(bytes_held for at, bytes_held in held if at <= updates[0]),
    }
