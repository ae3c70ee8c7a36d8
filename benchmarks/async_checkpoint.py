"""Cost of a checkpoint for the training.

Blocked time, and the delay of steps by the writing thread.

    python benchmarks/async_checkpoint.py [--width 1024] [--saves 7] [--folder DIR] [--json FILE]

A model on the CPU with AdamW saves every few steps, in turns: once it waits until the checkpoint is
durable, once it continues during the write. *Blocked* is the time between two steps that the save
takes; the medians are compared. Steps beside a checkpoint that is being written are compared with
steps on the idle machine.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lockstep.engine.checkpoints.checkpoint import SavedCheckpoint
from lockstep.engine.checkpoints.saving import Saver

LIMIT = 0.25
"""Of a blocking save, at most."""
LAYERS = 8
BATCH = 64
KINDS = ("blocking", "background")


def model_of(width: int) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        *[layer for _ in range(LAYERS) for layer in (nn.Linear(width, width), nn.Tanh())]
    )


class Training:
    """A model in training, with the measured times of its saves and steps."""

    def __init__(self, folder: Path, width: int):
        self.model = model_of(width)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.batch = torch.randn(BATCH, width)
        self.durable_at = 0.0
        self.savers = {
            name: self._saver(folder / name, background=name == "background") for name in KINDS
        }

    def _saver(self, folder: Path, *, background: bool) -> Saver:
        return Saver(
            folder,
            keep_last=2,
            device=torch.device("cpu"),
            background=background,
            durable=self._note,
            warn=print,
        )

    def _note(self, _: SavedCheckpoint) -> None:
        self.durable_at = time.perf_counter()

    def step(self) -> float:
        """Run one step and return its seconds."""
        began = time.perf_counter()
        self.model(self.batch).square().mean().backward()
        for saver in self.savers.values():
            saver.poll()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return time.perf_counter() - began

    def save(self, name: str, number: int) -> dict[str, Any]:
        """Save once, and run steps until the checkpoint is durable."""
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        self.durable_at = 0.0
        began = time.perf_counter()
        self.savers[name].begin(number, state)
        blocked = time.perf_counter() - began
        beside = []
        while not self.durable_at:
            beside.append(self.step())
        return {"blocked": blocked, "durable": self.durable_at - began, "beside": beside}


def measure(folder: Path, *, width: int, saves: int) -> dict[str, dict[str, Any]]:
    """Save in turns, blocking and in the background, to distribute disturbances equally."""
    training = Training(folder, width)
    alone = [training.step() for _ in range(5)][1:]
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in KINDS}
    for number in range(saves + 1):
        for name in KINDS:
            rows[name].append(training.save(name, number))
            alone += [training.step() for _ in range(3)]
    for saver in training.savers.values():
        saver.finish()
    newest = training.savers["blocking"].newest
    assert newest is not None
    return {
        name: {
            "bytes": newest.size_bytes,
            "first_blocked_seconds": found[0]["blocked"],
            "blocked_seconds": statistics.median(each["blocked"] for each in found[1:]),
            "durable_seconds": statistics.median(each["durable"] for each in found[1:]),
            "step_alone_seconds": statistics.median(alone),
            "step_beside_seconds": statistics.median(
                [each for save in found for each in save["beside"]] or [0.0]
            ),
        }
        for name, found in rows.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="What a checkpoint costs the training.")
    parser.add_argument(
        "--width",
        type=int,
        default=1024,
        help="of the model's layers; 1024 makes 34 MB of parameters",
    )
    parser.add_argument("--saves", type=int, default=7, help="saves whose median is taken")
    parser.add_argument(
        "--folder", type=Path, help="where checkpoints go (default: a temporary folder)"
    )
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="lockstep-checkpoints-", dir=options.folder))
    try:
        rows = measure(root, width=options.width, saves=options.saves)
    finally:
        shutil.rmtree(root)
    ratio = rows["background"]["blocked_seconds"] / rows["blocking"]["blocked_seconds"]
    print(
        f"{rows['blocking']['bytes'] / 1e6:.0f} MB per checkpoint, medians of {options.saves}, "
        f"{torch.get_num_threads()} threads"
    )
    print(f"{'':<12}{'blocked':>10}{'first':>10}{'durable':>10}{'step alone':>13}{'beside':>10}")
    for name, row in rows.items():
        beside = row["step_beside_seconds"] or None
        print(
            f"{name:<12}{row['blocked_seconds'] * 1e3:>7.0f} "
            f"ms{row['first_blocked_seconds'] * 1e3:>7.0f} ms"
            f"{row['durable_seconds'] * 1e3:>7.0f} ms{row['step_alone_seconds'] * 1e3:>10.1f} ms"
            + (f"{beside * 1e3:>7.1f} ms" if beside is not None else f"{'-':>10}")
        )
    print(
        f"blocked {ratio:.1%} of a blocking save (limit {LIMIT:.0%}): "
        f"{'ok' if ratio <= LIMIT else 'TOO MUCH'}"
    )
    if options.json is not None:
        document = {"ratio": ratio, "limit": LIMIT, "saves": options.saves, **rows}
        options.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
