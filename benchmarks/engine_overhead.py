"""Overhead of a training engine over a hand-written loop.

Time per step, memory, collectives, host reads.

    python benchmarks/engine_overhead.py [--rounds 5] [--starts 3] [--model tiny,mid]
                                         [--micro-batches 1,8] [--world-size 1,2]
                                         [--data loader|ready] [--kernel fused|default] [--log-every
                                         10] [--json FILE]

Four ways to train the same model on the same rows: ``raw`` (plain PyTorch, with DDP and ``no_sync``
on several ranks), ``lockstep``, ``accelerate`` and ``fabric`` (Lightning), the last two only if
they are installed. Each loop follows its own documentation, and all have the parts of a real run:
AdamW, a schedule, clipping, and a line with loss and rate in a file every ``--log-every`` steps.
The loops of the peers report the loss of rank 0's last micro-batch. Lockstep reports that of the
whole batch, and its cost is part of the measurement.

Times. torch's own hook after every optimizer step reads the clock, in all four alike, so a step is
everything between two updates: fetching, collating, forward, backward, clipping, schedule, logging.
The measurement synchronises and reads nothing. The first steps of every run are dropped. Processes
run for ``--rounds`` rounds, in each of which the engines take turns, in an order that rotates, so
that other work on the machine affects all of them. Then all are restarted, ``--starts`` times: the
position of a process in memory makes its steps faster or slower for its whole life, with two ranks
by up to 15 % of the minimum for one and the same loop.

``× med`` is the median of the rounds' ratios of medians: the relevant one if ranks wait for each
other. ``× min`` compares the fastest step of all. ``× cpu`` compares processor time, over all
threads of rank 0 (the first quartile of a run's steps, the median of the runs): other work affects
it less, and it includes an engine's own threads, which the clock shows only if no core is free for
them. Every rank computes with one thread.

Kernel. Lockstep uses torch's fused AdamW. So do the others here, because loops are compared and not
kernels. With ``--kernel default`` they use torch's choice, which on the CPU takes two to four times
as long.

Data. ``--data loader`` puts the same map-style dataset of ready rows behind each engine's
recommended loader, without worker processes. ``--data ready`` prepares micro-batches in advance: a
list, and for Lockstep, whose loader is its own, a ``collate`` that returns a ready micro-batch.

Collectives of Gloo, host reads (``aten::_local_scalar_dense``, as in ``.item()``) and peak bytes of
the CPU allocator are counted by torch's profiler in runs of their own, never in a timed one. Host
reads of a micro-batch are the difference to a run with twice as many of them. The peak is that of
the steps, from the first update to the last; ``start`` is the maximum before, in which an engine
may warm up or check its task. A checkpoint at the end, which the other loops do not write, is
omitted. Lockstep's control operation is no collective.

Not here: the loops (``engine_loops.py``), their processes (``engine_processes.py``), and the
correctness of their results (``benchmarks.conformance``).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import statistics
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from engine_loops import LOOPS, MICRO_SIZE, WIDTHS, Setting
from engine_processes import DROPPED, Processes

STEPS = {("tiny", 1): 400, ("tiny", 8): 120, ("mid", 1): 120, ("mid", 8): 40}
"""Timed steps of one run: about half a second of each."""
COUNTED = 12
"""Steps of a counted run."""

Rounds = dict[str, list[dict[str, float]]]
"""Of each engine: the fastest step of every run, its median, and the processor time of a step."""


def time_rounds(setting: Setting, running: list[Processes], turns: int) -> Rounds:
    """Time all engines on one setting, in turns."""
    timed = replace(setting, steps=STEPS[setting.model, setting.micro_batches] + DROPPED + 1)
    rounds: Rounds = {one.engine: [] for one in running}
    for turn in range(turns):
        for index in range(len(running)):
            one = running[(turn + index) % len(running)]
            wall, cpu = zip(*one.run(timed, counted=False), strict=True)
            rounds[one.engine].append(
                {
                    "min": min(wall),
                    "median": statistics.median(wall),
                    "cpu": statistics.quantiles(cpu, n=4)[0],
                }
            )
    return rounds


def count_all(setting: Setting, running: list[Processes]) -> dict[str, dict[str, float]]:
    """Count the operations of each engine's steps, which do not depend on time."""
    counted = {}
    for one in running:
        plain, finer = (
            one.run(replace(setting, steps=COUNTED, micro_batches=micro_batches), counted=True)
            for micro_batches in (setting.micro_batches, 2 * setting.micro_batches)
        )
        counted[one.engine] = {
            "collectives_per_step": plain["collectives"],
            "host_reads_per_step": plain["host_reads"],
            "host_reads_per_micro_batch": (finer["host_reads"] - plain["host_reads"])
            / setting.micro_batches,
            "peak_bytes": plain["peak_bytes"],
            "peak_bytes_at_start": plain["peak_bytes_at_start"],
        }
    return counted


