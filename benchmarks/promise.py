"""One job, six ways: the same curve, independent of ranks, micro-batch, memory and failures.

    python benchmarks/promise.py [--steps 50] [--only fp64,fp32,bf16]

A small GPT with dropout 0.1 is trained with a batch of 64 as

    W=1, m=64 · W=1, m=8 · W=2, m=8 · W=4, m=3 · W=2 running out of memory at step 20 · W=4 killed
    at step 37, resumed on W=2

in float64, in float32 and under bf16 autocast, each by ``torchrun -m lockstep.engine`` on one spec.
It prints the largest difference of the final weights as ‖a − b‖ / ‖b‖ (of the loss for bf16), and
writes ``docs/promise.json`` and the six loss curves as ``docs/promise.svg``. The process exits with
1 if a difference is above its bound.

The task below is the built-in one, with three things added: its number format, a shortage of memory
on rank 1, and a SIGKILL of rank 1, which ends the gang.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import torch

from lockstep.engine.checkpoints import checkpoint

ROOT = Path(__file__).resolve().parents[1]
BATCH = 64
SHORT_FROM_SAMPLE = 19 * BATCH // 2
"""Samples of rank 1 of 2 in the first nineteen batches."""
KILLED_FROM_SAMPLE = 37 * BATCH // 4
"""Samples of rank 1 of 4 in the first thirty-seven batches."""
DEADLINE_SECONDS = 600.0
BOUNDS = {"fp64": 1e-12, "fp32": 1e-5, "bf16": 2e-3}

TASK = """
import os
import signal

import torch

from lockstep.engine.task.causal_lm import CausalLM


class Text(CausalLM):
    seen = 0

    def __init__(self, double=False, **arguments):
        super().__init__(**arguments)
        self.double = double

    def model(self):
        model = super().model()
        return model.double() if self.double else model

    def loss(self, model, batch):
        samples = len(batch[0])
        self.seen += samples if model.training else 0
        short = os.environ.get("SHORT_FROM_SAMPLE")
        if short and os.environ["RANK"] == "1" and self.seen > int(short) and samples > 4:
            raise torch.OutOfMemoryError("out of memory (injected)")
        killed = os.environ.get("KILLED_FROM_SAMPLE")
        if killed and os.environ["RANK"] == "1" and self.seen > int(killed):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().loss(model, batch)
