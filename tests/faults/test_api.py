"""Death of the api and of its connections: every submit is one job (F5), the client reports (F33).

Not here: the database under it (``test_outages``), and lost notifications (``test_broker``).
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import func, select

from lockstep.client.api import Client
from lockstep.client.errors import RefusedError
from lockstep.storage.db.database import Database
from lockstep.storage.db.tables import EventRow, JobRow
from tests.harness.databases import Urls
from tests.harness.drills import Drill, fresh_seed
from tests.harness.network import RETRY_AFTER_SECONDS, UNAVAILABLE, WAYS, Wire, by_chance
from tests.harness.plane import PATIENCE_SECONDS, script
from tests.harness.processes import Program, until

SEED: Final = int(os.environ.get("LOCKSTEP_TEST_SEED", "5"))
REFUSED: Final = "refused"
REFUSED_SECONDS: Final = 0.4
SAYS: Final = {REFUSED: "connection refused", UNAVAILABLE: "it answered 503"}
"""Reason as the client reports it; of a broken connection, that it broke."""


class Kept:
    """An api that is restarted after each death; it sometimes dies before it answers a submit."""

    def __init__(self, program: Program, chance: random.Random, *, rate: float) -> None:
        self.program, self._chance, self._rate = program, chance, rate
        self.deaths = 0
        self._over = False
        self._start()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def port(self) -> int:
        return int(self.program.url.rpartition(":")[2])

    def kill(self) -> None:
        assert self.program.process is not None
        self.program.process.kill()

    def close(self) -> None:
        self._over = True
        while self._thread.is_alive():  # another may just have been started
            self.kill()
            self._thread.join(0.1)

    def _start(self) -> None:
        seed = str(self._chance.randrange(2**32))
        self.program.module = ("tests.harness.faults.dying", "answer", str(self._rate), seed)
        # It may die at its first request, because many requests wait for it.
        with contextlib.suppress(AssertionError):
            self.program.start()

    def _run(self) -> None:
        while True:
            assert self.program.process is not None
            self.program.process.wait()
            if self._over:
                return
            self.deaths += 1
            self._start()


def test_every_submit_is_one_job_despite_api_and_connection_failures(
    sqlite_urls: Urls, tmp_path: Path, drill: Drill
) -> None:
    submit_under_fire(sqlite_urls, tmp_path, drill, wanted=40, at_once=10, kills=1, seed=SEED)


@pytest.mark.drill
@pytest.mark.timeout(600)
def test_five_hundred_submits_are_five_hundred_jobs(
    database_urls: Urls, tmp_path: Path, drill: Drill
) -> None:
    seed = fresh_seed()
    submit_under_fire(database_urls, tmp_path, drill, wanted=500, at_once=50, kills=8, seed=seed)


def submit_under_fire(
    urls: Urls, folder: Path, drill: Drill, *, wanted: int, at_once: int, kills: int, seed: int
) -> None:
    kind = urls[0].partition(":")[0].partition("+")[0]
    chance = drill.begin("F5", f"{kind}: SIGKILL the api under {wanted} submits", seed=seed)
    program = Program(folder, LOCKSTEP_DATABASE_URL=urls[0], LOCKSTEP_SERIES_URL=urls[1])
    kept = Kept(program, chance, rate=0.02)
    answered: dict[str, str] = {}
    moments = sorted(chance.sample(range(wanted), kills))
    with contextlib.closing(kept), Wire(kept.port, by_chance(chance, 0.03)) as wire:

        def submit_some(names: list[str]) -> None:
            options = {"patience_seconds": 2 * PATIENCE_SECONDS, "say": lambda _line: None}
            with Client(wire.url, program.token, **options) as client:
                for name in names:
                    answered[name] = client.submit(
                        script("true", name=name), idempotency_key=name
                    ).id

        names = [f"job-{number}" for number in range(wanted)]
        with ThreadPoolExecutor(at_once) as pool:
            done = [pool.submit(submit_some, names[worker::at_once]) for worker in range(at_once)]
            for moment in moments:
                until(
                    lambda moment=moment: len(answered) >= moment,
                    2 * PATIENCE_SECONDS,
                    f"{moment} answers",
                )
                kept.kill()
            for each in done:
                each.result()
    drill.injected = kept.deaths + sum(wire.broken.values())
    print(f"seed {seed}: {kept.deaths} deaths of the api, connections broken {dict(wire.broken)}")
    database = Database(*urls)
    with database.read_jobs() as session:
        jobs = dict(session.execute(select(JobRow.id, JobRow.name)).all())
        submitted = (
            select(EventRow.job_id, func.count())
            .where(EventRow.kind == "submitted")
            .group_by(EventRow.job_id)
        )
        events = dict(session.execute(submitted).all())
    database.close()
    assert sorted(answered) == sorted(names)
    drill.lost = len(set(answered.values()) - set(jobs))
    drill.doubled = len(jobs) - wanted
    assert jobs == {job: name for name, job in answered.items()}
    assert events == dict.fromkeys(jobs, 1)


@pytest.mark.drill
def test_the_client_retries_safe_requests_with_a_message(
    sqlite_urls: Urls, tmp_path: Path, drill: Drill
) -> None:
    chance = drill.begin(
        "F33",
        "faults of the api as the client sees them",
        seed=fresh_seed(),
    )
    program = Program(
        tmp_path, LOCKSTEP_DATABASE_URL=sqlite_urls[0], LOCKSTEP_SERIES_URL=sqlite_urls[1]
    )
    program.start()
    fault = OneFault()
    said: list[str] = []
    try:
        with (
            Wire(lambda: int(program.url.rpartition(":")[2]), fault) as wire,
            Client(
                wire.url, program.token, patience_seconds=PATIENCE_SECONDS, say=said.append
            ) as client,
        ):
            known = [
                client.submit(script("true", name=f"known-{number}")).id for number in range(100)
            ]
            calls = {
                "submit": lambda number: client.submit(script("true", name=f"new-{number}")),
                "read": lambda _number: client.job(chance.choice(known)),
                "list": lambda _number: client.jobs(limit=5),
                "cancel": lambda number: client.cancel(known[number]),
            }
            plan = [(way, what) for way in (*WAYS, UNAVAILABLE, REFUSED) for what in calls] * 4
            chance.shuffle(plan)
            for number, (way, what) in enumerate(plan):
                said.clear()
                with fault.injected(wire, way):
                    began = time.monotonic()
                    calls[what](number)
                    took = time.monotonic() - began
                drill.injected += 1
                drill.recoveries.append(took)
                assert len(said) == 1, f"{way}, {what}: {said}"
                assert SAYS.get(way, "the connection broke") in said[0]
                assert way != UNAVAILABLE or took >= RETRY_AFTER_SECONDS
            said.clear()
            with pytest.raises(RefusedError):
                client.submit({"name": "without a kind"})
            assert not said, "what is refused is not tried again"
            check_jobs(client, drill, known, plan)
    finally:
        program.end(signal.SIGKILL)


def check_jobs(client: Client, drill: Drill, known: list[str], plan: list[tuple[str, str]]) -> None:
    """Check that there is one job for each submit, and one event for each cancel."""
    jobs = {job.id: job for job in client.jobs(limit=500).items}
    wanted = sorted(f"new-{number}" for number, (_way, what) in enumerate(plan) if what == "submit")
    new = sorted(job.name for job in jobs.values() if job.id not in known)
    drill.lost, drill.doubled = len(set(wanted) - set(new)), len(new) - len(set(new))
    assert new == wanted
    cancelled = {known[number] for number, (_way, what) in enumerate(plan) if what == "cancel"}
    assert {job for job in jobs if jobs[job].state == "cancelled"} == cancelled


class OneFault:
    """Fault of the next connection: once, and none after it."""

    def __init__(self) -> None:
        self._due: str | None = None

    def __call__(self, passing: str) -> str | None:
        due = self._due
        if due is None or (passing == "request") != (due in (WAYS[0], UNAVAILABLE)):
            return None
        self._due = None
        return due

    @contextlib.contextmanager
    def injected(self, wire: Wire, way: str) -> Iterator[None]:
        if way != REFUSED:
            self._due = way
            yield
            assert self._due is None, f"{way}: nothing passed"
            return
        wire.refuse()
        back: Any = threading.Timer(REFUSED_SECONDS, wire.listen)
        back.start()
        yield
        back.join()