def compare(
    setting: Setting, timed: Rounds, counted: dict[str, dict[str, float]]
) -> dict[str, dict[str, Any]]:
    """Compare all engines with the plain loop, by name."""
    found: dict[str, dict[str, Any]] = {}
    for engine, rounds in timed.items():
        found[engine] = {
            "min_seconds": min(run["min"] for run in rounds),
            "median_seconds": statistics.median(run["median"] for run in rounds),
            "cpu_seconds": statistics.median(run["cpu"] for run in rounds),
            "rounds": rounds,
            **counted[engine],
        }
    base = found["raw"]
    for values in found.values():
        values["ratio_min"] = values["min_seconds"] / base["min_seconds"]
        values["ratio_median"] = statistics.median(
            here["median"] / there["median"]
            for here, there in zip(values["rounds"], base["rounds"], strict=True)
        )
        values["ratio_cpu"] = values["cpu_seconds"] / base["cpu_seconds"]
        over = values["min_seconds"] - base["min_seconds"]
        values["over_raw_us_per_micro_batch"] = over / setting.micro_batches * 1e6
        values["ratio_peak_bytes"] = values["peak_bytes"] / base["peak_bytes"]
    return found


HEAD = (
    f"{'model':5} {'W':>2} {'K':>2}  {'engine':10} {'min ms':>8} {'median':>8} {'× min':>6} "
    f"{'× med':>6} {'× cpu':>6} "
    f"{'µs/micro':>9} {'coll.':>5} {'reads':>6} {'/micro':>6} {'MiB':>7} {'× MiB':>6} {'start':>7}"
)


def line(setting: Setting, engine: str, values: dict[str, Any]) -> str:
    return (
        f"{setting.model:5} {setting.world_size:2} {setting.micro_batches:2}  {engine:10} "
        f"{values['min_seconds'] * 1e3:8.3f} "
        f"{values['median_seconds'] * 1e3:8.3f} {values['ratio_min']:6.3f} "
        f"{values['ratio_median']:6.3f} {values['ratio_cpu']:6.3f} "
        f"{values['over_raw_us_per_micro_batch']:+9.1f} {values['collectives_per_step']:5.2f} "
        f"{values['host_reads_per_step']:6.2f} {values['host_reads_per_micro_batch']:6.2f} "
        f"{values['peak_bytes'] / 2**20:7.2f} {values['ratio_peak_bytes']:6.3f} "
        f"{values['peak_bytes_at_start'] / 2**20:7.2f}"
    )


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(
        description="What a training engine costs over a hand-written loop."
    )
    parser.add_argument(
        "--engine", action="append", choices=tuple(LOOPS), help="(default: every installed one)"
    )
    parser.add_argument("--model", type=lambda text: text.split(","), default=list(WIDTHS))
    parser.add_argument(
        "--micro-batches", type=numbers, default=[1, 8], help="micro-batches per step: 1 or 8"
    )
    parser.add_argument("--world-size", type=numbers, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5, help="between two starts of the processes")
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--data", choices=("loader", "ready"), default="loader")
    parser.add_argument(
        "--kernel", choices=("fused", "default"), default="fused", help="of AdamW, but for lockstep"
    )
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    options = parser.parse_args()
    there = {
        "accelerate": importlib.util.find_spec("accelerate"),
        "fabric": importlib.util.find_spec("lightning"),
    }
    wanted = ["raw", *(name for name in options.engine or LOOPS if name != "raw")]
    engines = [name for name in wanted if there.get(name, True) is not None]
    for name in wanted:
        if name not in engines:
            print(f"{name}: not installed")
    print(HEAD)
    rows = []
    for world_size in options.world_size:
        settings = [
            Setting(
                model,
                micro_batches,
                world_size,
                options.data,
                options.log_every,
                options.kernel == "fused",
            )
            for model in options.model
            for micro_batches in options.micro_batches
        ]
        timed: dict[Setting, Rounds] = {
            setting: {engine: [] for engine in engines} for setting in settings
        }
        counted: dict[Setting, dict[str, dict[str, float]]] = {}
        for start in range(options.starts):
            with tempfile.TemporaryDirectory() as folder:
                running = [Processes(engine, world_size, Path(folder)) for engine in engines]
                for setting in settings:
                    for engine, rounds in time_rounds(setting, running, options.rounds).items():
                        timed[setting][engine] += rounds
                    if start == 0:
                        counted[setting] = count_all(setting, running)
                for one in running:
                    one.close()
        for setting in settings:
            for engine, values in compare(setting, timed[setting], counted[setting]).items():
                print(line(setting, engine, values), flush=True)
                rows.append({**asdict(setting), "engine": engine, **values})
    if options.json is not None:
        import torch

        about = {"torch": str(torch.__version__), "python": platform.python_version(), "machine": platform.machine(),
                 "cores": os.cpu_count(), "rounds": options.rounds, "starts": options.starts, (
                     "micro_size"): MICRO_SIZE}  # fmt: skip
        options.json.write_text(json.dumps({"about": about, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
