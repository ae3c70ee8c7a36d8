"""What a training engine costs over a hand-written loop: time per step, memory, collectives, host reads.

    python benchmarks/engine_overhead.py [--rounds 5] [--model tiny,mid] [--slots 1,8] [--world-size 1,2]
                                         [--data loader|ready] [--log-every 10] [--json FILE]

Four ways to train the same model on the same rows: ``raw`` (plain PyTorch, DDP and ``no_sync`` where there are several
ranks), ``lockstep``, ``accelerate`` and ``fabric`` (Lightning), the last two only where they are installed. Each loop
is written as its own documentation writes it, and all do what a real run does: AdamW, a schedule, clipping, and a line
with loss and rate in a file every ``--log-every`` steps. The loops of the peers report the loss of rank 0's last
micro-batch; Lockstep reports the whole batch's, which is part of what is measured.

How the time is taken. torch's own hook after every optimizer step notes the clock, in all four alike, so a step is
everything between two updates: fetching, collating, forward, backward, clipping, schedule, logging. Nothing is
synchronised or read for the measurement. The first steps of every run are dropped. Processes stay up and the engines
take turns within each round, in an order that rotates, so that other work on the machine hits all of them. On a quiet
machine the minima are what to read and the medians show the noise. ``× cpu`` compares processor time instead, over all
threads of rank 0: other work hardly moves it, and it counts what an engine does in threads of its own, which the clock
shows only where no core is free for them. Every rank computes with one thread.

Data. ``--data loader`` puts the same map-style dataset of ready rows behind each engine's recommended loader, without
worker processes. ``--data ready`` prepares micro-batches beforehand: a list, and for Lockstep, whose loader is its
own, a ``collate`` that returns a ready micro-batch.

Collectives, host reads (``aten::_local_scalar_dense``, what ``.item()`` is) and peak bytes of the CPU allocator are
counted by torch's profiler in runs of their own, never in a timed one; the count of a step is the difference between a
long run and a short one, that of a micro-batch the difference between a run with twice the micro-batches and one
without. (AdamW itself reads its eight step counters, which are on the host, in every step.)

Not here: whether the numbers that the engines train with are right (``engine.conformance``).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import multiprocessing
import os
import platform
import resource
import statistics
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

ENGINES = ("raw", "lockstep", "accelerate", "fabric")
WIDTHS = {"tiny": 64, "mid": 512}
STEPS = {("tiny", 1): 400, ("tiny", 8): 120, ("mid", 1): 120, ("mid", 8): 40}
"""Timed steps of one run: about half a second of each."""
DROPPED = 5
MICRO_SIZE, CLASSES, RATE, CLIP = 16, 10, 1e-3, 1.0
COUNTED = (4, 12)
"""Steps of the two counted runs."""
DEADLINE_SECONDS = 180.0


@dataclass(frozen=True)
class Setting:
    """One thing to train, for every engine."""

    model: str
    slots: int
    """Micro-batches per rank and optimizer step."""
    world_size: int
    data: str
    log_every: int
    steps: int = 0

    def rows(self) -> int:
        return self.steps * self.slots * MICRO_SIZE * self.world_size


# --- what is trained, by all


def build(setting: Setting) -> nn.Module:
    import torch
    from torch import nn

    torch.manual_seed(0)
    width = WIDTHS[setting.model]
    return nn.Sequential(
        *(nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(3)), nn.Linear(width, CLASSES)
    )


class Rows:
    """A map-style dataset of ready tensors, as long as the run; 512 different rows are enough."""

    def __init__(self, setting: Setting):
        import torch

        generator = torch.Generator().manual_seed(1)
        self.x = torch.randn(512, WIDTHS[setting.model], generator=generator)
        self.y = torch.randint(CLASSES, (512,), generator=generator)
        self.length = setting.rows()

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.x[index % 512], self.y[index % 512]

    def ready(self) -> list[tuple[Tensor, Tensor]]:
        """Micro-batches prepared beforehand."""
        return list(zip(self.x.split(MICRO_SIZE), self.y.split(MICRO_SIZE), strict=True))


def repeated(batches: list[Any], count: int) -> Iterator[Any]:
    for index in range(count):
        yield batches[index % len(batches)]


def factor(setting: Setting) -> Any:
    """The schedule: a cosine over the run, as a factor of the rate."""
    return lambda step: 0.5 * (1 + math.cos(math.pi * min(1.0, step / max(1, setting.steps - 1))))


class Log:
    """Rank 0's line every few steps, for the loops that write their own."""

    def __init__(self, setting: Setting, rank: int, folder: Path):
        self.every = setting.log_every
        self.file = (folder / "log.jsonl").open("w") if rank == 0 else None

    def step(self, step: int, loss: Tensor, rate: float) -> None:
        if self.file is not None and step % self.every == 0:
            self.file.write(json.dumps({"step": step, "loss": loss.item(), "lr": rate}) + "\n")
            self.file.flush()


