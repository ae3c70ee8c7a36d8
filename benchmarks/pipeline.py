"""Steps of a pipeline compared with the ideal, for stages that compute equally long.

    python benchmarks/pipeline.py [--stages 2] [--counts 4,8] [--rounds 9] [--json FILE]

A stage of P computes a step of K micro-batches in the time *busy*, if nothing is sent: it is
measured with the same stage, all stages at once, on links that return what they received before.
The ideal step is (K + P - 1) / K of it. Both are measured in turns, on ranks of one thread each; a
ratio is that of neighbours in one round. A machine with fewer free cores than stages measures
itself.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

from lockstep.domain.spec.train import Train
from lockstep.engine.memory.parts import StageOf, parts_of, rank_batch, stages_of
from lockstep.engine.model.precision import Precision
from lockstep.engine.parallel.links import Form, Links
from lockstep.engine.parallel.silent import SilentLinks
from lockstep.engine.runtime.heartbeat import Heartbeat
from lockstep.engine.runtime.mesh import Mesh, mesh_of
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.runtime.timeline import timeline_for
from lockstep.engine.strategies import strategy_for
from lockstep.engine.task.interface import Task

WIDTH, LAYERS, SAMPLES = 1024, 4, 256
"""Of a block, and of a micro-batch: tens of milliseconds on a core for each forward."""
GOAL = 1.05
Row = dict[str, Any]


class Model(nn.Module):
    """Equal blocks, all of which compute the gradient of their input."""

    def __init__(self, blocks: int):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.blocks = nn.ModuleList(
            nn.Sequential(
                *(layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU()))
            )
            for _ in range(blocks)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x * self.scale
        for block in self.blocks:
            x = block(x)
        return x


class Equal(Task):
    """Task without an embedding and a head, which would be more work for the ends."""

    def __init__(self, blocks: int):
        self.blocks = blocks

    def model(self) -> nn.Module:
        torch.manual_seed(1)
        return Model(self.blocks)

    def dataset(self, split: str) -> Dataset[Any]:  # noqa: ARG002 - both splits are the same
        return TensorDataset(torch.randn(1, WIDTH))

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        return model(batch[0]).sum()


class Repeating(SilentLinks):
    """Links that return the same activation and gradient each time."""

    def __init__(self, count: int):
        super().__init__(Form(torch.float32, (SAMPLES, WIDTH), True), count)
        self._values = torch.randn(SAMPLES, WIDTH)

    def receive_activation(self, key: Hashable) -> Tensor:  # noqa: ARG002 - as in the base class
        return self._values.clone().requires_grad_()

    def receive_gradient(self, activation: Tensor) -> Tensor:  # noqa: ARG002 - as in the base class
        return self._values.clone()


def step_of(mesh: Mesh, links: Links, task: Equal, train: Train) -> Callable[[int], float]:
    """Return a function that runs the gradient of a step, and returns its seconds over all ranks.

    All ranks must call both.
    """
    batch = task.collate([task.dataset("train")[0]] * SAMPLES)
    plan, terms = stages_of(task, train, batch)
    gradient = parts_of(
        task,
        train,
        strategy_for(train.strategy),
        mesh,
        Precision("fp32"),
        stage=StageOf(plan, links),
    ).gradient
    gradient.terms = terms
    timeline = timeline_for(mesh.world.device, Heartbeat.unseen())

    def run(count: int) -> float:
        whole, weights = rank_batch(batch, SAMPLES, terms, samples=SAMPLES, micro_batches=count)
        mesh.world.barrier()
        begin = time.monotonic()
        gradient.accumulate(whole, weights, timeline)
        seconds = time.monotonic() - begin
        gradient.discard()
        return seconds

    return run


def measure(ranks: Ranks, options: argparse.Namespace) -> list[Row]:
    """Return the seconds of every round. All ranks must call this."""
    train = Train.model_validate(
        {
            "task": "own.py:Equal",
            "batch": {"size": SAMPLES * max(options.counts), "micro_size": SAMPLES},
            "steps": 1,
            "optimizer": {"name": "sgd"},
            "parallel": {"pipeline": options.stages},
        }
    )
    mesh, task = mesh_of(ranks, train.parallel), Equal(options.stages)
    assert mesh.line is not None
    links = Links(mesh.line, mesh.place.stage, options.stages, ranks.device)
    staged = step_of(mesh, links, task, train)
    alone = step_of(mesh, Repeating(options.stages), task, train)
    for run in (staged, alone):
        run(max(options.counts))  # Warms up.
    found = []
    for number in range(options.rounds):
        for count in options.counts[:: -1 if number % 2 else 1]:
            before = ranks.gather(alone(count))
            step = max(ranks.gather(staged(count)))
            after = ranks.gather(alone(count))
            busy = statistics.mean([*before, *after])
            ideal = (count + options.stages - 1) / count * busy
            found.append({"count": count, "step": step, "busy": busy, "ratio": step / ideal})
    return found


def rank_main(rank: int, options: argparse.Namespace, folder: str) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store", options.stages)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=options.stages)
    group = dist.group.WORLD
    ranks = Ranks(
        rank=rank, world_size=options.stages, local_rank=rank, host_group=group, device_group=group
    )
    found = measure(ranks, options)
    if ranks.first:
        Path(folder, "rows.json").write_text(json.dumps(found))
    ranks.barrier()
    os._exit(0)  # Not through torch's destructors, which may wait for a group.


def main() -> None:
    parser = argparse.ArgumentParser(description="Steps of a pipeline compared with the ideal.")
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument(
        "--counts",
        type=lambda text: [int(each) for each in text.split(",")],
        default=[4, 8],
        help="micro-batches of a step",
    )
    parser.add_argument("--rounds", type=int, default=9, help="whose median is taken")
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        processes.spawn(rank_main, (options, folder), nprocs=options.stages)
        rows: list[Row] = json.loads(Path(folder, "rows.json").read_text())
    print(
        f"{options.stages} stages of one thread on {os.cpu_count()} cores, load {load:.1f} before "
        f"and {os.getloadavg()[0]:.1f} after; medians of {options.rounds} rounds"
    )
    print(f"{'K':>3}{'busy':>12}{'ideal':>12}{'step':>12}{'ratio':>8}{'of rounds':>15}")
    for count in options.counts:
        of_count = [row for row in rows if row["count"] == count]
        step, busy, ratio = (
            statistics.median(row[name] for row in of_count) for name in ("step", "busy", "ratio")
        )
        ideal = (count + options.stages - 1) / count * busy
        ratios = [row["ratio"] for row in of_count]
        print(
            f"{count:>3}{busy * 1e3:>9.0f} ms{ideal * 1e3:>9.0f} ms{step * 1e3:>9.0f} ms"
            f"{ratio:>8.3f}{min(ratios):>8.3f}-{max(ratios):.3f}"
            f"  {'ok' if ratio <= GOAL else f'above {GOAL}'}"
        )
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
