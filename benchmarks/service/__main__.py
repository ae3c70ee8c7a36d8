"""Measure the service beside its peers and print one table.

    python -m benchmarks.service [--rows 1,3,5] [--rounds 5] [--database sqlite,postgresql] [--peers
    all|none]
                                 [--peers-dir DIR] [--before PYTHON] [--quick] [--json FILE]

Run it from the repository's root on an idle machine. A figure is a median over the rounds, in which
all contestants of a row take turns; see ``compare``. A row that fails reports the reason, the
others are measured, and the exit code is 1.

Not here: the rows themselves (``rows_*``).
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import traceback
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from benchmarks.service import rows_api, rows_idle, rows_jobs, rows_people, rows_series, table
from benchmarks.service.compare import Line, lines_of, rounds_of
from benchmarks.service.context import Context, Row
from benchmarks.service.environments import Environments
from benchmarks.service.sizes import QUICK, Sizes
from benchmarks.service.stores import stores

ROWS: Final[dict[str, tuple[Row, ...]]] = {
    "1": (rows_series.ingest,),
    "2": (rows_series.charts,),
    "3": (rows_api.submits,),
    "4": (rows_api.reads,),
    "5": (rows_jobs.one_true, rows_jobs.many_trues, rows_jobs.first_step),
    "6": (rows_jobs.whole_lives,),
    "7": (rows_jobs.step_time,),
    "8": (rows_idle.idle,),
    "9": (rows_people.beside_the_older,),
    "10": (rows_people.large_team,),
}
DATABASES: Final = ("sqlite", "postgresql")


def main() -> int:
    options = _options()
    # A signal to this process also ends its children.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    sizes = QUICK if options.quick else Sizes()
    if options.quick:
        print("--quick: this shows that every row runs; its figures mean nothing")
    report = Report(options.rounds)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lsb-")))
        peers = Environments(options.peers_dir or folder / "peers", wanted=options.peers == "all")
        found, absent = stack.enter_context(stores(options.database))
        context = Context(sizes, found, peers, folder, options.before)
        for name, why in absent.items():
            print(f"{name}: {why}")
        print(table.HEAD)
        for name in options.rows:
            for row in ROWS[name]:
                report.measure(name, row, context)
    if options.json is not None:
        about = {**table.machine(), "rounds": options.rounds, "quick": options.quick}
        document = {
            "about": about,
            "lines": [table.as_json(line) for line in report.lines],
            "rounds": report.samples,
        }
        options.json.write_text(
            json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )
    return int(report.failed)


class Report:
    """Results so far."""

    def __init__(self, rounds: int):
        self._rounds = rounds
        self.lines: list[Line] = []
        self.samples: list[dict[str, Any]] = []
        self.failed = False

    def measure(self, name: str, row: Row, context: Context) -> None:
        """Run one row: start, measure, stop, print."""
        try:
            with ExitStack() as stack:
                bench = row(context, stack)
                found = rounds_of(bench, self._rounds)
            measured = lines_of(name, bench, found)
            self.samples += table.rounds_as_json(name, found)
        except Exception as error:  # noqa: BLE001 -- the other rows are still measured
            traceback.print_exc()
            self.failed = True
            measured = [
                Line(name, row.__name__.replace("_", " "), "", None, None, note=f"failed: {error}")
            ]
        for line in measured:
            print(table.printed(line), flush=True)
        self.lines += measured


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.service", description="The service beside its peers."
    )
    parser.add_argument(
        "--rows", type=_listed(tuple(ROWS)), default=list(ROWS), help="such as 1,3 (default: all)"
    )
    parser.add_argument(
        "--rounds", type=int, default=5, help="after one that warms up and is dropped"
    )
    parser.add_argument("--database", type=_listed(DATABASES), default=list(DATABASES))
    parser.add_argument("--peers", choices=("all", "none"), default="all")
    parser.add_argument(
        "--peers-dir", type=Path, help="keep the peers' environments here, and use what is there"
    )
    parser.add_argument(
        "--before", type=Path, help="python of an older installation, for rows 4 and 9"
    )
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes, to see that every row runs"
    )
    parser.add_argument("--json", type=Path, help="also write every round's figures to this file")
    return parser.parse_args()


def _listed(allowed: tuple[str, ...]) -> Any:
    def read(text: str) -> list[str]:
        words = text.split(",")
        if unknown := [word for word in words if word not in allowed]:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(allowed)}")
        return words

    return read


if __name__ == "__main__":
    sys.exit(main())
