"""Log lines as they come, for many readers at once.

Every stream of this process is fed by one poller, which asks twice a second what is new of all jobs that somebody
follows: one statement per database, however many follow. A stream holds no thread and no connection while it waits. What
woke several readers of the same place is read once for all of them, in threads of this module's own: the requests' threads
and most of the connections stay free for others.

Everything here runs in the event loop, except what is named ``_read``.

Not here: the address and its parameters (``api.routes.log_streams``), reading pages (``storage.logs.log_pages``).
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator
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
from lockstep.storage.logs.log_pages import Chosen

PERIOD_SECONDS: Final = 0.5
HEARTBEAT_SECONDS: Final = 15.0
"""Proxies close what is silent for 30 to 60 seconds."""
LINES_PER_EVENT: Final = 500
THREADS: Final = 4
"""That read for streams; so many connections at most."""
RETRY_MILLISECONDS: Final = 2000
"""A browser whose stream broke comes back after that."""

log = structlog.get_logger("api.following")


class News(NamedTuple):
    """What is known of a job that is followed."""

    seq: int
    """Batches of it that were stored."""
    state: JobState | None
    """None once there is no such job any more."""


class _Portion(NamedTuple):
    """What is sent of a log at once."""

    event: bytes
    cursor: str
    last: bool
    """Nothing was stored behind it."""


class Follower:
    """One open stream."""

    def __init__(self, job_id: str, chosen: Chosen, news: News):
        self.job_id = job_id
        self.chosen = chosen
        self.news = news
        self._woken = asyncio.Event()

    def tell(self, news: News) -> None:
        """Wake the stream if that is new."""
        if news != self.news:
            self.news = news
            self._woken.set()

    def wake(self) -> None:
        self._woken.set()

    async def wait(self, seconds: float) -> bool:
        """Wait for news; False if none came within ``seconds``."""
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            return False
        self._woken.clear()
        return True


class Following:
    """All open streams of one process.

    Parameters
    ----------
    database : Database
    period_seconds, heartbeat_seconds : float
        Between two looks at what is new, and between two signs of life on a stream without lines.
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
        self._followers: set[Follower] = set()
        self._reads: dict[tuple[str, Chosen, str, News], asyncio.Task[_Portion]] = {}
        self._poller: asyncio.Task[None] | None = None
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="following")
        self._closing = False

    def enter(self, job_id: str, chosen: Chosen, state: JobState) -> Follower:
        """A place for one more stream; whoever takes it must :meth:`leave`.

        Raises
        ------
        LockstepError
            ``UNAVAILABLE`` when there are too many already, or the service ends.
        """
        if self._closing:
            raise LockstepError(ErrorCode.UNAVAILABLE, "the service is ending", next_step="Try again in a moment.")
        if len(self._followers) >= limits.LOG_STREAMS_MAX:
            raise LockstepError(
                ErrorCode.UNAVAILABLE,
                f"{len(self._followers)} logs are followed already, and this process serves no more at once",
                next_step="Read the log by page, with next_cursor, or try again in a few seconds.",
            )
        follower = Follower(job_id, chosen, News(-1, state))
        self._followers.add(follower)
        return follower

    def __len__(self) -> int:
        """Open streams."""
        return len(self._followers)

    def leave(self, follower: Follower) -> None:
        self._followers.discard(follower)

    def close(self) -> None:
        """End every stream; whoever follows comes back with the last id, here or at another process."""
        self._closing = True
        if self._poller is not None:
            self._poller.cancel()
        for follower in self._followers:
            follower.wake()
        self._threads.shutdown(wait=False)

    def join(self) -> None:
        """Wait until no thread reads any more, so that the database can be closed."""
        self._threads.shutdown()

    async def events(self, follower: Follower, cursor: str) -> AsyncIterator[bytes]:
        """The log from a place on, as server-sent events, until the job has ended and all its lines are sent."""
        # At once, so that the caller sees that it is heard, and from where it goes on if this breaks.
        yield format_sse_event(id=cursor, retry=RETRY_MILLISECONDS, comment="the log follows")
        while not self._closing:
            # The news are taken before the lines are read: a job that had ended then had written them all.
            news = follower.news
            if news.state is None:
                return
            try:
                portion = await self._portion(follower, cursor, news)
            except LockstepError as error:
                # What was sent is not undone: the caller comes back with the last id.
                log.warning("a followed log cannot be read", job_id=follower.job_id, error=error.message)
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
                self._keep_polling()
                yield format_sse_event(comment="nothing new")

    def _keep_polling(self) -> None:
        if not self._closing and (self._poller is None or self._poller.done()):
            # In a context of its own: it outlives the request that began it, and its log lines are not that one's.
            context = contextvars.Context()
            self._poller = asyncio.create_task(self._poll(), name="following", context=context)

    async def _portion(self, follower: Follower, cursor: str, news: News) -> _Portion:
        """What follows a place; several that ask for the same at once are given the same."""
        key = (follower.job_id, follower.chosen, cursor, news)
        read = self._reads.get(key)
        if read is None:
            loop = asyncio.get_running_loop()
            future = loop.run_in_executor(self._threads, self._read_portion, follower.job_id, follower.chosen, cursor)
            read = self._reads[key] = asyncio.ensure_future(_result_of(future))
            read.add_done_callback(lambda done: self._forget(key, done))
        # One reader that goes away must not cancel what the others wait for.
        return await asyncio.shield(read)

    def _forget(self, key: tuple[str, Chosen, str, News], done: asyncio.Task[_Portion]) -> None:
        del self._reads[key]
        if not done.cancelled():
            done.exception()  # Seen: all who asked for it may have gone.

    def _read_portion(self, job_id: str, chosen: Chosen, cursor: str) -> _Portion:
        with self._database.read_series() as session:
            page = log_pages.page(session, job_id, chosen, limit=LINES_PER_EVENT, cursor=cursor)
            last = log_pages.at_end(session, job_id, page.next_cursor, attempt=chosen.attempt)
        if not page.lines:
            # Without data it is no event to a browser, but remembered as the place to come back to.
            return _Portion(format_sse_event(id=page.next_cursor), page.next_cursor, last)
        view = LogPage(lines=page.lines, next_cursor=page.next_cursor, prev_cursor=page.prev_cursor, complete=False)
        event = format_sse_event(event="lines", data_str=view.model_dump_json(), id=page.next_cursor)
        return _Portion(event, page.next_cursor, last)

    async def _poll(self) -> None:
        """Ask what is new for as long as anybody follows."""
        loop = asyncio.get_running_loop()
        failed = False
        while self._followers:
            jobs = {follower.job_id for follower in self._followers}
            try:
                news = await loop.run_in_executor(self._threads, self._read_news, jobs)
                failed = False
            except LockstepError as error:
                # Streams stay open through it and go on afterwards; one line says so, not two a second.
                if not failed:
                    log.warning(
                        "followed logs wait for the database", error=error.message, streams=len(self._followers)
                    )
                failed = True
            else:
                for follower in list(self._followers):
                    if follower.job_id in news:
                        follower.tell(news[follower.job_id])
            await asyncio.sleep(self._period_seconds)

    def _read_news(self, job_ids: set[str]) -> dict[str, News]:
        # States first: lines that were stored before a job ended are then seen no later than its end.
        with self._database.look_jobs() as look:
            states = change_feed.states(look, job_ids)
        with self._database.look_series() as look:
            counts = change_feed.counts(look, job_ids)
        return {job_id: News(counts.get(job_id, 0), states.get(job_id)) for job_id in job_ids}


async def _result_of(future: asyncio.Future[_Portion]) -> _Portion:
    return await future


class LogStream(StreamingResponse):
    """The answer that a follower gets. Its place is free again however the answer ends."""

    media_type = "text/event-stream"

    def __init__(self, following: Following, follower: Follower, cursor: str):
        # No proxy may keep lines back, nor any cache keep them at all.
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(following.events(follower, cursor), headers=headers)
        self._following = following
        self._follower = follower

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._following.leave(self._follower)
