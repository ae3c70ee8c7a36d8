"""Expected result of a run: one process and plain PyTorch, with each batch in one forward.

The input is the rows of each update. The mean, the schedule, clipping, and the rule that a batch
without weight updates nothing are implemented from the contract, without any code of an engine.

Not here: the assignment of rows to batches (``benchmarks.conformance.checks``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from benchmarks.conformance.case import BETAS, DECAY, MOMENTUM, RATES, Case, initial, row

Named = dict[str, Tensor]


@dataclass
class Expected:
    """Expected gradients, norms, losses, rates and weights of a run."""

    gradients: list[Named] = field(default_factory=list)
    """After clipping."""
    norms: list[float] = field(default_factory=list)
    """Before clipping."""
    losses: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    weights: Named = field(default_factory=dict)


def rates_of(case: Case, count: int) -> list[float]:
    """Return the learning rate of each of ``count`` updates.

    The rate is a function of the update's number alone.
    """
    peak, warm = RATES[case.optimizer], case.warmup
    if warm is None:
        return [peak] * count
    rising = [peak * (step + 1) / warm for step in range(min(warm, count))]
    falling = [
        peak * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, count - 1 - warm)))
        for step in range(warm, count)
    ]
    return rising + falling


def reference(case: Case, batches: list[list[int]]) -> Expected:
    """Train on the given rows of each update."""
    model, expected = initial(case), Expected(rates=rates_of(case, len(batches)))
    if case.optimizer == "adamw":
        moving: torch.optim.Optimizer = torch.optim.AdamW(
            model.parameters(), betas=BETAS, weight_decay=DECAY
        )
    else:
        moving = torch.optim.SGD(
            model.parameters(), momentum=MOMENTUM if case.optimizer == "momentum" else 0.0
        )
    for ids, rate in zip(batches, expected.rates, strict=True):
        loss = mean_loss(case, model, ids)
        for parameter in model.parameters():
            parameter.grad = None
        loss.backward()  # type: ignore[no-untyped-call] # torch declares no types here
        gradient = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        norm = math.sqrt(sum(float((part**2).sum()) for part in gradient.values()))
        if case.clip is not None:
            for part in gradient.values():
                part.mul_(
                    min(1.0, case.clip / (norm + 1e-6))
                )  # As PyTorch's documentation defines clip_grad_norm_.
        expected.losses.append(loss.item())
        expected.norms.append(norm)
        expected.gradients.append({name: part.clone() for name, part in gradient.items()})
        for group in moving.param_groups:
            group["lr"] = rate
        moving.step()
    expected.weights = {name: value.detach().clone() for name, value in model.state_dict().items()}
    return expected


def mean_loss(case: Case, model: nn.Module, ids: list[int]) -> Tensor:
    """Return the mean loss over the whole batch."""
    rows = [row(case, index) for index in ids]
    numbers, x, y, mask = (torch.stack([one[part] for one in rows]) for part in range(4))
    errors: Tensor = (model(numbers, x) - y) ** 2 * mask
    return errors.sum() / mask.sum() if case.weigh == "tokens" else errors.mean(1).mean()


def distance(found: Named, expected: Named) -> float:
    """Return ‖a − b‖ / ‖b‖ over all tensors together; a missing tensor counts as zeros."""
    names = found.keys() | expected.keys()
    zero = torch.zeros((), dtype=torch.float64)
    a, b = ({name: part.get(name, zero).double() for name in names} for part in (found, expected))
    difference = math.sqrt(sum(float(((a[name] - b[name]) ** 2).sum()) for name in names))
    size = math.sqrt(sum(float((b[name] ** 2).sum()) for name in names))
    return difference / size if size else difference


def share(found: Named, expected: Named) -> float:
    """Project ``found`` on ``expected``: 1.0 if they are equal, 0.5 if it is half."""
    inner = sum(float((found[name] * expected[name]).sum()) for name in expected)
    return inner / sum(float((expected[name] ** 2).sum()) for name in expected)
