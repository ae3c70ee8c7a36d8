"""Cost and traffic of each strategy, on one small GPT and the same batches: one table.

    python benchmarks/strategies.py [--ranks 2] [--rounds 5] [--periods 6] [--rows ddp,zero1]
    [--width 192] [--json FILE]

Each row trains the built-in ``causal_lm`` on the Python standard library's own sources: the same
seed, the same batch of ``--batch`` samples in micro-batches of ``--micro``, AdamW. ``alone`` is
accumulation on one rank; the others divide this work. The strategies with local steps synchronise
every eight of them.

Measurement. Processes live between rounds, and the rows take turns in each round, in an order that
rotates, so that other work on the machine affects all of them. Torch's own hook after each update
of the run's optimizer reads the clock and the number of bytes that this process has written
(``wchar`` of ``/proc/self/io``: on Gloo, the bytes to sockets; spools are a few hundred bytes of it
per step). The first ``WARM`` updates are dropped. The rest is a whole number of periods of eight
steps, so that the mean has its part of synchronisations; the median has none of them, and is the
step between two. ``cpu ms`` is the CPU time of a step, the median, over all ranks together.
``hsdp`` and ``tensor fsdp`` need four ranks, ``tensor`` two or more.

``ms`` and ``mean`` are the medians over the rounds of a round's median and mean step. ``sent`` is
MiB per step of the rank that sends most. ``peak`` is the maximum growth of a rank's process between
the first update and the last, in separate processes (torch's profiler does not see memory that
Gloo's threads free). It includes libraries that are loaded late, about equally in all rows.
``loss`` is that of the eval split after that run, over the same steps for all. Every rank computes
with one thread.

``data_parallel`` needs CUDA devices and one process for all of them. Without any it is reported as
not run. It is never timed together with the others here, which are on the CPU.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import multiprocessing
import os
import platform
import statistics
import tempfile
import time
import traceback
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

PERIOD: Final = 8
"""Steps between two synchronisations of the strategies with local steps."""
WARM: Final = 8
DEADLINE_SECONDS: Final = 600.0

LOCAL: Final = {"sync_every_steps": PERIOD}
POWERSGD: Final = {"compression": "powersgd", "powersgd_start_step": WARM - 4}
ROWS: Final[dict[str, dict[str, Any]]] = {
    "alone": {"name": "ddp"},
    "data_parallel": {"name": "data_parallel"},
    "manual": {"name": "manual"},
    "ddp": {"name": "ddp"},
    "ddp, copies": {"name": "ddp", "gradient_as_bucket_view": False},
    "ddp, static graph": {"name": "ddp", "static_graph": True},
    "ddp, fp16": {"name": "ddp", "compression": "fp16"},
    "ddp, bf16": {"name": "ddp", "compression": "bf16"},
    "ddp, powersgd 1": {"name": "ddp", **POWERSGD, "powersgd_rank": 1},
    "ddp, powersgd 4": {"name": "ddp", **POWERSGD, "powersgd_rank": 4},
    "zero1": {"name": "zero1"},
    "fsdp": {"name": "fsdp"},
    "hsdp": {"name": "fsdp", "shard": 2},
    "tensor": {"name": "ddp"},
    "tensor fsdp": {"name": "fsdp"},
    "local_sgd": {"name": "local_sgd", **LOCAL},
    "diloco": {"name": "diloco", **LOCAL},
}

CUT: Final = {"tensor": 2, "tensor fsdp": 2}
"""Ranks of a tensor group, of rows whose layers are cut."""
DEFAULT: Final = [row for row in ROWS if row not in ("hsdp", "tensor fsdp")]
"""Rows of two ranks."""


def settings(options: argparse.Namespace, row: str, steps: int) -> dict[str, Any]:
    """Return the spec's ``train`` section of one row."""
    return {
        "task": "causal_lm",
        "task_args": {
            "context": options.context,
            "layers": options.layers,
            "heads": 4,
            "width": options.width,
            "max_bytes": 2_000_000,
        },
        "batch": {"size": options.batch, "micro_size": options.micro},
        "steps": steps,
        "optimizer": {"name": "adamw", "lr": 1e-3, "weight_decay": 0.1, "betas": [0.9, 0.95]},
        "strategy": ROWS[row],
        "parallel": {"tensor": CUT.get(row)},
    }


# --- one rank


