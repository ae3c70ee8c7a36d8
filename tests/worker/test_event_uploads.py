"""Effects of the engine's events under faults. Real databases; no agent."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from pathlib import Path
from unittest import mock

import pytest

from lockstep.domain import limits
from lockstep.domain.spec.reading import read_spec
from lockstep.storage.attempts import attempts, checkpoints, events, nodes
from lockstep.storage.db.database import Database
from lockstep.storage.jobs import jobs
from lockstep.storage.objects.blobs import BlobStore
from lockstep.storage.series import streams
from lockstep.system.redaction import Redactor
from lockstep.system.untrusted import Untrusted
from lockstep.worker.folders import Folder
from lockstep.worker.upload.events import effects as event_effects
from lockstep.worker.upload.events import event_limits
from lockstep.worker.upload.events.event_uploader import EventUploader
from lockstep.worker.upload.stream import Stream


class EndpointError(Exception):
    """Error as a library of a remote store raises it: not an OSError."""


class RefusingStore(BlobStore):
    """Store that refuses all writes."""

    def __init__(self, url: str, error: Exception):
        super().__init__(url)
        self._error = error

    def put_checkpoint(self, files: Untrusted, folder: str, key: str, sha256: str) -> None:
        raise self._error


@pytest.fixture
def stream(database: Database) -> Stream:
    """Return a claimed attempt with an open stream."""
    document = {"name": "test", "kind": "script", "script": {"command": ["true"]}}
    with database.jobs() as session:
        nodes.register(session, "n", [nodes.DeviceInfo(0, "cpu", "cpu")], version="1", boot_id="b")
        job, _ = jobs.create(
            session, document=document, spec=read_spec(document), plan=None, actor="test"
        )
        placed = attempts.place(session, job.id, (("n", (0,)),), lease_seconds=60)
        assert placed is not None
        claim = attempts.claim(
            session, placed.assignments[0].assignment_id, "n", lease_seconds=60, rendezvous_port=1
        )
        assert claim is not None
    found = Stream(claim.assignment_id, claim.job_id, claim.attempt_number, claim.token)
    with database.series() as session:
        assert streams.open_stream(session, streams.Writer(*found))
    return found


@pytest.fixture
def folder(tmp_path: Path, stream: Stream) -> Folder:
    made = Folder(tmp_path / stream.assignment_id)
    made.create()
    return made


def _reporter(
    database: Database, blobs: BlobStore, folder: Folder, stream: Stream
) -> EventUploader:
    return EventUploader(
        database, blobs, folder, stream, node_name="n", is_script=False, keep_last=3
    )


def _say(to: Folder, kind: str, /, **data: object) -> None:
    with to.file("spool/events.jsonl").open("a") as file:
        file.write(json.dumps({"kind": kind, "time": 1.0, "data": data}) + "\n")


def _save(folder: Folder, step: int, *, final: bool = False, **more: object) -> None:
    target = folder.file("checkpoints") / f"step-{step:08d}"
    target.mkdir()
    (target / "weights").write_text("content")
    files = {"weights": {"bytes": 7, "sha256": hashlib.sha256(b"content").hexdigest()}}
    manifest = json.dumps({"format": 1, "step": step, "files": files})
    (target / "manifest.json").write_text(manifest)
    _say(
        folder,
        "checkpoint",
        step=step,
        folder=target.name,
        bytes=2,
        sha256=hashlib.sha256(manifest.encode()).hexdigest(),
        final=final,
        **more,
    )


def _steps(database: Database, stream: Stream) -> list[int]:
    with database.read_jobs() as session:
        return [row.step for row in checkpoints.of_job(session, stream.job_id)]


def _messages(database: Database, stream: Stream) -> list[str]:
    with database.read_jobs() as session:
        return [row.message for row in events.page(session, stream.job_id, limit=100)]


class KilledError(BaseException):
    """Stands for SIGKILL: nothing after it runs."""


def test_a_kill_before_the_offset_adds_an_event_once(
    database: Database,
    folder: Folder,
    stream: Stream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blobs = BlobStore(str(tmp_path / "store"))
    for message in ("equal", "equal"):
        _say(folder, "warning", message=message)
    _say(folder, "resumed", step=7, **{"from": "resume"})

    def killed(*_: object) -> bool:
        raise KilledError

    for _ in range(3):
        with monkeypatch.context() as patched:
            patched.setattr(EventUploader, "_advance", killed)
            with pytest.raises(KilledError):
                _reporter(database, blobs, folder, stream).step(False)
    _reporter(database, blobs, folder, stream).step(False)
    told = _messages(database, stream)
    assert told.count("equal") == 2, "two lines of the spool are two events"
    assert len([text for text in told if text.startswith("Training resumes")]) == 1
    assert len([text for text in told if text.startswith("Points and log lines")]) == 1


def test_events_carried_out_twice_publish_a_checkpoint_once(
    database: Database, folder: Folder, stream: Stream, tmp_path: Path
) -> None:
    blobs = BlobStore(str(tmp_path / "store"))
    _save(folder, 5)
    _reporter(database, blobs, folder, stream).step(False)
    with database.series() as session:
        # As if the agent had died before it recorded the event as done.
        row = session.get(streams.StreamRow, stream.assignment_id)
        assert row is not None
        row.events_offset = 0
    _reporter(database, blobs, folder, stream).step(False)
    assert _steps(database, stream) == [5]


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), EndpointError("No answer from the store")]
)
def test_a_store_that_refuses_for_too_long_loses_only_that_checkpoint(
    database: Database,
    folder: Folder,
    stream: Stream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    reporter = _reporter(database, RefusingStore(str(tmp_path / "store"), error), folder, stream)
    _save(folder, 5, final=True)
    with pytest.raises(type(error), match="No "):
        reporter.step(False)
    assert not reporter.effects.final_checkpoint_lost
    monkeypatch.setattr(event_effects, "PUBLISH_PATIENCE_SECONDS", 0.0)
    _say(folder, "warning", message="after it")
    while reporter.step(True):
        pass
    assert reporter.effects.final_checkpoint_lost
    assert _steps(database, stream) == []
    messages = _messages(database, stream)
    assert "after it" in messages
    assert any("checkpoint step-00000005 could not be stored" in message for message in messages)


def test_damaged_events_are_passed_over(
    database: Database, folder: Folder, stream: Stream, tmp_path: Path
) -> None:
    _say(folder, "checkpoint", step="many")
    _say(folder, "checkpoint", step=1, folder="../../etc", bytes=1, sha256="x", final=False)
    _say(folder, "plan", batch_size=-1)
    with folder.file("spool/events.jsonl").open("a") as file:
        file.write("not json\n")
    _say(folder, "warning", message="still read")
    reporter = _reporter(database, BlobStore(str(tmp_path / "store")), folder, stream)
    while reporter.step(True):
        pass
    assert "still read" in _messages(database, stream)
    assert _steps(database, stream) == []


def test_an_attempt_that_lost_its_lease_publishes_no_checkpoint(
    database: Database, folder: Folder, stream: Stream, tmp_path: Path
) -> None:
    _save(folder, 5)
    stale = stream._replace(token="stale")
    _reporter(database, BlobStore(str(tmp_path / "store")), folder, stale).step(False)
    assert _steps(database, stream) == []


@pytest.mark.parametrize(
    ("metric", "value"),
    [
        ({}, None),
        ({"metric": {"name": "eval/loss", "value": 0.5}}, 0.5),
        ({"metric": {"name": "eval/loss", "value": None}}, None),
        ({"metric": {"name": "eval/loss", "value": "NaN"}}, None),
    ],
)
def test_a_checkpoint_is_published_with_its_worth(
    database: Database,
    folder: Folder,
    stream: Stream,
    tmp_path: Path,
    metric: dict[str, object],
    value: float | None,
) -> None:
    _save(folder, 5, **metric)
    _reporter(database, BlobStore(str(tmp_path / "store")), folder, stream).step(False)
    with database.read_jobs() as session:
        assert [row.value for row in checkpoints.of_job(session, stream.job_id)] == [value]


def test_the_best_checkpoint_stays_in_the_store(
    database: Database, folder: Folder, stream: Stream, tmp_path: Path
) -> None:
    blobs = BlobStore(str(tmp_path / "store"))
    reporter = _reporter(database, blobs, folder, stream)
    for step, loss in enumerate((3.0, 1.0, 2.0, 2.0, 2.0, 2.0), start=1):
        _save(folder, step, metric={"name": "eval/loss", "value": loss})
        reporter.step(False)
    assert _steps(database, stream) == [6, 5, 4, 2]
    key = f"jobs/{stream.job_id}/1/step-"
    assert [step for step in range(1, 7) if blobs.exists(f"{key}{step:08d}")] == [2, 4, 5, 6]


def test_the_source_of_the_first_weights_is_reported(
    database: Database, folder: Folder, stream: Stream, tmp_path: Path
) -> None:
    _say(folder, "initialized", **{"from": "job:0192@best"})
    _reporter(database, BlobStore(str(tmp_path / "store")), folder, stream).step(False)
    assert "Training starts with the weights of job:0192@best." in _messages(database, stream)


def test_a_refused_warning_does_not_delay_later_events(
    database: Database, folder: Folder, stream: Stream, tmp_path: Path
) -> None:
    reporter = _reporter(database, BlobStore(str(tmp_path / "store")), folder, stream)
    reporter.history.warn("half a pair: \ud800")
    reporter.history.warn("still told")
    reporter.step(False)
    assert "still told" in _messages(database, stream)


@pytest.mark.parametrize(
    ("measured", "measure", "forecast", "says"),
    [
        (
            1.5 * 2**30,
            "allocated",
            2**31,
            "Memory: 1.5 GiB at most on rank 0 (allocated); 2.0 GiB predicted.",
        ),
        (1.5 * 2**30, "tensors", None, "Memory: 1.5 GiB at most on rank 0 (tensors); no forecast."),
        (
            None,
            "it was resumed",
            2**31,
            "Memory: not measured (it was resumed); 2.0 GiB predicted.",
        ),
    ],
)
def test_the_measured_memory_is_reported_with_the_forecast(
    database: Database,
    folder: Folder,
    stream: Stream,
    tmp_path: Path,
    measured: float | None,
    measure: str,
    forecast: int | None,
    says: str,
) -> None:
    reporter = _reporter(database, BlobStore(str(tmp_path / "store")), folder, stream)
    _say(folder, "memory", measured_bytes=measured, measure=measure, forecast_bytes=forecast)
    reporter.step(False)
    assert says in _messages(database, stream)


def test_events_beyond_their_limits_are_dropped(
    database: Database,
    folder: Folder,
    stream: Stream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "EVENTS_PER_ATTEMPT_MAX", 2)
    empty = len(json.dumps({"kind": "warning", "time": 1.0, "data": {"message": ""}}))
    room = limits.EVENT_LINE_BYTES_MAX - empty
    for letter, size in (("a", room), ("b", room + 1), ("c", 1), ("d", 1)):
        _say(folder, "warning", message=letter * size)
    reporter = _reporter(database, BlobStore(str(tmp_path / "store")), folder, stream)
    while reporter.step(True):
        pass
    found = [message[0] for message in _messages(database, stream) if message[0] in "abcd"]
    assert sorted(found) == ["a", "c"]


def test_events_beyond_the_number_of_a_minute_are_dropped(
    database: Database,
    folder: Folder,
    stream: Stream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr(event_limits.time, "monotonic", lambda: now)
    reporter = _reporter(database, BlobStore(str(tmp_path / "store")), folder, stream)

    def written(numbers: range) -> list[str]:
        before = len(_messages(database, stream))
        for number in numbers:
            _say(folder, "warning", message=str(number))
        while reporter.step(True):
            pass
        reporter.step(True)  # its own warning
        return _messages(database, stream)[before:]

    most = limits.EVENTS_PER_MINUTE_MAX
    assert written(range(most)) == [str(number) for number in range(most)]
    now = 59.9
    (notice,) = written(range(most, most + 2))
    assert "more than 50 events in a minute" in notice
    now = 60.0
    assert written(range(99, 100)) == ["99"]


def test_tries_during_an_outage_are_no_events(
    database: Database,
    folder: Folder,
    stream: Stream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An outage of two hours is 1,440 tries: the limits are of what is stored."""
    monkeypatch.setattr(limits, "EVENTS_PER_ATTEMPT_MAX", 4)
    reporter = _reporter(database, BlobStore(str(tmp_path / "store")), folder, stream)
    reporter.history.warn("own")
    _say(folder, "warning", message="a rank's")
    for away in ("own", "a rank's"):
        with monkeypatch.context() as patched:
            patched.setattr(database, "jobs", mock.Mock(side_effect=OSError(away)))
            for _ in range(2 * limits.EVENTS_PER_MINUTE_MAX):
                with pytest.raises(OSError, match=away):
                    reporter.step(False)
        reporter.history.send_waiting()
    reporter.step(False)
    reporter.history.warn("after it")
    reporter.step(False)
    assert _messages(database, stream)[-3:] == ["own", "a rank's", "after it"]


