"""Measure engines against the contract and print one table.

    python -m benchmarks.conformance [--engine raw --engine lockstep …] [--items C1,C4]
    [--world-size 1,2] [--json FILE]

The default of ``--engine`` is every installed engine. ``--engine package.module:Class`` measures an
adapter of your own (see ``benchmarks.conformance.engines.base``). With a single engine, the exit
code is 1 if an item that the engine supports does not hold. With several, it is 0.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import sys
import time
from pathlib import Path

import torch

from benchmarks.conformance import table
from benchmarks.conformance.checks import ITEMS
from benchmarks.conformance.engines import ENGINES, engine_named
from benchmarks.conformance.gang import RUN_SECONDS, RankPool


def main(arguments: list[str] | None = None) -> int:
    """Run the kit and return the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        engines = [engine_named(name) for name in options.engine or ENGINES]
    except (ValueError, ImportError) as error:
        parser.error(str(error))
    for engine in engines:
        if engine.missing():
            sys.stderr.write(f"{engine.name}: left out, {engine.missing()}\n")
    there = [engine for engine in engines if not engine.missing()]
    needed = {module for each in there for module in (each.needs, type(each).__module__) if module}
    gang = RankPool(options.seconds, modules=needed)
    items = [item for item in ITEMS if item.number in options.items] if options.items else ITEMS
    columns = {}
    for engine in there:
        started = time.monotonic()
        columns[engine.name] = table.findings(engine, gang, options.world_size, items)
        sys.stderr.write(f"{engine.name}: {time.monotonic() - started:.0f} s\n")
    sys.stdout.write(table.text(columns, items) + "\n")
    if options.json is not None:
        content = {"about": about(options.world_size), "engines": table.document(columns, items)}
        options.json.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    wrong = any(
        found.verdict in {"fail", "hang"} for column in columns.values() for found in column
    )
    return int(wrong and len(columns) == 1)


def about(world_sizes: tuple[int, ...]) -> dict[str, object]:
    """Return the versions and the machine of the measurement."""
    versions = {}
    for name in ("torch", "accelerate", "lightning"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {"python": platform.python_version(), "world_sizes": list(world_sizes), **versions, (
        "threads"): 1,
            "machine": platform.machine(), "gloo": torch.distributed.is_gloo_available()}  # fmt: skip


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="benchmarks.conformance", description="Measure engines against the contract."
    )
    parser.add_argument(
        "--engine", action="append", metavar="NAME", help=f"{', '.join(ENGINES)}, or module:Class"
    )
    parser.add_argument(
        "--items",
        type=lambda words: words.split(","),
        help=(
            f"numbers of the items to check, of "
            f"{', '.join(dict.fromkeys(item.number for item in ITEMS))} (default: all)"
        ),
    )
    parser.add_argument(
        "--world-size",
        type=lambda words: tuple(int(word) for word in words.split(",")),
        default=(1, 2),
        help="numbers of ranks to use (default: 1,2)",
    )
    parser.add_argument("--seconds", type=float, default=RUN_SECONDS, help="deadline of each run")
    parser.add_argument("--json", type=Path, help="also write the findings to this file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
