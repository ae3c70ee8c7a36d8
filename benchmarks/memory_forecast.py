"""Memory forecast, compared with the measured peak: three models on the CPU, alone and under DDP.

    python benchmarks/memory_forecast.py [--ranks 1,2] [--json FILE]

The forecast works with tensors that have no values and allocates nothing; the peak is the running
sum of every allocation and release that torch's profiler records in real steps of the engine. The
last columns are the cost of a forecast: seconds in its own process, without its imports, and the
growth of that process.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

from lockstep.domain.spec.train import Train
from lockstep.domain.training.memory import in_words
from lockstep.engine.memory.forecast import forecast
from lockstep.engine.memory.measured import measured_steps
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.task.causal_lm import CausalLM
from lockstep.engine.task.image_classification import ImageClassification
from lockstep.engine.task.interface import Task

TARGET = 0.05
"""Guaranteed maximum of the relative difference."""
Row = dict[str, Any]


class WideMLP(Task):
    """Three layers, two of them wide.

    Nearly all of its memory is weights, gradients and optimizer state.
    """

    def model(self) -> nn.Module:
        return nn.Sequential(
            nn.Linear(256, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10)
        )

    def dataset(self, split: str) -> Dataset[Any]:  # noqa: ARG002 - both splits are the same
        return TensorDataset(torch.zeros(1, 256), torch.zeros(1, dtype=torch.long))

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        return F.cross_entropy(model(batch[0]), batch[1], reduction="sum")


MODELS: dict[str, tuple[Any, int]] = {
    "GPT, 4 layers of 256": (
        lambda: CausalLM(context=128, layers=4, heads=4, width=256, max_bytes=65_536),
        8,
    ),
    "conv net, 64 channels": (lambda: ImageClassification(width=64), 64),
    "MLP, 2048 wide": (WideMLP, 64),
}
"""The task, and its micro-batch."""


def rows(ranks: Ranks) -> list[Row]:
    """One row per model and optimizer. All ranks must call this."""
    found = []
    for name, (task_of, micro) in MODELS.items():
        for optimizer in ({"name": "adamw"}, {"name": "sgd", "momentum": 0.9}):
            task = task_of()
            sample = task.dataset("train")[0]
            batch = {"size": 4 * micro * ranks.world_size, "micro_size": micro}
            train = Train.model_validate(
                {"task": "causal_lm", "batch": batch, "steps": 2, "optimizer": optimizer}
            )
            found.append(row(name, task, train, ranks, sample=sample, micro=micro))
    return found


def row(name: str, task: Task, train: Train, ranks: Ranks, *, sample: Any, micro: int) -> Row:
    options = {"micro_batch_size": micro, "sample": sample}
    forecast(task, train, world_size=ranks.world_size, **options)  # imports are not counted
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.perf_counter()
    predicted = forecast(task, train, world_size=ranks.world_size, **options)
    seconds = time.perf_counter() - begin
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    measured = max(ranks.gather(measured_steps(task, train, ranks, **options)))
    return {
        "model": name,
        "optimizer": train.optimizer.name,
        "ranks": ranks.world_size,
        "forecast": predicted.model_dump(),
        "measured_bytes": measured,
        "difference": predicted.peak / measured - 1,
        "seconds": seconds,
        "grown_bytes": grown,
    }


def rank_main(rank: int, world_size: int, folder: str) -> None:
    torch.set_num_threads(1)
    ranks = Ranks()
    if world_size > 1:
        store = dist.FileStore(f"{folder}/store", world_size)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size)
        group = dist.group.WORLD
        ranks = Ranks(
            rank=rank, world_size=world_size, local_rank=rank, host_group=group, device_group=group
        )
    found = rows(ranks)
    if ranks.first:
        Path(folder, "rows.json").write_text(json.dumps(found))
    # Not through torch's destructors, which may wait for a group that no longer exists.
    os._exit(0)


def run(world_size: int) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        processes.spawn(rank_main, (world_size, folder), nprocs=world_size)
        found: list[Row] = json.loads(Path(folder, "rows.json").read_text())
    return found


def print_table(found: list[Row]) -> None:
    print(
        f"{'model':24}{'optimizer':11}{'ranks':>5}{'forecast':>13}{'measured':>13}{'off by':>9}{'seconds':>9}{'grown':>10}"
    )
    for one in found:
        print(
            f"{one['model']:24}{one['optimizer']:11}{one['ranks']:5}{in_words(one['forecast']['peak']):>13}"
            f"{in_words(one['measured_bytes']):>13}{100 * one['difference']:8.2f}%{one['seconds']:9.2f}"
            f"{in_words(one['grown_bytes']):>10}"
        )
    worst = max(abs(one["difference"]) for one in found)
    print(f"\nlargest difference {100 * worst:.2f} %, promised at most {100 * TARGET:.0f} %")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--ranks", default="1,2", help="numbers of ranks (default: 1,2)")
    parser.add_argument("--json", type=Path, help="write the numbers to this file too")
    options = parser.parse_args()
    found = [one for world_size in map(int, options.ranks.split(",")) for one in run(world_size)]
    print_table(found)
    if options.json:
        options.json.write_text(
            json.dumps({"torch": torch.__version__, "rows": found}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
