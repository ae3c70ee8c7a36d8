"""Models of the memory tests: three shapes, and real steps of the engine with counted tensors.

Not here: the required results (``tests.engine.memory.test_forecast``,
``tests.engine.memory.test_auto_micro_batch``).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

from lockstep.domain.spec.batch import accumulation_steps
from lockstep.domain.spec.train import Train
from lockstep.domain.training.memory import MemoryForecast
from lockstep.domain.training.plan import BatchPlan
from lockstep.engine.loop.trainer import Trainer
from lockstep.engine.memory.forecast import forecast
from lockstep.engine.memory.measured import counted_steps, measured_steps
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.task.causal_lm import CausalLM
from lockstep.engine.task.image_classification import ImageClassification
from lockstep.engine.task.interface import Task
from lockstep.engine.task.loading import load_task

CPU = torch.device("cpu")


class Wide(Task):
    """Wide MLP: its memory is in its weights, and its peak in the optimizer."""

    def __init__(self, width: int = 512):
        self.width = width

    def model(self) -> nn.Module:
        return nn.Sequential(
            nn.Linear(self.width, self.width), nn.ReLU(), nn.Linear(self.width, 10)
        )

    def dataset(self, split: str) -> Dataset[Any]:
        return TensorDataset(torch.zeros(4, self.width), torch.zeros(4, dtype=torch.long))

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        return F.cross_entropy(model(batch[0]), batch[1], reduction="sum")


def deep() -> CausalLM:
    """Return a task whose stages differ: five blocks, and an embedding that both ends use."""
    return CausalLM(context=32, layers=5, heads=2, width=64, max_bytes=4096)


TASKS: dict[str, Callable[[], Task]] = {
    "gpt": lambda: CausalLM(context=64, layers=2, heads=2, width=64, max_bytes=4096),
    "conv": lambda: ImageClassification(width=16),
    "wide": Wide,
}


def train_of(batch_size: int, **settings: Any) -> Train:
    return Train.model_validate(
        {"task": "causal_lm", "batch": {"size": batch_size}, "steps": 2, **settings}
    )


def predicted(task: Task, train: Train, micro: int, world_size: int = 1) -> MemoryForecast:
    sample = task.dataset("train")[0]
    return forecast(task, train, micro_batch_size=micro, world_size=world_size, sample=sample)


def really(task: Task, train: Train, micro: int, ranks: Ranks | None = None) -> int:
    sample = task.dataset("train")[0]
    return measured_steps(
        task, train, ranks if ranks is not None else Ranks(), micro_batch_size=micro, sample=sample
    )


def measured_on_rank(ranks: Ranks, name: str, train: Train, micro: int) -> int:
    return really(TASKS[name](), train, micro, ranks)


def counted_on_rank(ranks: Ranks, name: str, train: Train, micro: int) -> int:
    task = deep() if name == "deep" else TASKS[name]()
    sample = task.dataset("train")[0]
    return counted_steps(task, train, ranks, micro_batch_size=micro, sample=sample)


def trained(ranks: Ranks, train: Train, micro: int, folder: Path) -> None:
    """Run a whole training, as a job does."""
    steps = accumulation_steps(train.batch.size, micro, ranks.world_size)
    plan = BatchPlan(
        batch_size=train.batch.size,
        micro_batch_size=micro,
        accumulation_steps=steps,
        world_size=ranks.world_size,
    )
    Trainer(train, plan, load_task(train.task, train.task_args, folder), ranks, folder).run()
