"""Hugging Face accelerate, in the two forms that its guide documents.

``Accelerate`` is the complete code of
https://huggingface.co/docs/accelerate/usage_guides/gradient_accumulation: ``accumulate``, which
divides by K and decides when to step. Clipping is guarded by ``sync_gradients``, as in the
reference of ``clip_grad_norm_``. The scheduler is created and prepared as in its examples
(``examples/by_feature``): its length is that of the loader *before* preparation, because accelerate
steps it once per process.

``AccelerateTokens`` is the skeleton on the same page for samples of varying size: the window is
loaded first, its units are counted over all processes, and sums are scaled by K · W / N.

Checkpoints follow https://huggingface.co/docs/accelerate/usage_guides/checkpoint: ``save_state``,
``load_state`` and ``skip_first_batches``, with the seedable sampler, whose order is a function of
seed and epoch.
"""

from __future__ import annotations

import importlib
from contextlib import nullcontext
from itertools import islice
from typing import Any

import torch
from torch.utils.data import DataLoader

from benchmarks.conformance.case import SEED, Case, Rows, optimizer, schedule
from benchmarks.conformance.engines.base import Engine
from benchmarks.conformance.gang import RankIdentity
from benchmarks.conformance.observer import Observer


class Accelerate(Engine):
    """``with accelerator.accumulate(model)``."""

    name = "accelerate"
    page = "https://huggingface.co/docs/accelerate/usage_guides/gradient_accumulation"
    needs = "accelerate"

    def refusal(self, case: Case) -> str | None:
        batch = (
            case.batch is not None
            and case.batch != case.world_size * case.micro_size * case.micro_batches
        )
        return "its batch is always ranks × micro-batch × K" if batch else None

    def train(self, case: Case, place: RankIdentity, observer: Observer) -> None:
        run = _Run(case, observer)
        saved = place.folder / "accelerate"
        skip = 0
        if case.resumed:
            assert case.checkpoint_at is not None
            run.accelerator.load_state(str(saved))
            skip = case.checkpoint_at * case.micro_batches
        done, per_epoch = 0, len(run.loader)
        for epoch in range(skip // per_epoch, case.epochs):
            run.loader.set_epoch(epoch)
            first = skip % per_epoch if epoch == skip // per_epoch else 0
            loader = run.accelerator.skip_first_batches(run.loader, first) if first else run.loader
            for batch in loader:
                with run.accelerator.accumulate(run.model):
                    run.accelerator.backward(observer.mean(run.model, batch))
                    if run.accelerator.sync_gradients and case.clip is not None:
                        observer.seen.norms.append(
                            float(
                                run.accelerator.clip_grad_norm_(run.model.parameters(), case.clip)
                            )
                        )
                    run.optimizer.step()
                    run.scheduler.step()
                    run.optimizer.zero_grad()
                done += run.accelerator.sync_gradients
                if (
                    run.accelerator.sync_gradients
                    and done == case.checkpoint_at
                    and not case.resumed
                ):
                    run.accelerator.save_state(str(saved))


class AccelerateTokens(Engine):
    """Skeleton of the guide for samples of varying size."""

    name = "accelerate-tokens"
    page = Accelerate.page + "#gradient-accumulation-on-training-samples-of-variable-size"
    needs = "accelerate"

    def train(self, case: Case, place: RankIdentity, observer: Observer) -> None:  # noqa: ARG002 - it writes no files
        run = _Run(case, observer)
        processes = run.accelerator.num_processes
        for epoch in range(case.epochs):
            run.loader.set_epoch(epoch)
            batches = iter(run.loader)
            while window := list(islice(batches, case.micro_batches)):
                mine = torch.tensor(
                    sum(observer.weight(batch) for batch in window), dtype=torch.float64
                )
                whole = run.accelerator.gather(mine).sum().item()
                for index, batch in enumerate(window):
                    several = processes > 1 and index < len(window) - 1
                    with run.model.no_sync() if several else nullcontext():
                        loss = observer.sum(run.model, batch) * case.micro_batches * processes
                        run.accelerator.backward(loss / torch.tensor(whole, dtype=torch.float64))
                if case.clip is not None:
                    observer.seen.norms.append(
                        float(run.accelerator.clip_grad_norm_(run.model.parameters(), case.clip))
                    )
                run.optimizer.step()
                run.scheduler.step()
                run.optimizer.zero_grad()


class _Run:
    """Prepared objects of one run."""

    def __init__(self, case: Case, observer: Observer):
        library = importlib.import_module("accelerate")  # Optional, so types are not available.
        library.utils.set_seed(SEED)
        self.accelerator: Any = library.Accelerator(
            cpu=True,
            gradient_accumulation_steps=case.micro_batches,
            dataloader_config=library.DataLoaderConfiguration(use_seedable_sampler=True),
        )
        model = observer.model()
        loader: DataLoader[Any] = DataLoader(Rows(case), case.micro_size, shuffle=True)
        moving = optimizer(case, model)
        length = max(1, len(loader) * case.epochs // case.micro_batches)
        scheduler = torch.optim.lr_scheduler.LambdaLR(moving, schedule(case, length))
        self.model: Any
        self.optimizer: Any
        self.loader: Any
        self.scheduler: Any
        self.model, self.optimizer, self.loader, self.scheduler = self.accelerator.prepare(
            model, moving, loader, scheduler
        )