def test_secrets_are_replaced_in_events(
    database: Database, folder: Folder, stream: Stream, tmp_path: Path
) -> None:
    store = BlobStore(str(tmp_path / "store"))
    reporter = EventUploader(
        database,
        store,
        folder,
        stream,
        node_name="n",
        is_script=True,
        keep_last=1,
        redact=Redactor(["hunter-2-hunter"]).clean,
    )
    reporter.history.report("files_skipped", "hunter-2-hunter", {"files": {"hunter-2-hunter": 1}})
    _say(folder, "warning", message="got hunter-2-hunter", at=["hunter-2-hunter", 1])
    while reporter.step(True):
        pass
    with database.read_jobs() as session:
        shown = [(row.message, row.data) for row in events.page(session, stream.job_id, limit=9)]
    assert shown[-2:] == [
        ("***", {"files": {"***": 1}}),
        ("got ***", {"message": "got ***", "at": ["***", 1]}),
    ]


@pytest.mark.parametrize(("keep_last", "most"), [(3, 8), (9, 10)])
def test_only_the_newest_checkpoints_wait_for_the_store(
    database: Database, folder: Folder, stream: Stream, tmp_path: Path, keep_last: int, most: int
) -> None:
    store = BlobStore(str(tmp_path / "store"))
    reporter = EventUploader(
        database, store, folder, stream, node_name="n", is_script=False, keep_last=keep_last
    )
    for steps in (range(1, most + 1), range(most + 1, 2 * most + 2)):
        for step in steps:
            _save(folder, step, final=step == steps[-1])
        while reporter.step(True):
            pass
    assert max(_steps(database, stream)) == 2 * most + 1
    (message,) = [text for text in _messages(database, stream) if "not kept" in text]
    assert message.startswith(f"The checkpoint of step {most + 1} is not kept: too many newer")
    assert not list(folder.file("checkpoints").iterdir())


