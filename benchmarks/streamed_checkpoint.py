"""Memory and time of a checkpoint under a strategy that shards the state.

    python benchmarks/streamed_checkpoint.py [--before TREE] [--strategy fsdp] [--ranks 2]
        [--tensor 2] [--width 1920] [--rounds 5] [--folder DIR] [--json FILE]

Ranks train a model on the CPU with AdamW, save several times while they wait, several times in the
background, and resume. ``--before`` is a checkout of an older Lockstep, which runs in turns with
this one. ``--tensor`` cuts the layers over so many ranks, half of them by columns. Memory is
``RssAnon`` of rank 0, sampled every millisecond: pages of a mapped file are not part of it.

*save* is the peak during a save beyond what rank 0 held before it; its own slices are among those.
In the background the copy of the slices is kept from one save to the next, so it is counted only in
the first. *load* is the peak from the choice of the checkpoint to the end of the start, beyond the
slices that the rank keeps.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import inspect
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
LAYERS = 8
SAVES = 3
ROWS = ("save", "save_seconds", "background", "blocked_seconds", "durable_seconds", "load")
MIB = 1 << 20


class Peak:
    """Anonymous memory of this process while a part of it runs."""

    def __init__(self) -> None:
        self.before = self.most = 0

    @staticmethod
    def now() -> int:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("RssAnon"):
                return int(line.split()[1]) * 1024
        raise AssertionError("this kernel has no RssAnon")

    @contextlib.contextmanager
    def measured(self) -> Iterator[Peak]:
        ctypes.CDLL(None).malloc_trim(0)
        self.before = self.most = self.now()
        done = threading.Event()

        def sample() -> None:
            while not done.wait(0.001):
                self.most = max(self.most, self.now())

        thread = threading.Thread(target=sample)
        thread.start()
        try:
            yield self
        finally:
            done.set()
            thread.join()

    @property
    def beyond(self) -> int:
        return self.most - self.before


class Measured:
    """Runs of one rank, with the peaks and times of their saves and of a resume."""

    def __init__(self, options: argparse.Namespace, ranks: Any):
        self.options, self.ranks = options, ranks
        self.found: dict[str, list[float]] = {row: [] for row in ROWS}

    def train(self, folder: Path, *, steps: int, background: bool) -> None:
        """Train to ``steps``, from the newest checkpoint of the folder."""
        from lockstep.domain.spec.train import Train
        from lockstep.domain.training.plan import BatchPlan
        from lockstep.engine.loop.trainer import Trainer

        tensor = self.options.tensor
        size = 2 * self.options.ranks // tensor
        section = {
            "task": "causal_lm",
            "batch": {"size": size, "micro_size": 2},
            "optimizer": {"name": "adamw", "lr": 1e-6},
            "schedule": {"name": "constant"},
            "steps": steps,
            "strategy": {"name": self.options.strategy},
            "checkpoint": {"every_steps": 1, "keep_last": 1, "background": background},
        }
        cut: dict[str, int] = {}
        if tensor > 1:  # Not in the versions before.
            cut = {"tensor": tensor}
            section["parallel"] = cut
        plan = BatchPlan(
            batch_size=size,
            micro_batch_size=2,
            accumulation_steps=1,
            world_size=self.options.ranks,
            **cut,
        )
        folder.mkdir(parents=True, exist_ok=True)
        task = task_of(self.options.width)
        train = Train.model_validate(section)
        Trainer(train, plan, task, self.ranks, folder, resumes=True).run()

    @contextlib.contextmanager
    def saves(self) -> Iterator[None]:
        """Measure each save until it is durable."""
        from lockstep.engine.checkpoints.state import TrainingState

        save = TrainingState.save

        def measured(state: Any, step: int, *arguments: Any, ends: bool, **more: Any) -> None:
            self.ranks.barrier()
            peak, began = Peak(), time.perf_counter()
            with peak.measured():
                save(state, step, *arguments, ends=ends, **more)
                blocked = time.perf_counter() - began
                state.finish()
                durable = time.perf_counter() - began
            if ends or step == 1:
                return  # The last one also writes the model; the first one allocates what is kept.
            if state._train.checkpoint.background:
                self.found["background"].append(peak.beyond)
                self.found["blocked_seconds"].append(blocked)
                self.found["durable_seconds"].append(durable)
            else:
                self.found["save"].append(peak.beyond)
                self.found["save_seconds"].append(durable)

        with mock.patch.object(TrainingState, "save", measured):
            yield

    @contextlib.contextmanager
    def loads(self) -> Iterator[None]:
        """Measure the memory of a resume beyond the moments that the rank keeps."""
        from lockstep.engine.loop import assembly

        restore, load = assembly._restore, assembly.restore_optimizer
        weights, moments, kept = Peak(), Peak(), [0]

        def measured_restore(*arguments: Any) -> Any:
            with weights.measured():
                state = restore(*arguments)
            kept[0] = max(0, Peak.now() - weights.before)
            return state

        def measured_load(strategy: Any, optimizer: Any, *arguments: Any, **more: Any) -> None:
            with moments.measured():
                load(strategy, optimizer, *arguments, **more)
            own = sum(
                getattr(value, "_local_tensor", value).nbytes
                for values in getattr(optimizer, "optim", optimizer).state.values()
                for value in values.values()
            )
            self.found["load"].append(max(weights.beyond, kept[0] + moments.beyond - own))

        with (
            mock.patch.object(assembly, "_restore", measured_restore),
            mock.patch.object(assembly, "restore_optimizer", measured_load),
        ):
            yield


def task_of(width: int) -> Any:
    """Return a task whose model has layers of this width."""
    import torch
    from torch import nn

    from lockstep.engine.task.interface import Task

    class Vectors(Task):
        def model(self) -> nn.Module:
            return nn.Sequential(*[nn.Linear(width, width) for _ in range(LAYERS)])

        def tensor_plan(self, _: nn.Module) -> dict[str, str]:
            return {str(layer): ("colwise", "rowwise")[layer % 2] for layer in range(LAYERS)}

        def dataset(self, split: str) -> Any:  # noqa: ARG002 - as in the interface
            return torch.utils.data.TensorDataset(torch.eye(16, width))

        def loss(self, model: nn.Module, batch: Any) -> Any:
            return model(batch[0]).square().sum()

    return Vectors()


def rank_main(options: argparse.Namespace) -> None:
    """Train and resume on one rank; rank 0 prints its measurements."""
    import torch

    from lockstep.engine.runtime.ranks import RankEnvironment, connect

    torch.set_num_threads(1)
    more: dict[str, Any] = {}
    if "streams" in inspect.signature(connect).parameters:  # Not in the versions before.
        more = {"streams": True}
    environment = RankEnvironment(
        rank=options.rank,
        world_size=options.ranks,
        local_rank=options.rank,
        local_world_size=options.ranks,
    )
    patience = timedelta(minutes=10)
    ranks = connect(environment, kind="cpu", patience=patience, private=options.folder, **more)
    measured = Measured(options, ranks)
    with measured.saves():
        for name in ("blocking", "background"):
            folder = options.folder / name
            measured.train(folder, steps=SAVES + 2, background=name == "background")
    with measured.loads():
        measured.train(options.folder / "blocking", steps=SAVES + 3, background=False)
    if ranks.first:
        print(json.dumps(measured.found), flush=True)
    os._exit(0)  # Not through torch's destructors, which may wait for a group.


def round_of(tree: Path, options: argparse.Namespace) -> dict[str, list[float]]:
    """Run all ranks of a checkout once."""
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="lockstep-streams-") as folder:
        words = [sys.executable, str(Path(__file__).resolve()), "--folder", folder]
        for name in ("strategy", "ranks", "tensor", "width"):
            words += [f"--{name}", str(getattr(options, name))]
        processes = [
            subprocess.Popen(
                [*words, "--rank", str(rank)],
                env=os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
            )
            for rank in range(options.ranks)
        ]
        out = processes[0].communicate(timeout=900)[0]
        for process in processes[1:]:
            process.wait(timeout=60)
    found: dict[str, list[float]] = json.loads(out.decode().splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="What a checkpoint of a sharded state costs.")
    parser.add_argument("--before", type=Path, help="a checkout of an older Lockstep")
    parser.add_argument("--strategy", default="fsdp", help="fsdp, zero1, ddp")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--tensor", type=int, default=1, help="ranks that share each layer")
    parser.add_argument("--width", type=int, default=1920, help="1920 makes a state of 354 MB")
    parser.add_argument("--rounds", type=int, default=5, help="whose median is taken")
    parser.add_argument("--folder", type=Path, help="where checkpoints go")
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank is not None:
        rank_main(options)
    trees = {"now": ROOT} | ({} if options.before is None else {"before": options.before.resolve()})
    found: dict[str, dict[str, list[float]]] = {name: {row: [] for row in ROWS} for name in trees}
    for number in range(options.rounds):
        for name in sorted(trees, reverse=bool(number % 2)):
            for row, values in round_of(trees[name], options).items():
                found[name][row] += values
    tensor = 4 * options.width**2
    limit = 2 * tensor + 16 * MIB
    print(
        f"{options.strategy} on {options.ranks} ranks, tensor {options.tensor}, a state of "
        f"{3 * LAYERS * tensor / 1e6:.0f} MB in tensors of {tensor / MIB:.1f} MiB; medians of "
        f"{options.rounds} runs; the peak of memory is the maximum"
    )
    print(f"{'':<8}" + "".join(f"{row:>18}" for row in ROWS))
    for name, rows in found.items():
        shown = [
            f"{statistics.median(rows[row]):.3f} s"
            if row.endswith("seconds")
            else f"{max(rows[row]) / MIB:.1f} MiB"
            for row in ROWS
        ]
        print(f"{name:<8}" + "".join(f"{each:>18}" for each in shown))
    most = max(found["now"]["save"] + found["now"]["background"])
    print(
        f"a save takes {most / MIB:.1f} MiB beyond the slices of rank 0 (limit 2 tensors and 16 "
        f"MiB, {limit / MIB:.1f} MiB): {'ok' if most <= limit else 'TOO MUCH'}"
    )
    if options.json is not None:
        document = {"limit_bytes": limit, **found}
        options.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