def serve(connection: Connection, options: argparse.Namespace, rank: int, folder: str) -> None:
    """Run one rank: it runs each received row, until None."""
    import torch
    import torch.distributed as dist

    from lockstep.engine.runtime.ranks import Ranks

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        store=dist.FileStore(f"{folder}/store", options.ranks),
        rank=rank,
        world_size=options.ranks,
    )
    group = dist.group.WORLD
    together = Ranks(
        rank=rank, world_size=options.ranks, local_rank=rank, host_group=group, device_group=group
    )
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    while (message := connection.recv()) is not None:
        row, counted, steps = message
        ranks = Ranks() if row == "alone" else together
        with tempfile.TemporaryDirectory(prefix=f"rank{rank}-", dir=folder) as attempt:
            try:
                run = count if counted else clock
                connection.send(
                    run(
                        settings(options, row, steps),
                        ranks,
                        Path(folder if counted else attempt) / row,
                    )
                )
            except BaseException:  # noqa: BLE001 - the parent ends with it
                connection.send(traceback.format_exc())
    connection.close()
    os._exit(
        0
    )  # Not destroy_process_group: a wrapper of DDP may still be alive, and would wait forever.


def trainer_of(section: dict[str, Any], ranks: Any, folder: Path) -> Any:
    from lockstep.domain.spec.batch import accumulation_steps, ceil_div
    from lockstep.domain.spec.train import Train
    from lockstep.domain.training.plan import BatchPlan
    from lockstep.engine.loop.trainer import Trainer
    from lockstep.engine.task.loading import load_task

    train = Train.model_validate(section)
    tensor = train.parallel.tensor_size
    copies = ranks.world_size // tensor
    micro = min(int(train.batch.micro_size), ceil_div(train.batch.size, copies))
    plan = BatchPlan(
        batch_size=train.batch.size,
        micro_batch_size=micro,
        accumulation_steps=accumulation_steps(train.batch.size, micro, copies),
        world_size=ranks.world_size,
        tensor=tensor,
    )
    folder.mkdir(parents=True, exist_ok=True)
    return Trainer(train, plan, load_task(train.task, train.task_args, folder), ranks, folder)


def clock(section: dict[str, Any], ranks: Any, folder: Path) -> list[tuple[float, int, float]]:
    """Measure seconds, bytes written and CPU seconds between two updates.

    Without the first ``WARM``.
    """
    from torch.optim.optimizer import register_optimizer_step_post_hook

    trainer = trainer_of(section, ranks, folder)
    at: list[tuple[float, int, float]] = []

    def note(optimizer: Any, *_: Any) -> None:
        if (
            optimizer is trainer._parts.step.optimizer.inner
        ):  # Not one that another optimizer drives.
            at.append((time.perf_counter(), written(), time.process_time()))

    hook = register_optimizer_step_post_hook(note)
    try:
        trainer.run()
    finally:
        hook.remove()
    between = [(b[0] - a[0], b[1] - a[1], b[2] - a[2]) for a, b in pairwise(at)]
    return between[WARM - 1 :][: section["steps"] - WARM]


def written() -> int:
    """Return the bytes that this process has written.

    By ``write`` and similar calls, sockets included.
    """
    for line in Path("/proc/self/io").read_text().splitlines():
        name, _, value = line.partition(": ")
        if name == "wchar":
            return int(value)
    raise SystemExit("/proc/self/io has no wchar: this benchmark needs Linux")


def count(section: dict[str, Any], ranks: Any, folder: Path) -> dict[str, float]:
    """Return the peak growth of the process and the final eval loss.

    The growth is between its first and last update.
    """
    from torch.optim.optimizer import register_optimizer_step_post_hook

    trainer = trainer_of(section | {"eval": {"every_steps": section["steps"]}}, ranks, folder)
    before, peaks = status("VmRSS"), []

    def note(optimizer: Any, *_: Any) -> None:
        if optimizer is not trainer._parts.step.optimizer.inner:
            return
        if not peaks:  # The task has been checked on copies, whose memory is freed now.
            gc.collect()
            ctypes.CDLL(None).malloc_trim(0)
            Path("/proc/self/clear_refs").write_text("5")
        peaks.append(status("VmHWM"))

    hook = register_optimizer_step_post_hook(note)
    try:
        trainer.run()
    finally:
        hook.remove()
    found = {"peak_bytes": float(max(peaks) - before)}
    if ranks.first:
        lines = map(json.loads, (folder / "spool/metrics.jsonl").read_text().splitlines())
        found["loss"] = next(
            line["values"]["eval/loss"] for line in lines if "eval/loss" in line["values"]
        )
    return found


