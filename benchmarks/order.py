"""Cost of the order of samples: nanoseconds per sample, and the time to the first one.

    python benchmarks/order.py [--json FILE]

The order is a function (``engine.data.order``), so the first sample of a huge dataset costs as much
as any other.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from lockstep.engine.data.order import EpochOrder, samples

SIZES = (1_000, 65_537, 1_000_000, 100_000_000)
SAMPLES = 20_000
REPEATS = 5


def measure(size: int) -> dict[str, float]:
    """Return the best of several repeats, so that other work on the machine has little effect."""
    firsts, each = [], []
    for repeat in range(REPEATS):
        started = time.perf_counter_ns()
        EpochOrder(size, seed=1337, epoch=repeat).samples(0, 1)
        firsts.append(time.perf_counter_ns() - started)
        started = time.perf_counter_ns()
        for _ in samples(0, SAMPLES, size=size, seed=repeat):
            pass
        each.append((time.perf_counter_ns() - started) / SAMPLES)
    return {"size": size, "first_sample_ns": min(firsts), "per_sample_ns": min(each)}


def main() -> None:
    parser = argparse.ArgumentParser(description="What the order of samples costs.")
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    options = parser.parse_args()
    rows = [measure(size) for size in SIZES]
    print(f"{'samples':>12} {'first sample':>14} {'each sample':>13}")
    for row in rows:
        print(
            f"{row['size']:>12,} {row['first_sample_ns'] / 1e3:>11.1f} µs "
            f"{row['per_sample_ns'] / 1e3:>10.2f} µs"
        )
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
