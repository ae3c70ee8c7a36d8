"""Plain PyTorch as in good tutorials, and the same loop with the correct scaling.

``Raw`` follows torch's own pages on DistributedDataParallel
(https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html:
``no_sync`` around all forwards and backwards of a window but the last) and on the sampler
(https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler:
``set_epoch`` before each epoch), and the usual recipe for accumulation: each micro-batch's mean
loss is divided by K, and the optimizer steps after every K-th micro-batch and after the last of an
epoch. It logs the last micro-batch's loss, as most loops do.

``RawSum`` differs in the scaling only: losses are sums, scaled by W / N, where N is the weight of
the window over all ranks. This keeps the window's batches in memory and needs one more collective
per update.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from itertools import islice
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from benchmarks.conformance.case import SEED, Case, Rows, optimizer, schedule
from benchmarks.conformance.engines.base import Engine
from benchmarks.conformance.gang import RankIdentity
from benchmarks.conformance.observer import Observer


class Raw(Engine):
    """DDP, ``no_sync``, and the mean of each micro-batch over K."""

    name = "raw"
    page = "https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html"
    reports_loss = True

    def train(self, case: Case, place: RankIdentity, observer: Observer) -> None:
        model = observer.model()
        wrapped: nn.Module = DistributedDataParallel(model) if place.world_size > 1 else model
        moving = optimizer(case, model)
        scheduler = torch.optim.lr_scheduler.LambdaLR(moving, schedule(case, case.updates))
        rows = Rows(case)
        sampler: DistributedSampler[Any] = DistributedSampler(
            rows, place.world_size, place.rank, seed=SEED
        )
        loader = DataLoader(rows, case.micro_size, sampler=sampler)
        for epoch in range(case.epochs):
            sampler.set_epoch(epoch)
            for window in windows(loader, case.micro_batches):
                observer.seen.losses.append(self.accumulate(case, wrapped, window, observer))
                if case.clip is not None:
                    observer.seen.norms.append(
                        float(nn.utils.clip_grad_norm_(model.parameters(), case.clip))
                    )
                moving.step()
                scheduler.step()
                moving.zero_grad()

    def accumulate(
        self, case: Case, wrapped: nn.Module, window: list[Any], observer: Observer
    ) -> float:
        """Accumulate the gradient of one window and return the loss to log."""
        for index, batch in enumerate(window):
            with in_sync(wrapped, last=index == len(window) - 1):
                loss = observer.mean(wrapped, batch)
                (loss / case.micro_batches).backward()  # type: ignore[no-untyped-call] # torch declares no types here
        return loss.item()


class RawSum(Raw):
    """Same loop, with sums divided by the weight of the whole window."""

    name = "raw-sum"

    def accumulate(
        self, case: Case, wrapped: nn.Module, window: list[Any], observer: Observer
    ) -> float:
        whole = torch.tensor(sum(observer.weight(batch) for batch in window), dtype=torch.float64)
        summed = torch.zeros((), dtype=torch.float64)
        if case.world_size > 1:
            dist.all_reduce(whole)
        for index, batch in enumerate(window):
            with in_sync(wrapped, last=index == len(window) - 1):
                loss = observer.sum(wrapped, batch)
                (loss * case.world_size / whole).backward()  # type: ignore[no-untyped-call] # as above
            summed += loss.detach()
        if case.world_size > 1:
            dist.all_reduce(summed)
        return float(summed / whole)


def windows(loader: Any, micro_batches: int) -> Iterator[list[Any]]:
    """Yield lists of K micro-batches; the last may be shorter."""
    batches = iter(loader)
    while window := list(islice(batches, micro_batches)):
        yield window


def in_sync(wrapped: nn.Module, *, last: bool) -> Any:
    """Return the context of one micro-batch: gradients are reduced in the last of a window."""
    return (
        nullcontext()
        if last or not isinstance(wrapped, DistributedDataParallel)
        else wrapped.no_sync()
    )
