"""Lockstep's engine: a task, the ``train`` section of a spec, a plan, and ``Trainer.run``.

Reported values are read from the metrics spool, as the service does.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import Dataset

from benchmarks.conformance.case import BETAS, DECAY, MOMENTUM, RATES, SEED, Case, Rows
from benchmarks.conformance.engines.base import Engine
from benchmarks.conformance.gang import RankIdentity
from benchmarks.conformance.observer import Observer
from lockstep.domain.life import attempt
from lockstep.domain.spec.batch import accumulation_steps, ceil_div
from lockstep.domain.spec.train import Train
from lockstep.domain.training.plan import BatchPlan
from lockstep.engine.loop.trainer import Trainer
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.task.interface import Batch, Task


class Lockstep(Engine):
    """A ``Task`` and the engine's own loop."""

    name = "lockstep"
    page = "docs/contract.md"
    reports_loss = True

    def refusal(self, case: Case) -> str | None:  # noqa: ARG002 - every case is supported
        return None

    def train(self, case: Case, place: RankIdentity, observer: Observer) -> None:
        folder = place.folder / ("again" if case.resumed else "first")
        if case.resumed and place.rank == 0:
            step = f"step-{case.checkpoint_at:08d}"
            shutil.copytree(
                place.folder / "first" / attempt.CHECKPOINTS / step, folder / attempt.RESUME
            )
        group = dist.group.WORLD if place.world_size > 1 else None
        ranks = Ranks(
            rank=place.rank,
            world_size=place.world_size,
            local_rank=place.rank,
            host_group=group,
            device_group=group,
        )
        folder.mkdir(parents=True, exist_ok=True)
        ranks.barrier()
        try:
            self.trainer(section(case), plan(case), CaseTask(case, observer), ranks, folder)
        finally:
            if ranks.first:
                observer.seen.losses, observer.seen.norms = reported(folder)

    def trainer(
        self, train: Train, batch: BatchPlan, task: Task, ranks: Ranks, folder: Path
    ) -> None:
        """Run the engine.

        Tests override this with incorrect engines, which the checks must detect.
        """
        Trainer(train, batch, task, ranks, folder).run()


class CaseTask(Task):
    """The case as a task, written as a user would."""

    def __init__(self, case: Case, observer: Observer):
        self.case, self.observer = case, observer

    def model(self) -> nn.Module:
        return self.observer.model()

    def dataset(self, split: str) -> Dataset[Any]:  # noqa: ARG002 - nothing is evaluated
        return Rows(self.case)

    def weight(self, batch: Batch) -> float:
        return self.observer.weight(batch)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return self.observer.sum(model, batch)

    def param_groups(self, model: nn.Module) -> list[dict[str, Any]]:
        return [{"params": list(model.parameters())}]


def section(case: Case) -> Train:
    """Return the case as the ``train`` section of a spec."""
    settings: dict[str, Any] = {"name": "sgd", "lr": RATES[case.optimizer]}
    if case.optimizer == "adamw":
        settings |= {"name": "adamw", "weight_decay": DECAY, "betas": list(BETAS)}
    elif case.optimizer == "momentum":
        settings |= {"momentum": MOMENTUM}
    schedule = {} if case.warmup is None else {"name": "cosine", "warmup_steps": case.warmup}
    return Train.model_validate(
        {
            "task": "case.py:CaseTask",
            "batch": {"size": case.batch_size, "micro_size": case.micro_size},
            "epochs": case.epochs,
            "optimizer": settings,
            "schedule": schedule,
            "clip_grad_norm": case.clip,
            "checkpoint": {"every_steps": case.checkpoint_at, "keep_last": 1000},
            "seed": SEED,
        }
    )


def plan(case: Case) -> BatchPlan:
    micro = min(case.micro_size, ceil_div(case.batch_size, case.world_size))
    return BatchPlan(
        batch_size=case.batch_size,
        micro_batch_size=micro,
        accumulation_steps=accumulation_steps(case.batch_size, micro, case.world_size),
        world_size=case.world_size,
    )


def reported(folder: Path) -> tuple[list[float], list[float]]:
    """Return the losses and gradient norms in the metrics spool, in the order of the steps."""
    found: dict[int, Mapping[str, Any]] = {}
    for line in (folder / attempt.METRICS).read_text().splitlines():
        document = json.loads(line)
        found[document["step"]] = {**found.get(document["step"], {}), **document["values"]}
    steps = [found[step] for step in sorted(found)]
    return [_number(values, "train/loss") for values in steps], [
        _number(values, "train/grad_norm") for values in steps
    ]


def _number(values: Mapping[str, Any], name: str) -> float:
    return float(values.get(name, math.nan))
