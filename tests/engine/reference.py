"""The independent reference: one process, the whole batch in one forward, plain PyTorch, no code of
the engine.

The items of each batch are its input. Everything else (the mean, the schedule, clipping, a batch
without weight) is written here from the contract.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch

from tests.engine.contract import Distance
from tests.engine.toy import Toy, initial, item


@dataclass
class Expected:
    weights: dict[str, torch.Tensor] = field(default_factory=dict)
    gradients: list[dict[str, torch.Tensor]] = field(default_factory=list)
    """Values of each updated step, after clipping."""
    norms: list[float] = field(default_factory=list)
    losses: list[float | None] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)


def rate(settings: dict[str, Any], step: int, steps: int) -> float:
    """Return the rate by the schedule of the spec: step counts from 0."""
    lr = settings["optimizer"]["lr"]
    schedule = settings.get("schedule", {"name": "constant"})
    warm, low = schedule.get("warmup_steps", 0), schedule.get("min_lr", 0.0)
    if step < warm:
        return lr * (step + 1) / warm
    if schedule["name"] == "constant":
        return lr
    x = (step - warm) / (steps - 1 - warm)
    return low + (lr - low) * (
        0.5 * (1 + math.cos(math.pi * x)) if schedule["name"] == "cosine" else 1 - x
    )


OPTIMIZERS: dict[str, Any] = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


def objective(toy: Toy, model: Any, ids: list[int]) -> torch.Tensor | None:
    """Return the mean over the whole batch; None if nothing in it counts."""
    rows = [item(toy, index) for index in ids]
    x, y, mask = (torch.stack([row[part] for row in rows]) for part in (1, 2, 3))
    fit = ((model(x) - y) ** 2 * mask).sum()
    if toy.weigh == "samples":
        return fit / len(ids)
    mean = (model(x).mean(1) ** 2).sum() * 0.5 / len(ids)
    if mask.sum() == 0:
        return mean if toy.weigh == "terms" else None
    return fit / mask.sum() + (mean if toy.weigh == "terms" else 0)


def reference(toy: Toy, settings: dict[str, Any], batches: list[list[int]]) -> Expected:
    """Train on these batches."""
    torch.set_num_threads(1)
    model, expected = initial(toy), Expected()
    options = dict(settings["optimizer"])
    name = options.pop("name")
    optimizer_class = OPTIMIZERS.get(name) or getattr(torch.optim, name.rpartition(".")[2])
    options |= options.pop("args", {})
    decay = options.pop("weight_decay", 0.0)
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = optimizer_class(groups, **options)
    for step, ids in enumerate(batches):
        loss = objective(toy, model, ids)
        expected.losses.append(None if loss is None else loss.item())
        expected.rates.append(rate(settings, step, len(batches)))
        if loss is None:
            continue
        if toy.penalty:
            loss = loss + toy.penalty * (model.out.weight**2).sum()
        optimizer.zero_grad()
        loss.backward()
        norm = math.sqrt(sum(float((p.grad**2).sum()) for p in model.parameters()))
        expected.norms.append(norm)
        limit = settings.get("clip_grad_norm")
        if limit is not None:
            for parameter in model.parameters():
                parameter.grad *= min(
                    1.0, limit / (norm + 1e-6)
                )  # As PyTorch defines clip_grad_norm_.
        expected.gradients.append({name: p.grad.clone() for name, p in model.named_parameters()})
        for group in optimizer.param_groups:
            group["lr"] = expected.rates[-1]
        optimizer.step()
    expected.weights = {name: value.detach().clone() for name, value in model.state_dict().items()}
    return expected


def distance(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> Distance:
    """‖a − b‖ / ‖b‖ over all tensors together."""
    assert found.keys() == expected.keys()
    difference = math.sqrt(
        sum(float(((found[n].double() - expected[n].double()) ** 2).sum()) for n in expected)
    )
    size = math.sqrt(sum(float((expected[n].double() ** 2).sum()) for n in expected))
    return Distance(difference / size if size else difference)


def batches_of(
    per_rank: list[list[list[int]]], sizes: list[int], micro_size: int
) -> list[list[int]]:
    """Return the items of each batch, from the micro-batches that every rank ran.

    The number of micro-batches of a rank for a batch of a given size is computed here by
    distributing samples one by one.
    """
    world_size = len(per_rank)
    taken = [0] * world_size
    batches = []
    for size in sizes:
        shards = [
            len([i for i in range(size) if i % world_size == rank]) for rank in range(world_size)
        ]
        micro_batches = max(1, math.ceil(max(shards) / min(micro_size, max(shards))))
        batch: list[int] = []
        for rank in range(world_size):
            mine = per_rank[rank][taken[rank] : taken[rank] + micro_batches]
            taken[rank] += micro_batches
            full = mine[
                : shards[rank]
            ]  # A rank with fewer samples than micro-batches has empty ones at the end.
            assert all(len(micro_batch) <= micro_size for micro_batch in full)
            assert sum(map(len, full)) == shards[rank]
            batch += [i for micro_batch in full for i in micro_batch]
        batches.append(batch)
    assert taken == [len(micro_batches) for micro_batches in per_rank]
    return batches