# --- the four loops


def raw(setting: Setting, rank: int, folder: Path) -> None:
    """Plain PyTorch."""
    import torch
    from torch.nn import functional
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler

    model, several = build(setting), setting.world_size > 1
    wrapped = DistributedDataParallel(model) if several else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor(setting))
    rows, log, k = Rows(setting), Log(setting, rank, folder), setting.slots
    if setting.data == "ready":
        loader: Any = repeated(rows.ready(), setting.steps * k)
    else:
        sampler = DistributedSampler(rows) if several else None  # type: ignore[arg-type] # Rows imports no torch at the top
        loader = DataLoader(rows, MICRO_SIZE, shuffle=sampler is None, sampler=sampler)  # type: ignore[arg-type]
    for index, (x, y) in enumerate(loader):
        last = (index + 1) % k == 0
        with nullcontext() if last or not several else wrapped.no_sync():
            loss = functional.cross_entropy(wrapped(x), y)
            (loss / k).backward()
        if last:
            torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            log.step((index + 1) // k, loss, scheduler.get_last_lr()[0])


def lockstep(setting: Setting, rank: int, folder: Path) -> None:
    """The engine's own loop, with a task as a person writes it."""
    import torch
    import torch.distributed as dist
    from torch.nn import functional

    from domain.plan import BatchPlan
    from domain.spec import Train
    from engine.loop import Trainer
    from engine.ranks import Ranks
    from engine.task import Task

    class Bench(Task):
        def model(self) -> nn.Module:
            return build(setting)

        def dataset(self, split: str) -> Any:  # noqa: ARG002 - nothing is evaluated
            return Rows(setting)

        def loss(self, model: nn.Module, batch: Any) -> Tensor:
            return functional.cross_entropy(model(batch[0]), batch[1], reduction="sum")

    class Ready(Bench):
        def dataset(self, split: str) -> Any:  # noqa: ARG002 - nothing is evaluated
            rows = Rows(setting)
            self.batches = rows.ready()
            return torch.arange(len(rows))

        def collate(self, samples: list[Any]) -> Any:
            x, y = self.batches[int(samples[0]) % len(self.batches)]
            return x[: len(samples)], y[: len(samples)]

    size = MICRO_SIZE * setting.slots * setting.world_size
    train = Train.model_validate(
        {
            "task": "bench.py:Bench",
            "batch": {"size": size, "micro_size": MICRO_SIZE},
            "steps": setting.steps,
            "optimizer": {"name": "adamw", "lr": RATE, "weight_decay": 0.01},
            "schedule": {"name": "cosine"},
            "clip_grad_norm": CLIP,
            "log_every_steps": setting.log_every,
        }
    )
    plan = BatchPlan(
        batch_size=size,
        micro_batch_size=MICRO_SIZE,
        accumulation_steps=setting.slots,
        world_size=setting.world_size,
    )
    group = dist.group.WORLD if setting.world_size > 1 else None
    ranks = Ranks(rank=rank, world_size=setting.world_size, local_rank=rank, host_group=group, device_group=group)
    Trainer(train, plan, Ready() if setting.data == "ready" else Bench(), ranks, folder).run()


def accelerate(setting: Setting, rank: int, folder: Path) -> None:
    """As in accelerate's guide "Performing gradient accumulation", with clipping as in its documentation."""
    import torch
    from accelerate import Accelerator
    from torch.nn import functional
    from torch.utils.data import DataLoader

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=setting.slots)
    model = build(setting)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor(setting))
    rows, log = Rows(setting), Log(setting, rank, folder)
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    if setting.data == "ready":
        loader: Any = repeated(rows.ready(), setting.steps * setting.slots)
    else:
        loader = accelerator.prepare(DataLoader(rows, MICRO_SIZE, shuffle=True))  # type: ignore[arg-type] # see raw
    step = 0
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            if accelerator.sync_gradients:
                step += 1
                log.step(step, loss, scheduler.get_last_lr()[0])