def status(name: str) -> int:
    """Return a number of bytes from ``/proc/self/status``."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"/proc/self/status has no {name}: this benchmark needs Linux")


# --- the parent


class Processes:
    """The ranks, which live between runs."""

    def __init__(self, options: argparse.Namespace, folder: str):
        spawn = multiprocessing.get_context("spawn")
        os.environ["OMP_NUM_THREADS"] = "1"
        self.connections, self.processes = [], []
        for rank in range(options.ranks):
            ours, theirs = spawn.Pipe()
            process = spawn.Process(target=serve, args=(theirs, options, rank, folder), daemon=True)
            process.start()
            self.connections.append(ours)
            self.processes.append(process)

    def run(self, row: str, *, counted: bool, steps: int) -> list[Any]:
        """Return every rank's answer; only rank 0's if it trains alone."""
        asked = self.connections[:1] if row == "alone" else self.connections
        for connection in asked:
            connection.send((row, counted, steps))
        answers = []
        for rank, connection in enumerate(asked):
            if not connection.poll(DEADLINE_SECONDS):
                raise SystemExit(
                    f"{row}: rank {rank} gave no answer within {DEADLINE_SECONDS:.0f} s"
                )
            answers.append(connection.recv())
            if isinstance(answers[-1], str):
                raise SystemExit(f"{row}, rank {rank}:\n{answers[-1]}")
        return answers

    def close(self) -> None:
        for connection, process in zip(self.connections, self.processes, strict=True):
            connection.send(None)
            process.join(10)
            if process.is_alive():
                process.kill()


def measure(rows: list[str], options: argparse.Namespace, folder: str) -> dict[str, dict[str, Any]]:
    """Measure all rows, by name."""
    steps = WARM + options.periods * PERIOD
    processes = Processes(options, folder)
    rounds: dict[str, list[dict[str, float]]] = {row: [] for row in rows}
    for turn in range(options.rounds):
        for index in range(len(rows)):
            row = rows[(turn + index) % len(rows)]
            ranks = processes.run(row, counted=False, steps=steps)
            seconds = [each[0] for each in ranks[0]]
            rounds[row].append(
                {
                    "median": statistics.median(seconds),
                    "mean": statistics.fmean(seconds),
                    "cpu": sum(statistics.median(each[2] for each in rank) for rank in ranks),
                    "sent": max(statistics.fmean(each[1] for each in rank) for rank in ranks),
                }
            )
    processes.close()
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        fresh = Processes(
            options, tempfile.mkdtemp(dir=folder)
        )  # Memory of an earlier run would be in the peak.
        counted = fresh.run(row, counted=True, steps=steps)
        fresh.close()
        found[row] = {
            "median_seconds": statistics.median(each["median"] for each in rounds[row]),
            "mean_seconds": statistics.median(each["mean"] for each in rounds[row]),
            "cpu_seconds": statistics.median(each["cpu"] for each in rounds[row]),
            "sent_bytes_per_step": statistics.median(each["sent"] for each in rounds[row]),
            "peak_bytes": max(each["peak_bytes"] for each in counted),
            "eval_loss": counted[0]["loss"],
            "rounds": rounds[row],
        }
    return found


HEAD = (
    f"{'':18} {'ranks':>5} {'ms':>8} {'mean':>8} {'cpu ms':>8} {'sent MiB':>9} {'peak MiB':>9} "
    f"{'loss':>7}"
)


def line(row: str, ranks: int, values: dict[str, Any]) -> str:
    return (
        f"{row:18} {ranks:5} {values['median_seconds'] * 1e3:8.2f} "
        f"{values['mean_seconds'] * 1e3:8.2f} {values['cpu_seconds'] * 1e3:8.2f} "
        f"{values['sent_bytes_per_step'] / 2**20:9.3f} {values['peak_bytes'] / 2**20:9.1f} "
        f"{values['eval_loss']:7.4f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="What each strategy costs and sends.")
    parser.add_argument("--rows", type=lambda text: text.split(","), default=DEFAULT)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--periods", type=int, default=6, help=f"timed steps of a run, in periods of {PERIOD}"
    )
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--micro", type=int, default=4)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    options = parser.parse_args()
    rows = [row for row in options.rows if row != "data_parallel"]
    with tempfile.TemporaryDirectory() as folder:
        found = measure(rows, options, folder)
    print(HEAD)
    for row in options.rows:
        if row in found:
            print(line(row, 1 if row == "alone" else options.ranks, found[row]))
        else:
            print(f"{row:18} not run: it needs CUDA devices, and these rows are on the CPU")
    if options.json is not None:
        import torch

        about = {"torch": str(torch.__version__), "python": platform.python_version(), "machine": platform.machine(),
                 "cores": os.cpu_count(), **{name: value for name, value in vars(options).items() if name not in {"json", "rows"}}}  # fmt: skip
        options.json.write_text(json.dumps({"about": about, "rows": found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
