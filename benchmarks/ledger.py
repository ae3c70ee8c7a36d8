"""Reads of a large ledger: the average of each user, which decisions take, and sums of the use.

    python -m benchmarks.ledger [--rows 300000] [--days 90] [--rounds 7] [--json FILE]

The rows are of 20 people in 10 projects. A decision reads the newest twenty days, a sum thirty.

Not here: the time of a decision (``benchmarks.scheduling``).
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from sqlalchemy import insert
from uuid_utils import uuid7

from benchmarks.service.stores import Store, stores
from lockstep.domain.people_views import UsageBy
from lockstep.domain.rights import EVERY
from lockstep.storage.control import usage
from lockstep.storage.db.clock import now
from lockstep.storage.db.database import Database
from lockstep.storage.db.people_tables import LedgerRow

DAY: Final = 86_400.0
ROWS_AT_ONCE: Final = 5_000


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--days", type=float, default=90.0, help="over which the rows are spread")
    parser.add_argument(
        "--rounds", type=int, default=7, help="of each figure; the table has medians"
    )
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    options = parser.parse_args()
    found: list[dict[str, Any]] = []
    print(f"{options.rows:,} rows of {options.days:g} days, in ms")
    with (
        tempfile.TemporaryDirectory() as folder,
        stores(("sqlite", "postgresql")) as (all_, absent),
    ):
        for name, why in absent.items():
            print(f"{name}: {why}")
        for store in all_:
            for row in measured(store, Path(folder), options.rows, options.days, options.rounds):
                found.append(row)
                print(f"{row['database']:12} {row['what']:16} {row['ms']:10.1f}", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def measured(
    store: Store, folder: Path, rows: int, days: float, rounds: int
) -> Iterator[dict[str, Any]]:
    """Yield the median time of each read on one database."""
    with closing(Database(*store.ours(folder / store.name))) as database:
        with database.read_jobs() as session:
            at = now(session)
        fill(database, at, rows, days)
        reads: dict[str, Callable[[Any], object]] = {
            "average": lambda session: usage.average(session, at)
        }
        for by in UsageBy:
            reads[f"use by {by}"] = lambda session, by=by: usage.totals(
                session, by, at - 30 * DAY, at, among=EVERY
            )
        for what, read in reads.items():
            seconds = []
            for _ in range(rounds):
                with database.read_jobs() as session:
                    began = time.perf_counter()
                    read(session)
                    seconds.append(time.perf_counter() - began)
            ms = 1e3 * statistics.median(seconds)
            yield {"database": store.name, "what": what, "rows": rows, "days": days, "ms": ms}


def fill(database: Database, at: float, rows: int, days: float) -> None:
    """Add rows of assignments that were released at random times."""
    dice = random.Random(1337)
    for first in range(0, rows, ROWS_AT_ONCE):
        values = [_row(dice, at, days) for _ in range(min(ROWS_AT_ONCE, rows - first))]
        with database.jobs() as session:
            session.execute(insert(LedgerRow), values)


def _row(dice: random.Random, at: float, days: float) -> dict[str, Any]:
    released, devices = at - dice.uniform(0, days * DAY), dice.choice((1, 1, 2, 4, 8))
    held = dice.expovariate(1 / 14_400)
    return {
        "assignment_id": str(uuid7()),
        "job_id": str(uuid7()),
        "job_name": "gpt",
        "attempt": 1,
        "project": f"project-{dice.randrange(10)}",
        "actor": f"person-{dice.randrange(20)}",
        "node_name": f"node-{dice.randrange(25):02}",
        "device_type": "H200",
        "devices": devices,
        "placed_at": released - held,
        "released_at": released,
        "productive": 0.9 * held * devices,
        "repeated": 0.04 * held * devices,
        "idle": 0.06 * held * devices,
    }


if __name__ == "__main__":
    main()