def fabric(setting: Setting, rank: int, folder: Path) -> None:
    """As in Fabric's page "Efficient Gradient Accumulation", with the mean over the K micro-batches."""
    import torch
    from lightning.fabric import Fabric
    from torch.nn import functional
    from torch.utils.data import DataLoader

    size, k = setting.world_size, setting.slots
    runner = Fabric(accelerator="cpu", devices=size, strategy="ddp" if size > 1 else "auto")
    runner.launch()
    model = build(setting)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor(setting))
    wrapped, stepper = runner.setup(model, optimizer)
    rows, log = Rows(setting), Log(setting, rank, folder)
    if setting.data == "ready":
        loader: Any = repeated(rows.ready(), setting.steps * k)
    else:
        loader = runner.setup_dataloaders(DataLoader(rows, MICRO_SIZE, shuffle=True))  # type: ignore[arg-type] # see raw
    for index, (x, y) in enumerate(loader):
        accumulating = (index + 1) % k != 0
        with runner.no_backward_sync(wrapped, enabled=accumulating):
            loss = functional.cross_entropy(wrapped(x), y)
            runner.backward(loss / k)
        if not accumulating:
            runner.clip_gradients(wrapped, stepper, max_norm=CLIP)
            stepper.step()
            scheduler.step()
            stepper.zero_grad()
            log.step((index + 1) // k, loss, scheduler.get_last_lr()[0])


LOOPS = {"raw": raw, "lockstep": lockstep, "accelerate": accelerate, "fabric": fabric}


# --- one rank


def serve(connection: Connection, engine: str, rank: int, world_size: int, folder: str) -> None:
    """One rank of one engine: runs what it is sent, until it is sent None."""
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
    # Lines for a person go nowhere, the profiler's on stderr included; spools and logs are written, errors are sent.
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
    os._exit(0)  # Not destroy_process_group: a wrapper of DDP may still be alive, and would wait for ever.


def clock(engine: str, setting: Setting, rank: int, folder: Path) -> list[tuple[float, float]]:
    """Between updates: seconds of the clock, and seconds of processor time of all threads of this rank."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    at: list[tuple[float, float]] = []
    hook = register_optimizer_step_post_hook(lambda *_: at.append((time.perf_counter(), time.process_time())))
    try:
        LOOPS[engine](setting, rank, folder)
    finally:
        hook.remove()
    assert len(at) == setting.steps, f"{engine} made {len(at)} updates, not {setting.steps}"
    return [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(at)][DROPPED:]


def count(engine: str, setting: Setting, rank: int, folder: Path) -> dict[str, int]:
    """Collectives, host reads and peak bytes of one run, by torch's profiler."""
    import torch

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        LOOPS[engine](setting, rank, folder)
    trace = folder / "trace.json"
    profiler.export_chrome_trace(str(trace))
    held = [
        event["args"]["Total Allocated"]
        for event in json.loads(trace.read_text())["traceEvents"]
        if event.get("name") == "[memory]" and event["args"].get("Device Type") == 0
    ]
    averages = profiler.key_averages()
    return {
        "collectives": sum(event.count for event in averages if event.key.startswith("gloo:")),
        "host_reads": sum(event.count for event in averages if event.key == "aten::_local_scalar_dense"),
        "peak_bytes": max(held),
        "process_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


# --- the parent


class Processes:
    """The ranks of one engine, which stay up between runs."""

    def __init__(self, engine: str, world_size: int, folder: Path):
        self.engine = engine
        spawn = multiprocessing.get_context("spawn")
        self.connections, self.processes = [], []
        for rank in range(world_size):
            ours, theirs = spawn.Pipe()
            os.environ.update(environment(rank, world_size))  # A spawned process starts with it.
            process = spawn.Process(target=serve, args=(theirs, engine, rank, world_size, str(folder)), daemon=True)
            process.start()
            self.connections.append(ours)
            self.processes.append(process)

    def run(self, setting: Setting, *, counted: bool) -> Any:
        """Rank 0's answer."""
        for connection in self.connections:
            connection.send((counted, setting))
        answers = []
        for rank, connection in enumerate(self.connections):
            if not connection.poll(DEADLINE_SECONDS):
                raise SystemExit(f"{self.engine}: rank {rank} gave no answer within {DEADLINE_SECONDS:.0f} s")
            try:
                answers.append(connection.recv())
            except EOFError:
                self.processes[rank].join(10)
                raise SystemExit(f"{self.engine}: rank {rank} died: {self.processes[rank].exitcode}") from None
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
    """What torchrun gives a rank, and nothing of it to a process that trains alone.

    The rendezvous is a file, so address and port are only looked at.
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


def measure(setting: Setting, running: list[Processes], turns: int) -> dict[str, dict[str, Any]]:
    """All engines on one setting, by name."""
    timed = replace(setting, steps=STEPS[setting.model, setting.slots] + DROPPED + 1)
    times: dict[str, list[list[tuple[float, float]]]] = {one.engine: [] for one in running}
    for turn in range(turns):
        for index in range(len(running)):
            one = running[(turn + index) % len(running)]
            times[one.engine].append(one.run(timed, counted=False))
    found: dict[str, dict[str, Any]] = {}
    for one in running:
        few, many = (one.run(replace(setting, steps=steps), counted=True) for steps in COUNTED)
        finer = one.run(replace(setting, steps=COUNTED[0], slots=2 * setting.slots), counted=True)
        more = COUNTED[1] - COUNTED[0]
        rounds = [
            {"min": min(wall), "median": statistics.median(wall), "cpu_median": statistics.median(cpu)}
            for wall, cpu in (zip(*run, strict=True) for run in times[one.engine])
        ]
        found[one.engine] = {
            "min_seconds": min(run["min"] for run in rounds),
            "median_seconds": statistics.median(run["median"] for run in rounds),
            "cpu_seconds": min(run["cpu_median"] for run in rounds),
            "rounds": rounds,
            "collectives_per_step": (many["collectives"] - few["collectives"]) / more,
            "host_reads_per_step": (many["host_reads"] - few["host_reads"]) / more,
            "host_reads_per_micro_batch": (finer["host_reads"] - few["host_reads"]) / (COUNTED[0] * setting.slots),
            "peak_bytes": many["peak_bytes"],
            "process_bytes": many["process_bytes"],
        }
    base = found["raw"]
    for values in found.values():
        values["ratio_min"] = values["min_seconds"] / base["min_seconds"]
        values["ratio_median"] = statistics.median(
            here["median"] / there["median"] for here, there in zip(values["rounds"], base["rounds"], strict=True)
        )
        values["ratio_cpu"] = values["cpu_seconds"] / base["cpu_seconds"]
        over = values["min_seconds"] - base["min_seconds"]
        values["over_raw_us_per_micro_batch"] = over / setting.slots * 1e6
        values["ratio_peak_bytes"] = values["peak_bytes"] / base["peak_bytes"]
    return found


HEAD = (
    f"{'model':5} {'W':>2} {'K':>2}  {'engine':10} {'min ms':>8} {'median':>8} {'× min':>6} {'× med':>6} {'× cpu':>6} "
    f"{'µs/micro':>9} {'coll.':>5} {'reads':>6} {'/micro':>6} {'MiB':>7} {'× MiB':>6}"
)


def line(setting: Setting, engine: str, values: dict[str, Any]) -> str:
    return (
        f"{setting.model:5} {setting.world_size:2} {setting.slots:2}  {engine:10} {values['min_seconds'] * 1e3:8.3f} "
        f"{values['median_seconds'] * 1e3:8.3f} {values['ratio_min']:6.3f} {values['ratio_median']:6.3f} {values['ratio_cpu']:6.3f} "
        f"{values['over_raw_us_per_micro_batch']:+9.1f} {values['collectives_per_step']:5.2f} "
        f"{values['host_reads_per_step']:6.2f} {values['host_reads_per_micro_batch']:6.2f} {values['peak_bytes'] / 2**20:7.2f} {values['ratio_peak_bytes']:6.3f}"
    )


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description="What a training engine costs over a hand-written loop.")
    parser.add_argument("--engine", action="append", choices=ENGINES, help="(default: every installed one)")
    parser.add_argument("--model", type=lambda text: text.split(","), default=list(WIDTHS))
    parser.add_argument("--slots", type=numbers, default=[1, 8], help="micro-batches per step: 1 or 8")
    parser.add_argument("--world-size", type=numbers, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--data", choices=("loader", "ready"), default="loader")
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    options = parser.parse_args()
    there = {"accelerate": importlib.util.find_spec("accelerate"), "fabric": importlib.util.find_spec("lightning")}
    wanted = ["raw", *(name for name in options.engine or ENGINES if name != "raw")]
    engines = [name for name in wanted if there.get(name, True) is not None]
    for name in wanted:
        if name not in engines:
            print(f"{name}: not installed")
    print(HEAD)
    rows = []
    for world_size in options.world_size:
        with tempfile.TemporaryDirectory() as folder:
            running = [Processes(engine, world_size, Path(folder)) for engine in engines]
            for model in options.model:
                for slots in options.slots:
                    setting = Setting(model, slots, world_size, options.data, options.log_every)
                    for engine, values in measure(setting, running, options.rounds).items():
                        print(line(setting, engine, values), flush=True)
                        rows.append({**asdict(setting), "engine": engine, **values})
            for one in running:
                one.close()
    if options.json is not None:
        import torch

        about = {"torch": str(torch.__version__), "python": platform.python_version(), "machine": platform.machine(),
                 "cores": os.cpu_count(), "rounds": options.rounds, "micro_size": MICRO_SIZE}  # fmt: skip
        options.json.write_text(json.dumps({"about": about, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