"""


@dataclass(frozen=True)
class Way:
    """One way to run the job."""

    name: str
    ranks: int
    micro_size: int
    short: bool = False
    killed: bool = False


WAYS = (
    Way("W=1, m=64", 1, 64),
    Way("W=1, m=8", 1, 8),
    Way("W=2, m=8", 2, 8),
    Way("W=4, m=3", 4, 3),
    Way("W=2, m=8, out of memory at step 20", 2, 8, short=True),
    Way("W=4, m=4, killed at step 37, resumed on W=2", 4, 4, killed=True),
)


@dataclass
class Found:
    """Results of a run."""

    losses: list[float]
    weights: dict[str, torch.Tensor]
    micro_sizes: list[int]
    resumed_at: list[int]


def main() -> int:
    """Run all ways in all formats, print the table, write the files."""
    parser = argparse.ArgumentParser(description="One job, six ways.")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--only", default=",".join(BOUNDS), help="formats, such as fp64,fp32")
    options = parser.parse_args()
    rows, curves = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for precision in options.only.split(","):
            found = {
                way.name: run(Path(folder) / precision, way, precision, options.steps)
                for way in WAYS
            }
            curves[precision] = {name: one.losses for name, one in found.items()}
            first = found[WAYS[0].name]
            for way in WAYS:
                one = found[way.name]
                weights = distance(one.weights, first.weights)
                loss = max(abs(a - b) for a, b in zip(one.losses, first.losses, strict=True))
                bounded = loss if precision == "bf16" else weights
                rows.append(
                    {
                        "precision": precision,
                        "way": way.name,
                        "weights": weights,
                        "loss": loss,
                        "bound": BOUNDS[precision],
                        "holds": bounded <= BOUNDS[precision],
                        "micro_sizes": one.micro_sizes,
                        "resumed_at": one.resumed_at,
                    }
                )
                print_row(rows[-1])
    docs = ROOT / "docs"
    (docs / "promise.json").write_text(json.dumps(rows, indent=1) + "\n")
    (docs / "promise.svg").write_text(picture(curves.get("fp64") or next(iter(curves.values()))))
    return 0 if all(row["holds"] for row in rows) else 1


def run(parent: Path, way: Way, precision: str, steps: int) -> Found:
    """Train one way to its end."""
    folder = parent / way.name.replace(" ", "").replace(",", "-")
    folder.mkdir(parents=True)
    (folder / "task.py").write_text(TASK)
    out = folder / "out"
    spec = write_spec(folder, way.ranks, way.micro_size, precision, steps)
    if way.killed:
        start(spec, out, way.ranks, {"KILLED_FROM_SAMPLE": str(KILLED_FROM_SAMPLE)}, dies=True)
        spec = write_spec(folder, 2, way.micro_size, precision, steps)
        start(spec, out, 2)
    else:
        start(
            spec, out, way.ranks, {"SHORT_FROM_SAMPLE": str(SHORT_FROM_SAMPLE)} if way.short else {}
        )
    losses: dict[int, float] = {}
    for line in (out / "spool/metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        if "train/loss" in record["values"]:
            losses[record["step"]] = record["values"][
                "train/loss"
            ]  # The last occurrence of a repeated step counts.
    events = [json.loads(line) for line in (out / "spool/events.jsonl").read_text().splitlines()]
    state = checkpoint.load(out / f"checkpoints/step-{steps:08d}")
    found = Found(
        losses=[losses[step] for step in range(1, steps + 1)],
        weights=state["model"],
        micro_sizes=[
            event["data"]["micro_batch_size"] for event in events if event["kind"] == "plan"
        ],
        resumed_at=[event["data"]["step"] for event in events if event["kind"] == "resumed"],
    )
    shutil.rmtree(out)
    return found


def write_spec(folder: Path, ranks: int, micro_size: int, precision: str, steps: int) -> Path:
    """Write the one spec, for this number of ranks."""
    document = {
        "name": "promise",
        "kind": "train",
        "resources": {"gpus": ranks},
        "train": {
            "task": "task.py:Text",
            "task_args": {
                "double": precision == "fp64",
                "dropout": 0.1,
                "context": 32,
                "layers": 2,
                "heads": 2,
                "width": 32,
                "max_bytes": 200_000,
            },
            "batch": {"size": BATCH, "micro_size": micro_size},
            "steps": steps,
            "optimizer": {"name": "adamw", "lr": 1e-3},
            "schedule": {"name": "cosine", "warmup_steps": 5, "min_lr": 1e-4},
            "precision": "bf16" if precision == "bf16" else "fp32",
            "checkpoint": {"every_steps": 10},
        },
    }
    path = folder / "job.yaml"
    path.write_text(json.dumps(document))  # JSON is YAML.
    return path


def start(
    spec: Path,
    out: Path,
    ranks: int,
    environment: Mapping[str, str] = MappingProxyType({}),
    *,
    dies: bool = False,
) -> None:
    """Run the engine on this number of ranks, to its end."""
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={ranks}",
        "-m",
        "lockstep.engine",
    ]
    process = subprocess.Popen(
        [*command, str(spec), "--out", str(out)],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | dict(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=DEADLINE_SECONDS)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    if (process.returncode != 0) != dies:
        raise RuntimeError(f"the engine ended with {process.returncode}:\n{output}")


def distance(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """Return ‖a − b‖ / ‖b‖ over all tensors together."""
    square = sum(float(((one[name].double() - other[name].double()) ** 2).sum()) for name in other)
    return math.sqrt(square / sum(float((value.double() ** 2).sum()) for value in other.values()))


def print_row(row: dict[str, object]) -> None:
    """Print one line of the table."""
    verdict = "holds" if row["holds"] else "ABOVE ITS BOUND"
    note = f"  m {row['micro_sizes']}" + (
        f"  resumed after step {row['resumed_at']}" if row["resumed_at"] else ""
    )
    print(
        f"{row['precision']:5} {row['way']:46} weights {row['weights']:.1e}  loss "
        f"{row['loss']:.1e}  "
        f"bound {row['bound']:g}  {verdict}{note}",
        flush=True,
    )


# --- the picture

WIDTH, HEIGHT, LEFT, TOP, GAP = 760, 460, 64, 48, 54
COLOURS = ("#c7cdd6", "#e3b341", "#3fb68b", "#4b8bf4", "#d2577a", "#20262e")
STROKES = ((11, ""), (8, ""), (5.5, ""), (3.5, ""), (2.2, "7 5"), (1.2, "2 4"))


def picture(curves: dict[str, list[float]]) -> str:
    """Draw six loss curves over each other, and below them their distances from the first."""
    first = next(iter(curves.values()))
    low, high = min(map(min, curves.values())), max(map(max, curves.values()))
    upper, lower = (TOP, 250), (TOP + 250 + GAP, HEIGHT - TOP - 250 - GAP - 34)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="system-ui, sans-serif" '
        f'font-size="12" fill="#20262e"><rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="24" font-size="15" font-weight="600">One job, six ways, float64, '
        f"dropout 0.1: "
        "the same curve</text>",
    ]
    for value in (math.ceil(low * 2) / 2 + step * 0.5 for step in range(int((high - low) * 2) + 1)):
        y = upper[0] + upper[1] * (high - value) / (high - low)
        parts.append(grid(y, f"{value:g}"))
    for power in (-18, -15, -12):
        y = lower[0] + lower[1] * (-11 - power) / 8
        parts.append(grid(y, f"1e{power}"))
    count = len(first)
    for (name, losses), colour, (stroke, dash) in zip(
        curves.items(), COLOURS, STROKES, strict=True
    ):
        top = [
            (step, upper[0] + upper[1] * (high - loss) / (high - low))
            for step, loss in enumerate(losses)
        ]
        parts.append(line(top, count, colour, stroke, dash))
        apart = [max(abs(a - b), 1e-19) for a, b in zip(losses, first, strict=True)]
        below = [
            (step, lower[0] + lower[1] * (-11 - math.log10(value)) / 8)
            for step, value in enumerate(apart)
        ]
        parts.append(line(below, count, colour, min(stroke, 1.6), ""))
        index = list(curves).index(name)
        y = TOP + 14 + index * 19
        parts.append(
            f'<line x1="{WIDTH - 356}" x2="{WIDTH - 326}" y1="{y}" y2="{y}" stroke="{colour}" '
            f'stroke-width="{stroke}" '
            f'stroke-dasharray="{dash}"/><text x="{WIDTH - 316}" y="{y + 4}">{name}</text>'
        )
    parts += [
        f'<text x="{LEFT}" y="{upper[0] - 8}" fill="#5a6572">training loss, nats per token</text>',
        f'<text x="{LEFT}" y="{lower[0] - 8}" fill="#5a6572">distance of the loss from the first, '
        f"W=1, m=64</text>",
        f'<text x="{WIDTH - 24}" y="{HEIGHT - 12}" text-anchor="end" fill="#5a6572">optimizer '
        f"step, 1 to {count}</text>",
        "</svg>\n",
    ]
    return "\n".join(parts)


def grid(y: float, label: str) -> str:
    """Return a horizontal line with its value."""
    return (
        f'<line x1="{LEFT}" x2="{WIDTH - 24}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e6e9ee"/>'
        f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="#5a6572">{label}</text>'
    )


def line(points: list[tuple[int, float]], count: int, colour: str, stroke: float, dash: str) -> str:
    """Return one curve; x counts steps."""
    path = " ".join(
        f"{LEFT + (WIDTH - 24 - LEFT) * x / (count - 1):.1f},{y:.1f}" for x, y in points
    )
    return (
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{stroke}" '
        f'stroke-dasharray="{dash}"/>'
    )


if __name__ == "__main__":
    sys.exit(main())