def _replace(folder: Path, kind: str) -> None:
    weights = folder / "weights"
    match kind:
        case "link":
            weights.unlink()
            (folder.parent / "outside").write_text("content")
            weights.symlink_to("../outside")
        case "pipe":
            weights.unlink()
            os.mkfifo(weights)
        case "unlisted":
            (folder / "more").write_text("x")
        case "missing":
            weights.unlink()
        case "longer":
            weights.write_text("content and more")
        case "changed":
            weights.write_text("CONTENT")
        case "manifest":
            (folder / "manifest.json").write_text("{}")
        case "deep":
            (folder / "manifest.json").write_text("[" * 100_000)


@pytest.mark.parametrize("remote", [False, True], ids=["folder", "url"])
@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("link", "weights is a symbolic link, or lies behind one; save a regular file"),
        ("pipe", "weights is not a regular file; save a regular file"),
        ("unlisted", "more is not in manifest.json"),
        ("missing", "weights is missing"),
        ("longer", "weights "),
        ("changed", "weights was changed after it was written: its SHA-256 differs"),
        ("manifest", "manifest.json differs from the reported one"),
        ("deep", "manifest.json differs from the reported one"),
    ],
)
def test_an_unsafe_checkpoint_is_skipped_and_the_next_is_published(
    database: Database,
    folder: Folder,
    stream: Stream,
    tmp_path: Path,
    *,
    kind: str,
    why: str,
    remote: bool,
) -> None:
    store = BlobStore(f"memory://{tmp_path.name}" if remote else str(tmp_path / "store"))
    _save(folder, 1)
    _replace(folder.file("checkpoints/step-00000001"), kind)
    _save(folder, 2)
    reporter = _reporter(database, store, folder, stream)
    while reporter.step(True):
        pass
    assert _steps(database, stream) == [2]
    (message,) = [text for text in _messages(database, stream) if "not kept" in text]
    assert message.startswith(f"The checkpoint of step 1 is not kept: {why}")
    location = f"jobs/{stream.job_id}/{stream.attempt_number}/step-0000000"
    assert [key.removeprefix(location) for key in store.find(f"jobs/{stream.job_id}")] == [
        "2/manifest.json",
        "2/published.json",
        "2/weights",
    ]
    assert not folder.file("checkpoints/step-00000001").exists()


def test_a_checkpoint_that_is_changed_later_stays_as_it_was_published(
    database: Database, folder: Folder, stream: Stream, tmp_path: Path
) -> None:
    store = BlobStore(str(tmp_path / "store"))
    _save(folder, 1)
    with folder.file("checkpoints/step-00000001/weights").open("r+") as held:
        assert _reporter(database, store, folder, stream).step(True)
        held.write("CHANGED")
    stored = tmp_path / "store/jobs" / stream.job_id / str(stream.attempt_number) / "step-00000001"
    assert (stored / "weights").read_text() == "content"
    assert {
        stat.S_IMODE((stored / name).stat().st_mode) for name in ("weights", "manifest.json")
    } == {0o400}
