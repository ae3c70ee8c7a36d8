"""Lightning Fabric, as in its guide on gradient accumulation.

``no_backward_sync`` around forward and backward, ``fabric.backward``, and clipping by
``fabric.clip_gradients``, which by default refuses a gradient that is not finite. Fabric leaves the
rest to its user ("works the same way as in PyTorch"), so the mean is divided by K, and the
optimizer steps after every K-th micro-batch and after the last of an epoch. (The code on the page
omits the division and steps after iteration 0. The adapter corrects both.) ``setup_dataloaders``
adds the distributed sampler and sets its epoch.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch.utils.data import DataLoader

from benchmarks.conformance.case import SEED, Case, Rows, optimizer, schedule
from benchmarks.conformance.engines.base import Engine
from benchmarks.conformance.gang import RankIdentity
from benchmarks.conformance.observer import Observer


class Fabric(Engine):
    """``with fabric.no_backward_sync(model, enabled=is_accumulating)``."""

    name = "fabric"
    page = "https://lightning.ai/docs/fabric/stable/advanced/gradient_accumulation.html"
    needs = "lightning.fabric"

    def train(self, case: Case, place: RankIdentity, observer: Observer) -> None:
        library = importlib.import_module(
            "lightning.fabric"
        )  # Optional, so types are not available.
        several = place.world_size > 1
        fabric: Any = library.Fabric(
            accelerator="cpu", devices=place.world_size, strategy="ddp" if several else "auto"
        )
        fabric.launch()
        fabric.seed_everything(SEED, verbose=False)
        built = observer.model()
        plain = optimizer(case, built)
        scheduler = torch.optim.lr_scheduler.LambdaLR(plain, schedule(case, case.updates))
        model, moving = fabric.setup(built, plain)
        loader = fabric.setup_dataloaders(DataLoader(Rows(case), case.micro_size, shuffle=True))
        for _ in range(case.epochs):
            for index, batch in enumerate(loader):
                accumulating = (index + 1) % case.micro_batches != 0 and index + 1 < len(loader)
                with fabric.no_backward_sync(model, enabled=accumulating):
                    fabric.backward(observer.mean(model, batch) / case.micro_batches)
                if accumulating:
                    continue
                if case.clip is not None:
                    observer.seen.norms.append(
                        float(fabric.clip_gradients(model, moving, max_norm=case.clip))
                    )
                moving.step()
                scheduler.step()
                moving.zero_grad()
