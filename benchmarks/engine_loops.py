"""The four loops that ``engine_overhead.py`` compares, with their model and data.

Each follows the documentation of its engine, and has the parts of a real run: AdamW with the same
kernel for all, a schedule, clipping, and a line in a file every few steps. Libraries are imported
inside the loop that uses them, so that no engine's process loads another's.

Not here: the measurement (``engine_overhead.py``).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

WIDTHS: Final = {"tiny": 64, "mid": 512}
MICRO_SIZE: Final = 16
CLASSES, RATE, CLIP = 10, 1e-3, 1.0


@dataclass(frozen=True)
class Setting:
    """Configuration of one training, for every engine."""

    model: str
    micro_batches: int
    """Micro-batches per rank and optimizer step."""
    world_size: int
    data: str
    """``loader`` or ``ready``."""
    log_every: int
    fused: bool
    """True if the other loops use torch's fused kernel, as Lockstep always does."""
    steps: int = 0

    def rows(self) -> int:
        return self.steps * self.micro_batches * MICRO_SIZE * self.world_size


def build(setting: Setting) -> nn.Module:
    torch.manual_seed(0)
    width = WIDTHS[setting.model]
    return nn.Sequential(
        *(nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(3)),
        nn.Linear(width, CLASSES),
    )


class Rows(Dataset[Any]):
    """A map-style dataset of ready tensors, as long as the run; 512 different rows are enough."""

    def __init__(self, setting: Setting):
        generator = torch.Generator().manual_seed(1)
        self.x = torch.randn(512, WIDTHS[setting.model], generator=generator)
        self.y = torch.randint(CLASSES, (512,), generator=generator)
        self.length = setting.rows()

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.x[index % 512], self.y[index % 512]

    def ready(self) -> list[tuple[Tensor, Tensor]]:
        """Micro-batches prepared in advance."""
        return list(zip(self.x.split(MICRO_SIZE), self.y.split(MICRO_SIZE), strict=True))


def adamw(setting: Setting, model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=RATE, fused=setting.fused or None)


def repeated(batches: list[Any], count: int) -> Iterator[Any]:
    for index in range(count):
        yield batches[index % len(batches)]


def factor(setting: Setting) -> Any:
    """Return the factor of the rate in a cosine schedule over the run."""
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


def raw(setting: Setting, rank: int, folder: Path) -> None:
    """Train with plain PyTorch."""
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DistributedSampler

    model, several = build(setting), setting.world_size > 1
    wrapped = DistributedDataParallel(model) if several else model
    optimizer = adamw(setting, model)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor(setting))
    rows, log, k = Rows(setting), Log(setting, rank, folder), setting.micro_batches
    if setting.data == "ready":
        loader: Any = repeated(rows.ready(), setting.steps * k)
    else:
        sampler = DistributedSampler(rows) if several else None
        loader = DataLoader(rows, MICRO_SIZE, shuffle=sampler is None, sampler=sampler)
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
    """Train with the engine's own loop, and a task as a user writes it."""
    import torch.distributed as dist

    from lockstep.domain.spec.train import Train
    from lockstep.domain.training.plan import BatchPlan
    from lockstep.engine.loop.trainer import Trainer
    from lockstep.engine.runtime.ranks import Ranks
    from lockstep.engine.task.interface import Task

    class Bench(Task):
        def model(self) -> nn.Module:
            return build(setting)

        def dataset(self, split: str) -> Any:  # noqa: ARG002 - nothing is evaluated
            return Rows(setting)

        def loss(self, model: nn.Module, batch: Any) -> Tensor:
            return functional.cross_entropy(model(batch[0]), batch[1], reduction="sum")

        def param_groups(self, model: nn.Module) -> list[dict[str, Any]]:
            return [
                {"params": list(model.parameters())}
            ]  # As in the other loops; each group is one more kernel.

    class Ready(Bench):
        # Its micro-batches are the next ones, independent of the requested samples.
        batch_dependent = True

        def dataset(self, split: str) -> Any:  # noqa: ARG002 - nothing is evaluated
            rows = Rows(setting)
            self.batches = rows.ready()
            return torch.arange(len(rows))

        def collate(self, samples: list[Any]) -> Any:
            x, y = self.batches[int(samples[0]) % len(self.batches)]
            return x[: len(samples)], y[: len(samples)]

    size = MICRO_SIZE * setting.micro_batches * setting.world_size
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
        accumulation_steps=setting.micro_batches,
        world_size=setting.world_size,
    )
    group = dist.group.WORLD if setting.world_size > 1 else None
    ranks = Ranks(
        rank=rank,
        world_size=setting.world_size,
        local_rank=rank,
        host_group=group,
        device_group=group,
    )
    Trainer(train, plan, Ready() if setting.data == "ready" else Bench(), ranks, folder).run()


def accelerate(setting: Setting, rank: int, folder: Path) -> None:
    """Train as in accelerate's guides to gradient accumulation and clipping."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=setting.micro_batches)
    model = build(setting)
    optimizer = adamw(setting, model)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor(setting))
    rows, log = Rows(setting), Log(setting, rank, folder)
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    if setting.data == "ready":
        loader: Any = repeated(rows.ready(), setting.steps * setting.micro_batches)
    else:
        loader = accelerator.prepare(DataLoader(rows, MICRO_SIZE, shuffle=True))
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
    """Train as in Fabric's page "Efficient Gradient Accumulation".

    The mean is over the K micro-batches.
    """
    from lightning.fabric import Fabric

    size, k = setting.world_size, setting.micro_batches
    runner = Fabric(accelerator="cpu", devices=size, strategy="ddp" if size > 1 else "auto")
    runner.launch()
    model = build(setting)
    optimizer = adamw(setting, model)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor(setting))
    wrapped, stepper = runner.setup(model, optimizer)
    rows, log = Rows(setting), Log(setting, rank, folder)
    if setting.data == "ready":
        loader: Any = repeated(rows.ready(), setting.steps * k)
    else:
        loader = runner.setup_dataloaders(DataLoader(rows, MICRO_SIZE, shuffle=True))
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
