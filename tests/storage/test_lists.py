"""Lists of jobs: filters, orders, pages and totals agree with plain Python over random jobs."""

from __future__ import annotations

import base64
import json
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import delete, select, update

from lockstep.domain import limits
from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.life.lifecycle import JobState
from lockstep.domain.listing.columns import Sort
from lockstep.domain.listing.tokens import TokenError, tokens_of
from lockstep.domain.rights import EVERY, Within
from lockstep.domain.training.metrics import StepValues
from lockstep.storage.db.database import Database
from lockstep.storage.db.listing_tables import JobValueRow
from lockstep.storage.db.series_tables import SeriesLatestRow
from lockstep.storage.db.tables import JobRow
from lockstep.storage.jobs import listing, removal, settings, summaries
from lockstep.storage.jobs.conditions import condition_of
from lockstep.storage.jobs.names import Names
from lockstep.storage.objects.blobs import BlobStore
from lockstep.storage.series import series
from tests.harness.databases import Urls
from tests.storage import lists, scenes
from tests.storage.lists import NOW, Job

JOBS = 60
NLP = Within(frozenset({"nlp"}))
Holds = Callable[[Job], bool]


@pytest.fixture(scope="module")
def filled(module_urls: Urls) -> Iterator[tuple[Database, list[Job]]]:
    database = Database(*module_urls)
    yield database, lists.make(database, JOBS, seed=37)
    database.close()


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take all durations at ``NOW``, on each page."""
    plain = listing.Tables
    monkeypatch.setattr(listing, "Tables", lambda _now=None: plain(NOW))
    monkeypatch.setattr(summaries, "Tables", lambda _now=None: plain(NOW))
    listing._placing.cache_clear()


def query(
    database: Database, text: str = "", sort: str = "-created", among: Within = EVERY
) -> listing.JobQuery:
    names = Names(database, among)
    conditions = tuple(
        condition_of(token, names.column(token.field) if token.field else None)
        for token in tokens_of(text)
    )
    column = names.column(sort.removeprefix("-"))
    return listing.JobQuery(conditions=conditions, sort=Sort(column, sort.startswith("-")))


def pages(
    database: Database, choice: listing.JobQuery, *, among: Within = EVERY, limit: int = 7
) -> list[str]:
    """Return the ids of all pages; the totals must agree with them."""
    seen, cursor = [], None
    while True:
        asked = replace(choice, cursor=cursor)
        found = summaries.listed(database, asked, among=among, limit=limit, with_totals=True)
        seen += [mark.id for mark in found.marks]
        cursor = found.cursor
        if cursor is None:
            assert found.total == len(seen)
            return seen


SORTS = (
    "created started finished name state owner project kind gpus priority attempts step progress "
    "duration age lr setting:args.lr train.precision val/loss val/loss:min metric:score:max"
).split()
WHOLE = {
    "train.precision": "setting:train.precision",
    "val/loss": "metric:val/loss:last",
    "val/loss:min": "metric:val/loss:min",
}


@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize("sort", [each for name in SORTS for each in (name, f"-{name}")])
def test_pages_are_in_the_order_of_plain_python(
    filled: tuple[Database, list[Job]], sort: str
) -> None:
    database, known = filled
    name = sort.removeprefix("-")
    expected = lists.ordered(known, WHOLE.get(name, name), down=sort.startswith("-"))
    assert pages(database, query(database, sort=sort)) == expected


def _day(days: float) -> str:
    return f"{datetime.fromtimestamp(NOW - days * 86_400, UTC):%Y-%m-%d}"


def _start(days: float) -> float:
    return datetime.fromisoformat(f"{_day(days)}T00:00+00:00").timestamp()


def _number(column: str, holds: Callable[[float], bool]) -> Holds:
    def of_job(job: Job) -> bool:
        value = job.value(column)
        return value is not None and holds(value)

    return of_job


TRAIN_LR = "setting:train.optimizer.lr"
TOKENS: dict[str, Holds] = {
    "GPT": lambda job: "gpt" in job.name,
    '"t_1."': lambda job: "t_1." in job.name,
    "name:*net*": lambda job: "net" in job.name,
    "owner:bob": lambda job: job.owner == "Bob",
    "owner:zoë": lambda job: job.owner == "zoë",
    "owner:*A*": lambda job: "a" in job.owner,
    "project!=nlp": lambda job: job.project != "nlp",
    "project:nlp,vision": lambda job: job.project in ("nlp", "vision"),
    "state:running,Queued": lambda job: job.state in ("running", "queued"),
    "state!=*ed": lambda job: not job.state.endswith("ed"),
    "kind:script": lambda job: job.kind == "script",
    "label:MIX": lambda job: "mix" in job.labels.values(),
    "label:sweep": lambda job: "sweep" in job.labels,
    "label:team=a,b": lambda job: job.labels.get("team") in ("a", "b"),
    "label:team!=a": lambda job: job.labels.get("team") != "a",
    "gpus>4": lambda job: job.gpus > 4,
    "gpus:1,8": lambda job: job.gpus in (1, 8),
    "gpus!=2": lambda job: job.gpus != 2,
    "priority<=2": lambda job: job.priority <= 2,
    "attempts>=2": lambda job: job.attempts >= 2,
    f"created<{_day(15)}": lambda job: job.created < _start(15),
    f"created:{_day(15)}": lambda job: 0 <= job.created - _start(15) < 86_400,
    "created>=2026-09-10T12:00+02:00": lambda job: job.created >= 1_789_034_400,
    "age<12d12h": lambda job: job.age < 12.5 * 86_400,
    "duration>20h": _number("duration", lambda seconds: seconds > 72_000),
    "duration<=129600": _number("duration", lambda seconds: seconds <= 129_600),
    "progress>50%": _number("progress", lambda share: share > 0.5),
    "progress:100%": _number("progress", lambda share: share == 1),
    "step<10": _number("step", lambda step: step < 10),
    "lr<1e-3": _number("lr", lambda lr: lr < 1e-3),
    "train.optimizer.lr:1e-4,0.01": _number(TRAIN_LR, lambda lr: lr in (1e-4, 0.01)),
    "lr!=0.001": lambda job: job.value("lr") != 0.001,
    "args.lr>=0.001": _number("setting:args.lr", lambda lr: lr >= 0.001),
    "setting:args.lr=1e-2": _number("setting:args.lr", lambda lr: lr == 0.01),
    "precision:BF16": lambda job: job.settings.get("train.precision") == "bf16",
    "precision=b*": lambda job: job.settings.get("train.precision") == "bf16",
    "args.fast:true": lambda job: job.kind == "script",
    "val/loss<2": _number("metric:val/loss:last", lambda loss: loss < 2),
    "val/loss:min<=1": _number("metric:val/loss:min", lambda loss: loss <= 1),
    "score>1": _number("metric:score:last", lambda score: score > 1),
    "metric:score:max!=2": lambda job: job.value("metric:score:max") != 2,
}
CHANCE = random.Random(5)
PAIRS = [tuple(CHANCE.sample(list(TOKENS), CHANCE.choice((2, 3)))) for _ in range(25)]


@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize("texts", [*((text,) for text in TOKENS), *PAIRS], ids=" ".join)
def test_a_filter_holds_for_the_jobs_of_plain_python(
    filled: tuple[Database, list[Job]], texts: tuple[str, ...]
) -> None:
    database, known = filled
    expected = [job for job in known if all(TOKENS[text](job) for text in texts)]
    found = pages(database, query(database, " ".join(texts), sort="priority"))
    assert found == lists.ordered(expected, "priority", down=False)


@pytest.mark.parametrize("seed", range(4))
def test_jobs_are_found_by_their_ids(filled: tuple[Database, list[Job]], seed: int) -> None:
    database, known = filled
    chance = random.Random(seed)
    whole = [job.id for job in chance.sample(known, 20)]
    ends = [job.id[-8:].upper() for job in chance.sample(known, 3)] if seed % 2 else []
    wanted = [*whole, *ends, "00000000-0000-7000-8000-000000000000"]
    chosen = {job.id for job in known if any(job.id.endswith(end.lower()) for end in wanted)}
    ids = ",".join(chance.sample(wanted, len(wanted)))
    for text, within in ((f"id:{ids}", chosen), (f"id!={ids}", {job.id for job in known} - chosen)):
        assert pages(database, query(database, text)) == sorted(within, reverse=True)
    few = Within(frozenset({"nlp"}))
    readable = {job.id for job in known if job.project == "nlp"}
    found = pages(database, query(database, f"id:{ids}"), among=few)
    assert found == sorted(chosen & readable, reverse=True)


def test_as_many_ids_are_named_as_can_be_compared() -> None:
    ids = [f"{number:036d}" for number in range(limits.SERIES_JOBS_MAX + 1)]
    (token,) = tokens_of(f"id:{','.join(ids[:-1])}")
    assert len(token.values) == limits.SERIES_JOBS_MAX
    for text in (f"id:{','.join(ids)}", f"owner:{','.join(ids[:51])}"):
        with pytest.raises(LockstepError, match="expected at most"):
            tokens_of(text)


@pytest.mark.usefixtures("frozen")
@pytest.mark.parametrize("text", ["", "gpus>1", "val/loss<3"])
@pytest.mark.parametrize("group", ["owner", "project", "label:team", "lr", "args.lr"])
def test_totals_and_groups_count_what_plain_python_counts(
    filled: tuple[Database, list[Job]], text: str, group: str
) -> None:
    database, known = filled
    chosen = [job for job in known if not text or TOKENS_OF[text](job)]
    states = (JobState.RUNNING, JobState.FAILED, JobState.STARTING)
    shown = [job for job in chosen if job.state in states]
    by = Names(database, EVERY).column(group)
    choice = replace(query(database, text, sort="-val/loss:max"), states=states)
    found = summaries.listed(database, choice, among=EVERY, limit=3, with_totals=True, group=by)
    assert found.totals is not None
    assert found.totals.states == Counter(job.state for job in chosen)
    assert (found.total, found.totals.gpus_in_use) == (len(shown), _in_use(shown))
    groups: dict[str | None, list[Job]] = {}
    for job in shown:
        groups.setdefault(_group(job, group), []).append(job)
    assert found.groups_total == len(groups)
    for value, jobs in groups.items():
        whole = found.groups[value]
        assert whole.states == Counter(job.state for job in jobs)
        assert (whole.total, whole.gpus_in_use) == (len(jobs), _in_use(jobs))
        most = [job.value("metric:val/loss:max") for job in jobs]
        assert whole.best == max((each for each in most if each is not None), default=None)
    sizes = [each.total for each in found.groups.values()]
    assert sizes == sorted(sizes, reverse=True)


TOKENS_OF = {
    "gpus>1": lambda job: job.gpus > 1,
    "val/loss<3": _number("metric:val/loss:last", lambda loss: loss < 3),
}


def _in_use(jobs: list[Job]) -> int:
    return sum(job.gpus for job in jobs if job.state in ("running", "starting"))


def _group(job: Job, group: str) -> str | None:
    if group == "label:team":
        return job.labels.get("team")
    value = job.value({"args.lr": "setting:args.lr"}.get(group, group))
    return None if value is None else str(value)


@pytest.mark.parametrize("sort", ["-priority", "lr", "val/loss:min", "owner"])
def test_pages_skip_and_repeat_nothing_while_jobs_come_change_and_go(
    database: Database, sort: str
) -> None:
    known = lists.make(database, 20, seed=3)
    choice, cursor, seen = query(database, sort=sort), None, []
    names = {job.id for job in known}
    while True:
        asked = replace(choice, cursor=cursor)
        found = summaries.listed(database, asked, among=EVERY, limit=4)
        seen += [mark.id for mark in found.marks]
        cursor = found.cursor
        if cursor is None:
            break
        lists.make(database, 2, seed=len(seen))
        # The last job of the page is deleted, and the one before it goes to the front.
        with database.jobs() as session:
            session.execute(update(JobRow).where(JobRow.id == seen[-2]).values(priority=99))
            session.execute(delete(JobRow).where(JobRow.id == seen[-1]))
    assert len(seen) == len(set(seen))
    assert names <= set(seen)


def test_other_projects_neither_count_nor_lend_their_names(
    filled: tuple[Database, list[Job]],
) -> None:
    database, known = filled
    mine = [job for job in known if job.project == "nlp"]
    for text in ("", "gpus>1", "val/loss<3"):
        expected = [job for job in mine if not text or TOKENS_OF[text](job)]
        choice = query(database, text, "val/loss", NLP)
        assert set(pages(database, choice, among=NLP)) == {job.id for job in expected}
    choice = query(database, among=NLP)
    by = Names(database, NLP).column("project")
    found = summaries.listed(database, choice, among=NLP, limit=3, group=by)
    assert set(found.groups) == {"nlp"}
    secret = scenes.submit(database, project="vision", env={"SECRET_MODE": "1"})
    nothing = Within(frozenset({"none"}))
    try:
        assert Names(database, EVERY).column("SECRET_MODE").name == "env.SECRET_MODE"
        for name, among in (("SECRET_MODE", NLP), ("lr", nothing), ("val/loss", nothing)):
            with pytest.raises(TokenError) as refusal:
                Names(database, among).column(name)
            assert refusal.value.next_step == ""
    finally:
        with database.jobs() as session:
            session.execute(delete(JobValueRow).where(JobValueRow.job_id == secret))
            session.execute(delete(JobRow).where(JobRow.id == secret))


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("gpu", "gpus"),
        ("val/los", "val/loss"),
        ("ownr", "owner"),
        ("optimiser", ""),
        ("metric:loss", "train/loss or val/loss"),
        ("setting:precison", "train.precision"),
    ],
)
def test_an_unknown_name_is_refused_with_near_ones(
    filled: tuple[Database, list[Job]], name: str, near: str
) -> None:
    database, _known = filled
    with pytest.raises(TokenError) as refusal:
        Names(database, EVERY).column(name)
    assert name.rpartition(":")[2] in refusal.value.message
    assert near in refusal.value.next_step


def test_a_name_that_means_several_settings_is_refused_with_them(
    filled: tuple[Database, list[Job]],
) -> None:
    database, _known = filled
    with pytest.raises(TokenError) as refusal:
        Names(database, EVERY).column("setting:name")
    for path in ("train.optimizer.name", "train.schedule.name", "train.strategy.name"):
        assert path in refusal.value.next_step


@pytest.mark.parametrize("sort", ["name", "val/loss", "duration", "lr"])
def test_a_cursor_of_another_order_or_none_is_refused(
    filled: tuple[Database, list[Job]], sort: str
) -> None:
    database, known = filled
    choice = query(database, sort=sort)
    good = summaries.listed(database, choice, among=EVERY, limit=2).cursor
    assert good is not None
    other = summaries.listed(database, query(database, sort="-gpus"), among=EVERY, limit=2).cursor
    forged = [
        base64.urlsafe_b64encode(json.dumps([str(choice.sort), 1, keys, known[0].id]).encode())
        for keys in ([], [[]], [True], ["\ud800"], [{}], [10**400, 1], [math.nan], [None] * 3)
    ]
    texts = [
        good[:-9],
        good + "A",
        known[0].id,
        "x" * 40,
        other,
        *(each.decode() for each in forged),
    ]
    for text in texts:
        with pytest.raises(LockstepError) as refusal:
            summaries.listed(database, replace(choice, cursor=text), among=EVERY, limit=2)
        assert refusal.value.code is ErrorCode.INVALID


def test_extremes_are_those_of_all_points(database: Database) -> None:
    scenes.add_node(database)
    claim = scenes.start(database, scenes.submit(database))
    chance, seen = random.Random(1), []
    for offset, size in enumerate((1, 3, 200, 700, 2)):
        values = [chance.choice((math.nan, math.inf, chance.uniform(-5, 5))) for _ in range(size)]
        first = len(seen)
        records = [StepValues(first + at, NOW, {"m": value}) for at, value in enumerate(values)]
        with database.series() as session:
            assert series.append(
                session,
                assignment_id=claim.assignment_id,
                token=claim.token,
                offset_before=offset,
                offset_after=offset + 1,
                records=records,
            )
        seen += values
        numbers = [value for value in seen if math.isfinite(value)]
        with database.read_series() as session:
            row = session.scalars(select(SeriesLatestRow)).one()
        assert (row.min, row.max) == (min(numbers, default=None), max(numbers, default=None))


def test_the_settings_of_a_job_are_its_leaves_and_arguments() -> None:
    spec = {
        "name": "x",
        "labels": {"a": "b"},
        "resources": {"gpus": 4, "gpu_type": None},
        "train": {
            "optimizer": {"lr": 3e-4, "betas": [0.9, 0.95]},
            "compile": False,
            "task_args": {},
        },
        "script": {"command": ["t.py", "--lr", "1e-3", "-v", "--a=b", "k=2", "--off", "--", "c"]},
        "env": {"SIZE": "12", "NOTE": "é" * 300, "NAN": "nan"},
    }
    assert settings.of_spec(spec) == {
        "train.optimizer.lr": (3e-4, None),
        "train.optimizer.betas": (None, "[0.9, 0.95]"),
        "train.compile": (None, "false"),
        "args.lr": (1e-3, "1e-3"),
        "args.v": (None, "true"),
        "args.a": (None, "b"),
        "args.k": (2.0, "2"),
        "args.off": (None, "true"),
        "env.SIZE": (12.0, "12"),
        "env.NOTE": (None, "é" * 255),
        "env.NAN": (None, "nan"),
    }
    many = {"env": {f"V{number:04}": "1" for number in range(1_000)}}
    assert len(settings.of_spec(many)) == settings.VALUES_MAX


def test_a_deleted_job_leaves_no_settings(database: Database, tmp_path: Path) -> None:
    kept, gone = scenes.submit(database), scenes.submit(database)
    with database.jobs() as session:
        session.execute(update(JobRow).values(state=JobState.FAILED))
        assert removal.mark(session, gone, among=EVERY)
    assert removal.finish(database, BlobStore(str(tmp_path)), gone)
    with database.read_jobs() as session:
        assert set(session.scalars(select(JobValueRow.job_id))) == {kept}
