"""A script that reports its own numbers: rank 0 appends one JSON object per line to the file in
$LOCKSTEP_METRICS.

    LOCKSTEP_METRICS=metrics.jsonl torchrun --nproc-per-node 2 train.py

No import of Lockstep is needed. A line such as {"step": 12, "train/loss": 2.5} is a point of the
series "train/loss" at step 12; "time" (seconds since the epoch) may be given too. Without the
variable nothing is written.
"""

import json
import os
from pathlib import Path

import torch
import torch.distributed as dist

# before there is a process group, which its functions would keep for ever (see the end)
import torch.distributed.nn
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 300


class Metrics:
    """Appends whole lines, each flushed, so that a reader never waits for a buffer to fill."""

    def __init__(self, path: str | None) -> None:
        self._file = Path(path).open("a", buffering=1) if path else None  # noqa: SIM115  # closed by close()

    def log(self, step: int, **values: float) -> None:
        if self._file is not None:
            self._file.write(json.dumps({"step": step, **values}) + "\n")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def main() -> None:
    on_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank = dist.get_rank()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    metrics = Metrics(os.environ.get("LOCKSTEP_METRICS") if rank == 0 else None)

    torch.manual_seed(0)
    model = nn.Linear(10, 1).to(device)
    model = DistributedDataParallel(model, device_ids=[device.index] if on_gpu else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    truth = torch.linspace(-1, 1, 10, device=device).unsqueeze(1)

    points = torch.Generator().manual_seed(1000 + rank)
    for step in range(1, STEPS + 1):
        x = torch.randn(64, 10, generator=points).to(device)
        loss = nn.functional.mse_loss(model(x), x @ truth)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rate = schedule.get_last_lr()[0]
        schedule.step()
        mean = loss.detach().clone()
        dist.all_reduce(
            mean
        )  # every rank has as many samples, so the mean of the ranks' means is the mean
        metrics.log(step, **{"train/loss": mean.item() / dist.get_world_size(), "train/lr": rate})

    if rank == 0:
        print(
            f"last loss {mean.item() / dist.get_world_size():.3g} after {STEPS} steps", flush=True
        )
    metrics.close()
    # Whoever still holds the process group keeps its threads, and with them torch may abort when
    # the interpreter ends.
    del model
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
