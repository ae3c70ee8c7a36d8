"""Log streams: new log lines, sent to many clients at once.

One poller feeds all streams of the process. Twice a second it reads the changes of all followed
jobs, with one statement per database, independent of the number of streams. A waiting stream holds
no thread and no connection. Streams at the same offset of a log share one read. Reads run in
threads of this module, which leaves the request threads and most connections to other requests.

All methods run in the event loop, except those with the prefix ``_read``, which run in threads.

Not here: the route and its parameters (``api.routes.log_streams``), reading pages
(``storage.logs.log_pages``).
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

import structlog
from fastapi.sse import format_sse_event
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from lockstep.domain import limits
from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.life.lifecycle import TERMINAL, JobState
from lockstep.domain.views import LogEnd, LogPage
from lockstep.storage.db.database import Database
from lockstep.storage.jobs import change_feed
from lockstep.storage.logs import log_pages
from lockstep.storage.logs.log_pages import LogSelection

PERIOD_SECONDS: Final = 0.5
HEARTBEAT_SECONDS: Final = 15.0
"""Proxies close connections without data after 30 to 60 seconds."""
LINES_PER_EVENT: Final = 500
THREADS: Final = 4
"""Reader threads for event streams; each holds at most one database connection."""
RETRY_MILLISECONDS: Final = 2000
"""Delay before a browser reconnects after a broken stream."""

log = structlog.get_logger("api.following")


class StreamUpdate(NamedTuple):
    """Current state of a followed job."""

    seq: int
    """Number of stored batches of the job."""
    state: JobState | None
    """None if the job does not exist any more."""


class _Portion(NamedTuple):
    """Lines of a log that are sent in one event."""

    event: bytes
    cursor: str
    last: bool
    """True if nothing was stored after it."""


class StreamSubscription:
    """One open stream."""

    def __init__(self, job_id: str, chosen: LogSelection, news: StreamUpdate):
        self.job_id = job_id
        self.chosen = chosen
        self.news = news
        self._woken = asyncio.Event()

    def tell(self, news: StreamUpdate) -> None:
        """Wake the stream if the state has changed."""
        if news != self.news:
            self.news = news
            self._woken.set()

    def wake(self) -> None:
        self._woken.set()

    async def wait(self, seconds: float) -> bool:
        """Wait for a change; return False after ``seconds`` without one."""
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            return False
        self._woken.clear()
        return True


class ChangeStreams:
    """All open streams of one process.

    Parameters
    ----------
    database : Database
    period_seconds, heartbeat_seconds : float
        Interval of the poller, and interval of the comments on a stream without lines.
    """

    def __init__(
        self,
        database: Database,
        *,
        period_seconds: float = PERIOD_SECONDS,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
    ):
        self._database = database
        self._period_seconds = period_seconds
        self._heartbeat_seconds = heartbeat_seconds
        self._followers: set[StreamSubscription] = set()
        self._reads: dict[tuple[str, LogSelection, str, StreamUpdate], asyncio.Task[_Portion]] = {}
        self._poller: asyncio.Task[None] | None = None
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="following")
        self._closing = False

    def enter(self, job_id: str, chosen: LogSelection, state: JobState) -> StreamSubscription:
        """Register a stream. The caller must :meth:`leave` it.

        Raises
        ------
        LockstepError
            ``UNAVAILABLE`` at the limit of streams, or during shutdown.
        """
        if self._closing:
            raise LockstepError(
                ErrorCode.UNAVAILABLE, "the service is stopping", next_step="Try again in a moment."
            )
        if len(self._followers) >= limits.LOG_STREAMS_MAX:
            raise LockstepError(
                ErrorCode.UNAVAILABLE,
                f"{len(self._followers)} log streams are open, the limit of this process",
                next_step="Read the log in pages, with next_cursor, or try again in a few seconds.",
            )
        follower = StreamSubscription(job_id, chosen, StreamUpdate(-1, state))
        self._followers.add(follower)
        return follower

    def __len__(self) -> int:
        """Return the number of open streams."""
        return len(self._followers)

    def leave(self, follower: StreamSubscription) -> None:
        self._followers.discard(follower)

    def close(self) -> None:
        """End every stream. Clients resume with the last event id, at this or another process."""
        self._closing = True
        if self._poller is not None:
            self._poller.cancel()
        for follower in self._followers:
            follower.wake()
        self._threads.shutdown(wait=False)

    def join(self) -> None:
        """Wait until no thread reads any more; the database can be closed afterwards."""
        self._threads.shutdown()

    async def events(
        self, follower: StreamSubscription, cursor: str, still_reads: Callable[[], Awaitable[bool]]
    ) -> AsyncIterator[bytes]:
        """Yield the log from an offset as server-sent events.

        The stream ends when the job has ended and all lines are sent, and when ``still_reads``,
        which is asked once per heartbeat, returns False.
        """
        asked_at = time.monotonic()
        # Sent immediately: it confirms the stream and gives the client the id to resume from.
        yield format_sse_event(id=cursor, retry=RETRY_MILLISECONDS, comment="the log follows")
        while not self._closing:
            if time.monotonic() - asked_at >= self._heartbeat_seconds:
                asked_at = time.monotonic()
                if not await still_reads():
                    return
            # The state is read before the lines: if the job had ended by then, all its lines are
            # stored.
            news = follower.news
            if news.state is None:
                return
            try:
                portion = await self._portion(follower, cursor, news)
            except LockstepError as error:
                # Events that were sent remain valid: the client resumes with the last id.
                log.warning(
                    "reading a followed log failed", job_id=follower.job_id, error=error.message
                )
                return
            if portion.cursor != cursor:
                cursor = portion.cursor
                yield portion.event
            if not portion.last:
                continue
            if news.state in TERMINAL:
                end = LogEnd(state=news.state, next_cursor=cursor)
                yield format_sse_event(event="end", data_str=end.model_dump_json(), id=cursor)
                return
            self._keep_polling()
            while not await follower.wait(self._heartbeat_seconds):
                asked_at = time.monotonic()
                if not await still_reads():
                    return
                self._keep_polling()
                yield format_sse_event(comment="nothing new")

    def _keep_polling(self) -> None:
        if not self._closing and (self._poller is None or self._poller.done()):
            # A context of its own: the poller outlives the request that starts it, and its log
            # records must not carry the id of that request.
            context = contextvars.Context()
            self._poller = asyncio.create_task(self._poll(), name="following", context=context)

    async def _portion(
        self, follower: StreamSubscription, cursor: str, news: StreamUpdate
    ) -> _Portion:
        """Return the lines after an offset.

        Concurrent requests for the same lines share one read.
        """
        key = (follower.job_id, follower.chosen, cursor, news)
        read = self._reads.get(key)
        if read is None:
            loop = asyncio.get_running_loop()
            future = loop.run_in_executor(
                self._threads, self._read_portion, follower.job_id, follower.chosen, cursor
            )
            read = self._reads[key] = asyncio.ensure_future(_result_of(future))
            read.add_done_callback(lambda done: self._forget(key, done))
        # A client that disconnects must not cancel the read of the others.
        return await asyncio.shield(read)

    def _forget(
        self, key: tuple[str, LogSelection, str, StreamUpdate], done: asyncio.Task[_Portion]
    ) -> None:
        del self._reads[key]
        if not done.cancelled():
            done.exception()  # Marks the exception as retrieved: all readers may have disconnected.

    def _read_portion(self, job_id: str, chosen: LogSelection, cursor: str) -> _Portion:
        with self._database.read_series() as session:
            page = log_pages.page(session, job_id, chosen, limit=LINES_PER_EVENT, cursor=cursor)
            last = log_pages.at_end(session, job_id, page.next_cursor, attempt=chosen.attempt)
        if not page.lines:
            # A browser dispatches no event without data, but stores its id to resume from.
            return _Portion(format_sse_event(id=page.next_cursor), page.next_cursor, last)
        view = LogPage(
            lines=page.lines,
            next_cursor=page.next_cursor,
            prev_cursor=page.prev_cursor,
            complete=False,
        )
        event = format_sse_event(
            event="lines", data_str=view.model_dump_json(), id=page.next_cursor
        )
        return _Portion(event, page.next_cursor, last)

    async def _poll(self) -> None:
        """Poll for changes while streams are open."""
        loop = asyncio.get_running_loop()
        failed = False
        while self._followers:
            jobs = {follower.job_id for follower in self._followers}
            try:
                news = await loop.run_in_executor(self._threads, self._read_news, jobs)
                failed = False
            except LockstepError as error:
                # Streams stay open during an outage and continue afterwards. The outage is logged
                # once, instead of twice a second.
                if not failed:
                    log.warning(
                        "log streams wait for the database",
                        error=error.message,
                        streams=len(self._followers),
                    )
                failed = True
            else:
                for follower in list(self._followers):
                    if follower.job_id in news:
                        follower.tell(news[follower.job_id])
            await asyncio.sleep(self._period_seconds)

    def _read_news(self, job_ids: set[str]) -> dict[str, StreamUpdate]:
        # States before counts: the lines that were stored before the end of a job are then visible
        # no later than its end.
        with self._database.look_jobs() as look:
            states = change_feed.states(look, job_ids)
        with self._database.look_series() as look:
            counts = change_feed.counts(look, job_ids)
        return {
            job_id: StreamUpdate(counts.get(job_id, 0), states.get(job_id)) for job_id in job_ids
        }


async def _result_of(future: asyncio.Future[_Portion]) -> _Portion:
    return await future


class LogStream(StreamingResponse):
    """Response of a log stream. It unregisters the stream in every case."""

    media_type = "text/event-stream"

    def __init__(
        self,
        following: ChangeStreams,
        follower: StreamSubscription,
        cursor: str,
        still_reads: Callable[[], Awaitable[bool]],
    ):
        # Proxies must not buffer the stream, and caches must not store it.
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(following.events(follower, cursor, still_reads), headers=headers)
        self._following = following
        self._follower = follower

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._following.leave(self._follower)
