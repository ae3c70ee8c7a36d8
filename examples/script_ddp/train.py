"""A plain torchrun script that knows nothing of Lockstep: fit a small network to a sine with
DistributedDataParallel.

    torchrun --nproc-per-node 2 train.py --steps 200

Each rank draws its own points, DDP averages the gradients, and every rank prints what it sees.
"""

import argparse
import os

import torch
import torch.distributed as dist

# before there is a process group, which its functions would keep for ever (see the end)
import torch.distributed.nn
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--log-every", type=int, default=50)
    options = parser.parse_args()

    on_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    print(f"rank {rank} of {world_size} on {device}", flush=True)

    torch.manual_seed(0)  # the same weights everywhere
    model = nn.Sequential(
        nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)
    ).to(device)
    model = DistributedDataParallel(model, device_ids=[device.index] if on_gpu else None)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)

    points = torch.Generator().manual_seed(1000 + rank)  # other points on each rank
    for step in range(1, options.steps + 1):
        x = (torch.rand(256, 1, generator=points) * 6 - 3).to(device)
        loss = nn.functional.mse_loss(model(x), torch.sin(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % options.log_every == 0 or step == options.steps:
            print(f"rank {rank} step {step} loss {loss.item():.5f}", flush=True)

    print(f"rank {rank} done", flush=True)
    # Whoever still holds the process group keeps its threads, and with them torch may abort when
    # the interpreter ends.
    del model
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
