"""Time of one scheduling decision: 1,000 nodes of 8 devices, 10,000 queued jobs.

Run ``python benchmarks/placement.py [--json FILE]``. Prints a table.

Three clusters: *empty* (as much as possible is placed), *busy* (random devices are free, so that
gangs wait and hold nodes) and *full* (nothing is free: the usual state, which every cycle repeats).

Not here: the cost of a cycle in the database.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import time
from pathlib import Path

from lockstep.domain.placement.decide import place
from lockstep.domain.placement.requests import Node, Placed, PlacementRequest

NODES, DEVICES, JOBS = 1_000, 8, 10_000


def cluster(dice: random.Random, share_free: float) -> list[Node]:
    kinds = ("NVIDIA H200", "NVIDIA L4")
    return [
        Node(
            f"node-{number:04d}",
            dict.fromkeys(range(DEVICES), kinds[number % 2]),
            frozenset(index for index in range(DEVICES) if dice.random() < share_free),
        )
        for number in range(NODES)
    ]


def queue(dice: random.Random) -> list[PlacementRequest]:
    return [
        PlacementRequest(
            job_id=f"job-{number:05d}",
            priority=dice.choice((0, 50, 50, 50, 100)),
            created_at=float(number),
            devices=(nodes := dice.choice((1, 1, 1, 4))) * dice.choice((1, 2, 4, 8)),
            nodes=dice.choice((nodes, None)),
            device_type=dice.choice((None, "NVIDIA H200", "NVIDIA L4")),
            avoid=frozenset({f"node-{dice.randrange(NODES):04d}"})
            if dice.random() < 0.02
            else frozenset(),
        )
        for number in range(JOBS)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    arguments = parser.parse_args()
    rows = []
    for name, share_free in (("empty", 1.0), ("busy", 0.4), ("full", 0.0)):
        dice = random.Random(1337)
        nodes, requests = cluster(dice, share_free), queue(dice)
        seconds = []
        for _ in range(arguments.rounds):
            start = time.perf_counter()
            decisions = place(requests, nodes, now=0.0)
            seconds.append(time.perf_counter() - start)
        placed = sum(isinstance(decision, Placed) for decision in decisions)
        rows.append({"cluster": name, "median_seconds": statistics.median(seconds), "max_seconds": max(seconds),
                     "placed": placed, "waiting": len(decisions) - placed})  # fmt: skip
        print(
            f"{name:6} median {rows[-1]['median_seconds']:.3f} s  max {max(seconds):.3f} s  "
            f"placed {placed:5}"
        )
    about = {"nodes": NODES, "devices_per_node": DEVICES, "jobs": JOBS, "rounds": arguments.rounds,
             "python": platform.python_version(), "machine": platform.machine()}  # fmt: skip
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"about": about, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
