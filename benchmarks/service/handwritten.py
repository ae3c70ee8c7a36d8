"""Training of row 5 as a user writes it for ``torchrun``: same net, digits, batch, optimizer.

    torchrun --standalone --nproc-per-node 2 benchmarks/service/handwritten.py FILE

``FILE`` gets the time (seconds since the epoch) at which rank 0 had completed its first optimizer
step.

Not here: Lockstep.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

# before there is a process group, which its functions would keep beyond the end
import torch.distributed.nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

WIDTH, BATCH, MICRO, LEARNING_RATE = 8, 64, 8, 3e-3


def main() -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(1337)
    ranks = dist.get_world_size()
    model = DistributedDataParallel(
        nn.Sequential(
            nn.Conv2d(1, WIDTH, 3, padding=1, bias=False),
            nn.GroupNorm(4, WIDTH),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(WIDTH, 2 * WIDTH, 3, padding=1, bias=False),
            nn.GroupNorm(4, 2 * WIDTH),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(8 * WIDTH, 10),
        )
    )
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    data = TensorDataset(images, torch.tensor(digits.target))
    loader = DataLoader(data, batch_size=MICRO, sampler=DistributedSampler(data))
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    micro_batches = BATCH // MICRO // ranks
    for number, (inputs, labels) in enumerate(loader, start=1):
        last = number == micro_batches
        model.require_backward_grad_sync = last
        (F.cross_entropy(model(inputs), labels) / micro_batches).backward()
        if last:
            break
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if dist.get_rank() == 0:
        Path(sys.argv[1]).write_text(repr(time.time()))
    del model
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
