"""Lists of jobs: filters, orders, totals and groups at the api, over many jobs.

    python -m benchmarks.lists [--jobs 5000,100000] [--rounds 20] [--json FILE]

Each request is a page of 50 with its totals, answered by the application without a socket and
without its cache of answers. One of four jobs is a script; a train job has about 40 settings, and
each job that has started has ten series. One of a hundred jobs is live.

Not here: a list of a reader of some projects over HTTP (row 10 of ``benchmarks.service``).
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

from fastapi.testclient import TestClient
from sqlalchemy import insert, text
from uuid_utils import uuid7

from benchmarks.service.stores import Store, stores
from lockstep.api.app import create_app
from lockstep.api.settings import ApiSettings
from lockstep.domain.life.lifecycle import TERMINAL, JobState
from lockstep.domain.spec.job import JobSpec
from lockstep.domain.training.plan import plan_of
from lockstep.storage.db.database import Database
from lockstep.storage.db.dialects import table_of
from lockstep.storage.db.listing_tables import JobLabelRow, JobValueRow
from lockstep.storage.db.series_tables import ProgressRow, SeriesLatestRow
from lockstep.storage.db.tables import JobRow
from lockstep.storage.jobs import settings
from lockstep.storage.objects.blobs import BlobStore
from lockstep.storage.people import tokens

TOKEN: Final = "lockstep_of-the-benchmark"
DAY: Final = 86_400.0
AT_ONCE: Final = 1_000
SERIES: Final = ("train/loss", "val/loss", "train/lr", "score", *(f"m{n}/x" for n in range(6)))
REQUESTS: Final[dict[str, dict[str, Any]]] = {
    "newest": {},
    "oldest": {"sort": "created"},
    "by name": {"sort": "name"},
    "by duration": {"sort": "-duration"},
    "by GPUs": {"sort": "-gpus"},
    "by progress": {"sort": "progress"},
    "by lr": {"sort": "lr"},
    "by last val/loss": {"sort": "val/loss"},
    "by best val/loss": {"sort": "val/loss:min"},
    "a word": {"filter": "gpt"},
    "owner and GPUs": {"filter": "owner:person-3 gpus>4", "sort": "-created"},
    "lr": {"filter": "lr<2e-4", "sort": "-priority"},
    "val/loss": {"filter": "val/loss<1", "sort": "val/loss"},
    "label": {"filter": "label:mix", "sort": "name"},
    "all at once": {
        "filter": "owner:person-3 gpus>1 lr<1e-3 val/loss<2 label:mix",
        "sort": "val/loss:min",
    },
    "no job": {"filter": "owner:absent"},
    "no job by name": {"filter": "owner:absent", "sort": "name"},
    "matches nothing": {"filter": "val/loss<-1 lr>5", "sort": "val/loss"},
    "state": {"state": "running", "sort": "-val/loss"},
    "groups by owner": {"group": "owner", "sort": "val/loss:min"},
    "groups by label": {"group": "label:sweep"},
    "groups by lr": {"group": "lr", "sort": "val/loss"},
    "an unknown name": {"filter": "val/los<1"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", default="5000,100000", help="sizes of the lists")
    parser.add_argument("--rounds", type=int, default=20, help="of each request")
    parser.add_argument("--database", default="sqlite,postgresql")
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    options = parser.parse_args()
    found: list[dict[str, Any]] = []
    print(f"{'jobs':>8} {'database':12} {'request':20} {'p50 ms':>8} {'p95 ms':>8}")
    with stores(tuple(options.database.split(","))) as (all_, absent):
        for name, why in absent.items():
            print(f"{name}: {why}")
        for count in map(int, options.jobs.split(",")):
            for store in all_:
                with tempfile.TemporaryDirectory() as folder:
                    for row in measured(store, Path(folder), count, options.rounds):
                        found.append(row)
                        print(
                            f"{count:8,} {store.name:12} {row['request']:20} "
                            f"{row['p50']:8.1f} {row['p95']:8.1f}",
                            flush=True,
                        )
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def measured(store: Store, folder: Path, count: int, rounds: int) -> Iterator[dict[str, Any]]:
    """Yield the times of each request on one database."""
    urls = store.ours(folder / store.name)
    with ExitStack() as stack:
        database = stack.enter_context(closing(Database(*urls)))
        fill(database, count)
        with database.jobs() as session:
            tokens.ensure(session, TOKEN, name="benchmark", actor="ada")
        options = ApiSettings(
            database_url=urls[0],
            series_url=urls[1],
            broker_url=f"redis+socket://{folder}/none.sock",
            store=str(folder / "store"),
            rate_limit_requests=1_000_000,
        )
        app = create_app(options, database, BlobStore(str(folder / "store")), _Nobody())
        headers = {"Authorization": f"Bearer {TOKEN}"}
        http = stack.enter_context(TestClient(app, headers=headers))
        for name, asked in REQUESTS.items():
            milliseconds = []
            for _ in range(rounds + 2):
                app.state.parts.rendered.forget()
                began = time.perf_counter()
                response = http.get("/v1/jobs", params={"totals": "true", "limit": 50, **asked})
                milliseconds.append(1e3 * (time.perf_counter() - began))
                assert response.status_code in (200, 422), response.text
            timed = milliseconds[2:]
            p95 = statistics.quantiles(timed, n=20)[-1]
            yield {
                "jobs": count,
                "database": store.name,
                "request": name,
                "p50": statistics.median(timed),
                "p95": p95,
            }
        app.state.parts.following.join()


class _Nobody:
    """Publisher without receivers."""

    def publish(self, message: object) -> None: ...


def fill(database: Database, count: int) -> None:
    """Write jobs with their settings, labels, progress and newest points."""
    dice, at = random.Random(1337), time.time()
    kinds = [_kind(dice, number) for number in range(40)]
    for first in range(0, count, AT_ONCE):
        some = [_job(dice, kinds, at, n / count) for n in range(first, min(count, first + AT_ONCE))]
        with database.jobs() as session:
            for row, name in ((JobRow, "job"), (JobLabelRow, "labels"), (JobValueRow, "values")):
                rows = [each for one in some for each in one[name]]
                session.connection().execute(insert(table_of(row)), rows)
        with database.series() as session:
            for row, name in ((ProgressRow, "progress"), (SeriesLatestRow, "series")):
                rows = [each for one in some for each in one[name]]
                session.connection().execute(insert(table_of(row)), rows)
    with database.look_jobs() as look:
        if look.dialect.name == "postgresql":
            # As its own vacuum does within minutes; SQLite is never analysed.
            look.execute(text("VACUUM ANALYZE"))


def _kind(dice: random.Random, number: int) -> dict[str, Any]:
    """Return the columns of jobs with one spec, and its settings."""
    gpus, lr = dice.choice((1, 1, 2, 4, 8, 16)), 10 ** dice.uniform(-5, -2)
    body: dict[str, Any] = {
        "name": f"{dice.choice(('gpt', 'vit', 'digits'))}-{number}",
        "project": f"project-{dice.randrange(10)}",
        "resources": {"gpus": gpus},
    }
    if dice.random() < 0.25:
        command = ["train.py", "--lr", f"{lr:.3g}", "--width", "512", "--data", "c4"]
        body |= {"kind": "script", "script": {"command": command}}
    else:
        train = {"task": "image_classification", "batch": {"size": 64, "micro_size": 4}}
        body |= {"kind": "train", "train": {**train, "steps": 1_000, "optimizer": _optimizer(lr)}}
    spec = JobSpec.model_validate(body)
    plan, stored = plan_of(spec), spec.model_dump(mode="json")
    columns = {
        "name": spec.name,
        "project": spec.project,
        "kind": spec.kind,
        "devices": gpus,
        "document": body,
        "spec": stored,
        "plan": None if plan is None else plan.model_dump(mode="json"),
        "steps": None if plan is None else plan.steps,
        "retries_max": 3,
    }
    return {"columns": columns, "settings": settings.of_spec(stored)}


def _optimizer(lr: float) -> dict[str, Any]:
    return {"name": "adamw", "lr": lr}


def _job(dice: random.Random, kinds: list[Any], at: float, age: float) -> dict[str, Any]:
    kind, job_id = dice.choice(kinds), str(uuid7())
    live = (JobState.QUEUED, JobState.RUNNING)
    state = dice.choice(live if dice.random() < 0.01 else tuple(TERMINAL))
    created = at - 90 * DAY * (1 - age)
    started = None if state is JobState.QUEUED else created + 60
    labels = {key: dice.choice(("mix", "a", "b")) for key in ("sweep", "team")}
    job = {
        **kind["columns"],
        "id": job_id,
        "state": state,
        "priority": dice.randrange(100),
        "actor": f"person-{dice.randrange(20)}",
        "created_at": created,
        "started_at": started,
        "finished_at": created + dice.uniform(100, DAY) if state in TERMINAL else None,
        "attempt_count": 0 if started is None else 1,
    }
    value = dice.uniform(0.5, 3)
    series = [
        {"job_id": job_id, "name": name, "attempt": 1, "step": 900, "time": at}
        | {"value": value, "min": value - 0.2, "max": value + 4, "point_count": 900}
        for name in SERIES
    ]
    progress = {"job_id": job_id, "seq": 9, "attempt": 1, "step": dice.randrange(1, 1_000)}
    return {
        "job": [job],
        "labels": [{"job_id": job_id, "key": k, "value": v} for k, v in labels.items()],
        "values": [
            {"job_id": job_id, "key": key, "number": number, "text": words}
            for key, (number, words) in kind["settings"].items()
        ],
        "progress": [] if started is None else [progress],
        "series": [] if started is None else series,
    }


if __name__ == "__main__":
    main()
