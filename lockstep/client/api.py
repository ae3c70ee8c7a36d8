"""The Python client.

Every address of the HTTP API as a method that answers with the types of ``domain.views``.

>>> with Client("http://127.0.0.1:8470", token) as client:
...     job = client.submit(yaml.load(text))
...     job = client.wait(job.id)
...     losses = client.metrics(job.id, names=["train/loss"]).series[0].value

Wherever a job is named, its id, a unique beginning or end of it, its name (the newest of that name)
or ``last`` will do.

Not here: retries and errors (``client.transport``), where address and token come from
(``client.config``).
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self
from urllib.parse import quote

from lockstep.client.account import Account
from lockstep.client.errors import NotFoundError, RefusedError, TimedOutError, UsageError
from lockstep.client.job_files import FilesMethods
from lockstep.client.people import PeopleMethods
from lockstep.client.references import job_id, job_path
from lockstep.client.transport import Params, Transport
from lockstep.client.waiting import WaitingMethods
from lockstep.domain import limits
from lockstep.domain.errors import ErrorCode
from lockstep.domain.life.lifecycle import TERMINAL, JobState
from lockstep.domain.list_views import JobPage
from lockstep.domain.series_views import JobSeriesSummary, MetricsView
from lockstep.domain.views import (
    AuditView,
    CheckpointDetail,
    CheckpointFile,
    CheckpointView,
    EventView,
    JobView,
    LogLine,
    LogPage,
    NodeView,
    Page,
    PlanView,
    UploadView,
)

if TYPE_CHECKING:
    from lockstep.client.archive import CodeArchive

PATIENCE_SECONDS: Final = 4.0
"""Long enough for a server that restarts in place, short enough for a user whose server is down."""
FOLLOW_PATIENCE_SECONDS: Final = 600.0
"""A follower stays through an upgrade of the server: the job goes on meanwhile."""
POLL_SECONDS: Final = 0.5
ARCHIVE_TYPE: Final = "application/gzip"


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class Client(Account, FilesMethods, PeopleMethods, WaitingMethods):
    """Connection to one Lockstep server.

    Parameters
    ----------
    url : str
        Address of the server, such as ``http://127.0.0.1:8470``.
    token : str, optional
    patience_seconds : float
        Time limit for retries of a request (no connection, 502, 503, 504).
    say : callable
        Receives one line per retry; by default it is written to stderr.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        patience_seconds: float = PATIENCE_SECONDS,
        say: Callable[[str], None] = _to_stderr,
        transport: Transport | None = None,
    ):
        self.transport = transport or Transport(
            url, token, patience_seconds=patience_seconds, say=say
        )

    def close(self) -> None:
        self.transport.close()

    def twin(self) -> Client:
        """Another connection to the same server: a client serves one thread."""
        twin = self.transport.twin()
        return Client(twin.url, transport=twin)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Submitting

    def plan(self, document: Mapping[str, Any]) -> PlanView:
        """Check a spec and derive its batch plan. Nothing is written."""
        return self.transport.post("/v1/jobs/plan", PlanView, dict(document))

    def submit(self, document: Mapping[str, Any], *, idempotency_key: str | None = None) -> JobView:
        """Submit a job.

        A key is always sent, so that a repeated request is the same job and not a second one.
        """
        key = idempotency_key or uuid.uuid4().hex
        return self.transport.post(
            "/v1/jobs", JobView, dict(document), headers={"Idempotency-Key": key}
        )

    def clone(
        self,
        reference: str,
        changes: Mapping[str, Any] | None = None,
        *,
        idempotency_key: str | None = None,
    ) -> JobView:
        """Submit a job's spec again, with its code.

        Parameters
        ----------
        reference : str
        changes : mapping, optional
            Values that differ, by JSON pointer into the spec: ``{"/train/steps": 400}``.
        idempotency_key : str, optional
            As for :meth:`submit`.
        """
        headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
        reference = job_id(self.transport, reference)
        return self.transport.post(
            job_path(reference, "/clone"), JobView, {"set": dict(changes or {})}, headers=headers
        )

    def upload(self, folder: str | Path) -> UploadView:
        """Send a folder of code.

        Name the answer's ``sha256`` as ``code: {upload: …}`` in a spec.
        """
        from lockstep.client.archive import pack

        with tempfile.TemporaryDirectory(prefix="lockstep-upload-") as temporary:
            return self.upload_archive(pack(Path(folder), Path(temporary) / "code.tar.gz"))

    def upload_archive(self, archive: CodeArchive) -> UploadView:
        """Send an archive made by ``client.archive.pack``, unless the server has it."""
        try:
            return self.transport.get(f"/v1/uploads/{archive.sha256}", UploadView)
        except NotFoundError:
            pass
        return self.transport.put_file(
            f"/v1/uploads/{archive.sha256}", UploadView, archive.path, ARCHIVE_TYPE
        )

    # Jobs

    def jobs(
        self,
        *,
        filter: str | None = None,  # noqa: A002 -- the name in the API
        states: Sequence[JobState] = (),
        search: str | None = None,
        name: str | None = None,
        project: str | None = None,
        owner: str | None = None,
        node: str | None = None,
        label: tuple[str, str] | None = None,
        sort: str | None = None,
        columns: Sequence[str] = (),
        totals: bool = False,
        group: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> JobPage:
        """One page of jobs, newest first unless ``sort`` names another order.

        Parameters
        ----------
        filter : str, optional
            Tokens such as ``owner:ada gpus>4 lr<1e-3 val/loss<2`` (docs/lists.md).
        states, search, name, project, owner, node, label : optional
            Further conditions.
        sort : str, optional
            Column, with ``-`` before it for the largest first.
        columns : sequence of str
            Settings and metrics that each job has in ``values``.
        totals : bool
            True asks for the totals of all pages.
        group : str, optional
            Column by which the totals are grouped.
        cursor : str, optional
            ``next_cursor`` of the page before.
        limit : int, optional
        """
        params = [("state", state.value) for state in states]
        params += [("columns", column) for column in columns]
        params += [("totals", "true")] * totals
        params += _given(
            filter=filter,
            sort=sort,
            group=group,
            search=search,
            name=name,
            project=project,
            owner=owner,
            node=node,
            cursor=cursor,
            limit=limit,
        )
        params += [("label", "=".join(label))] if label is not None else []
        return self.transport.get("/v1/jobs", JobPage, params)

    def job(self, reference: str) -> JobView:
        """One job. Asking again costs the server little while nothing has changed."""
        return self.transport.get(job_path(reference), JobView)

    def cancel(self, reference: str, *, now: bool = False) -> JobView:
        """Ask for a job's end. Asking again for one that is cancelled answers with that job.

        ``now`` kills its processes without a checkpoint.
        """
        reference = job_id(self.transport, reference)
        try:
            return self.transport.post(job_path(reference, "/cancel"), JobView, params=_now(now))
        except RefusedError as refused:
            if refused.problem.code == ErrorCode.CONFLICT:
                job = self.job(reference)
                if job.state is JobState.CANCELLED:
                    return job
            raise

    def pause(self, reference: str, *, now: bool = False) -> JobView:
        """Pause a job: it saves, ends, and waits for :meth:`resume`. It keeps its age.

        ``now`` kills its processes without a checkpoint.
        """
        reference = job_id(self.transport, reference)
        return self.transport.post(job_path(reference, "/pause"), JobView, params=_now(now))

    def resume(self, reference: str) -> JobView:
        """Queue a paused job again."""
        reference = job_id(self.transport, reference)
        return self.transport.post(job_path(reference, "/resume"), JobView)

    def requeue(self, reference: str, *, avoid: Sequence[str] = (), now: bool = False) -> JobView:
        """Stop a job and queue it again; it tries the nodes ``avoid`` last.

        ``now`` kills its processes without a checkpoint.
        """
        reference = job_id(self.transport, reference)
        params = [*_now(now), *(("avoid", node) for node in avoid)]
        return self.transport.post(job_path(reference, "/requeue"), JobView, params=params)

    def mark(
        self,
        reference: str,
        *,
        labels: Mapping[str, str | None] | None = None,
        note: str | None = None,
        starred: bool | None = None,
        priority: int | None = None,
    ) -> JobView:
        """Change the labels, the note, the star and the priority of a job.

        What is not given stays. None as the value removes a label, and an empty text the note. A
        job that has ended keeps its priority.
        """
        reference = job_id(self.transport, reference)
        given = {"labels": labels, "note": note, "starred": starred, "priority": priority}
        body = {name: value for name, value in given.items() if value is not None}
        return self.transport.change("PATCH", job_path(reference), JobView, body)

    def delete(self, reference: str) -> None:
        """Delete a job that has ended, with everything it left behind.

        One that is no more counts as deleted.
        """
        try:
            path = job_path(job_id(self.transport, reference))
            self.transport.send("DELETE", path, headers={})
        except RefusedError as refused:
            if refused.problem.code != ErrorCode.NOT_FOUND:
                raise

    def wait(
        self,
        reference: str,
        timeout_seconds: float | None = None,
        *,
        each: Callable[[JobView], None] = lambda _: None,
        poll_seconds: float = POLL_SECONDS,
    ) -> JobView:
        """Wait for a job's end, through restarts of the server.

        Parameters
        ----------
        reference : str
        timeout_seconds : float, optional
        each : callable
            Called with the job after every look at it, the last one included.
        poll_seconds : float

        Raises
        ------
        TimedOutError
            If the job has not ended in time. It goes on.
        UsageError
            If the limit is nan.
        """
        if timeout_seconds is not None and math.isnan(timeout_seconds):
            raise UsageError("wait: expected a number of seconds, got nan")
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        job = self.job(reference)
        # A name or `last` may mean another job by the next look.
        reference = job.id
        self.transport.patience_seconds = max(
            self.transport.patience_seconds, FOLLOW_PATIENCE_SECONDS
        )
        while True:
            each(job)
            if job.state in TERMINAL:
                return job
            if deadline is not None and time.monotonic() + poll_seconds > deadline:
                raise TimedOutError(
                    f"{job.name} ({job.id}) is still {job.state} after {timeout_seconds:g} s",
                    next_step=f"the job continues; wait again with: lockstep wait {job.id}",
                )
            time.sleep(poll_seconds)
            job = self.job(reference)

    # Series, logs, events and checkpoints of a job

    def metrics(
        self,
        reference: str,
        *,
        names: Sequence[str] = (),
        from_step: int | None = None,
        to_step: int | None = None,
        max_points: int | None = None,
        attempts: Literal["current", "visible", "all"] | None = None,
        since: str | None = None,
    ) -> MetricsView:
        """Return the series of a job; all of them unless ``names`` are given.

        ``since`` is the ``cursor`` of the previous answer to the same query: the answer has only
        the points stored after it. An answer that is ``complete`` replaces the previous ones.
        """
        params = [*([("names", ",".join(names))] if names else [])]
        params += _given(
            from_step=from_step,
            to_step=to_step,
            max_points=max_points,
            attempts=attempts,
            since=since,
        )
        return self.transport.get(job_path(reference, "/metrics"), MetricsView, params)

    def series(self, reference: str) -> JobSeriesSummary:
        """Return the metadata and the figures of each series of a job."""
        return self.transport.get(job_path(reference, "/series"), JobSeriesSummary)

    def log_page(
        self,
        reference: str,
        *,
        cursor: str | None = None,
        before: str | None = None,
        attempt: int | None = None,
        rank: int | None = None,
        stream: str | None = None,
        search: str | None = None,
        since: str | None = None,
        until: str | None = None,
        tail: int | None = None,
        limit: int | None = None,
    ) -> LogPage:
        """One page of log lines, and the cursors to go on from.

        ``next_cursor`` as ``cursor``, ``prev_cursor`` as ``before``.
        """
        params = _given(
            attempt=attempt, cursor=cursor, before=before, rank=rank, stream=stream, search=search
        )
        params += _given(since=since, until=until, tail=tail, limit=limit)
        return self.transport.get(job_path(reference, "/logs"), LogPage, params)

    def logs(
        self,
        reference: str,
        *,
        follow: bool = False,
        attempt: int | None = None,
        rank: int | None = None,
        stream: str | None = None,
        search: str | None = None,
        since: str | None = None,
        until: str | None = None,
        tail: int | None = None,
        poll_seconds: float = POLL_SECONDS,
    ) -> Iterator[LogLine]:
        """The log lines of a job's ranks, in order.

        Parameters
        ----------
        reference : str
        follow : bool
            Go on with lines as they come, until the job has ended and its last line was read.
        attempt : int, optional
            Only this attempt's lines; counted from 1.
        rank : int, optional
            Only this rank's lines; -1 is the launcher.
        stream : str, optional
            ``stdout``, ``stderr`` or ``launcher``.
        search : str, optional
            Only lines that contain this text.
        since, until : str, optional
            Only lines written then or later, and before that: RFC 3339, or seconds since the epoch.
        tail : int, optional
            Begin with the last so many lines.
        poll_seconds : float
            Between two looks, where the server has no stream of lines to give.
        """
        reference = self.job(reference).id
        if follow:
            self.transport.patience_seconds = max(
                self.transport.patience_seconds, FOLLOW_PATIENCE_SECONDS
            )
        chosen = _given(
            attempt=attempt, rank=rank, stream=stream, search=search, since=since, until=until
        )
        path, full_page = job_path(reference, "/logs"), _given(limit=limits.LOG_PAGE_LINES_MAX)
        place = _given(tail=tail)
        streams = True
        while True:
            page = self.transport.get(path, LogPage, [*chosen, *place, *full_page])
            yield from page.lines
            asked, place = place, _given(cursor=page.next_cursor)
            if page.complete or (not follow and (tail is not None or place == asked)):
                return
            if place != asked:
                continue  # A page may hold fewer lines than there are, or none.
            if streams:
                try:
                    for event in self.transport.events(f"{path}/stream", params=[*chosen, *place]):
                        if event.event == "lines":
                            yield from LogPage.model_validate_json(event.data).lines
                        elif event.event == "end":
                            return
                        place = _given(cursor=event.id) or place
                except RefusedError:
                    streams = False
            time.sleep(poll_seconds)

    def events(self, reference: str, *, tail: int | None = None) -> Iterator[EventView]:
        """Everything that happened to a job, or the last ``tail`` events, oldest first."""
        path = job_path(reference, "/events")
        if tail is None:
            yield from self._pages(path, Page[EventView])
            return
        asked = _given(order="newest", limit=min(tail, limits.PAGE_SIZE_MAX))
        newest_first = list(islice(self._pages(path, Page[EventView], asked), tail))
        yield from reversed(newest_first)

    def checkpoints(self, reference: str) -> list[CheckpointView]:
        """A job's checkpoints, newest first."""
        return list(self._pages(job_path(reference, "/checkpoints"), Page[CheckpointView]))

    def checkpoint(
        self,
        reference: str,
        which: int | Literal["last", "best"] = "last",
        *,
        attempt: int | None = None,
    ) -> CheckpointDetail:
        """One checkpoint of a job, with its files.

        Of a step, the newest, or the best by ``keep_best``.
        """
        return self.transport.get(
            job_path(reference, f"/checkpoints/{which}"), CheckpointDetail, _given(attempt=attempt)
        )

    def read_checkpoint_file(
        self,
        reference: str,
        checkpoint: CheckpointDetail,
        file: CheckpointFile,
        take: Callable[[bytes], object],
    ) -> None:
        """Read a file of a checkpoint; ``take`` gets its bytes.

        Whether they are right is the caller's to check.
        """
        path = job_path(
            reference, f"/checkpoints/{checkpoint.step}/files/{quote(file.name, safe='')}"
        )
        params = _given(attempt=checkpoint.attempt)
        self.transport.download(path, take, params=params, size=file.bytes, tag=f'"{file.sha256}"')

    # The service

    def nodes(self) -> list[NodeView]:
        return list(self._pages("/v1/nodes", Page[NodeView]))

    def drain_node(self, node: str, *, reason: str | None = None) -> NodeView:
        """Drain a node: it gets no more work, and its running jobs continue.

        Readers of the node see the reason.
        """
        path = f"/v1/nodes/{quote(node, safe='')}/drain"
        return self.transport.post(path, NodeView, params=_given(reason=reason))

    def resume_node(self, node: str) -> NodeView:
        """Give a node work again that was drained or quarantined."""
        return self.transport.post(f"/v1/nodes/{quote(node, safe='')}/resume", NodeView)

    def remove_node(self, node: str) -> None:
        """Remove a node that is gone for good."""
        self.transport.send("DELETE", f"/v1/nodes/{quote(node, safe='')}", headers={})

    def queue(self, *, project: str | None = None) -> Iterator[JobView]:
        """All jobs that wait, each once, in the order in which they will be placed."""
        seen: set[str] = set()
        for job in self._pages("/v1/queue", Page[JobView], _given(project=project)):
            if job.id not in seen:
                seen.add(job.id)
                yield job

    def audit(
        self,
        *,
        actor: str | None = None,
        action: str | None = None,
        project: str | None = None,
        limit: int = limits.PAGE_SIZE_MAX,
    ) -> Iterator[AuditView]:
        """Return changes and refused requests, newest first, in pages of at most ``limit``."""
        asked = _given(actor=actor, action=action, project=project)
        asked += _given(limit=min(limit, limits.PAGE_SIZE_MAX))
        yield from self._pages("/v1/audit", Page[AuditView], asked)

    def _pages(self, path: str, view: type[Page[Any]], asked: Params = ()) -> Iterator[Any]:
        cursor: str | None = None
        while True:
            page = self.transport.get(path, view, [*asked, *_given(cursor=cursor)])
            yield from page.items
            if page.next_cursor is None:
                return
            cursor = page.next_cursor


def _now(now: bool) -> list[tuple[str, str]]:
    return [("now", "true")] if now else []


def _given(**values: str | int | None) -> list[tuple[str, str]]:
    return [(name, str(value)) for name, value in values.items() if value is not None]
