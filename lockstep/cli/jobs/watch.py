"""``watch`` and ``top``: one job, and the whole service, live on a terminal.

Both poll with conditional requests, as the dashboard does: an unchanged answer has no body. In a
pipe ``watch`` writes lines as ``submit`` does, and ``top`` writes one frame.

Not here: the contents of the frames (``cli.text.frames``).
"""

from __future__ import annotations

import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from lockstep.cli.common import Connection, Flag, JobName, say
from lockstep.cli.text import output as out
from lockstep.client.errors import OF_STATE, ExitCode, UsageError
from lockstep.domain import limits
from lockstep.domain.life.lifecycle import TERMINAL, JobState

if TYPE_CHECKING:
    from lockstep.cli.text.frames import DeviceUsage, Line
    from lockstep.client.api import Client
    from lockstep.domain.views import JobView, LogLine

EVERY_SECONDS_MIN: Final = 0.2
"""Shortest interval: faster is not readable and loads the server."""
USAGE_RANKS_MAX: Final = 32
"""Ranks whose devices are asked for: a mean needs no more."""
USAGE_JOBS_MAX: Final = 20
"""Running jobs whose devices ``top`` asks for at each look."""
JOBS_MAX: Final = 200
LOG_LINES_KEPT: Final = 100
"""The tallest terminal shows fewer."""


def watch(
    job: JobName,
    /,
    *,
    every: Annotated[float, Parameter(name=["--every", "-n"])] = 1.0,
    connection: Connection = Connection(),
) -> ExitCode:
    """Follow a job live until it ends: its progress, speed, newest numbers and last lines.

    Ctrl-C leaves it running.

    Exit code 0: the job succeeded; 1: it failed; 6: it was cancelled.

    Parameters
    ----------
    every
        Seconds between two looks.
    """
    every = _checked(every)
    with connection.client() as client:
        found = client.job(job)
        try:
            if sys.stdout.isatty():
                with _screen(whole=False) as show:
                    ended = client.wait(
                        found.id, each=_Watcher(client, show).look, poll_seconds=every
                    )
            else:
                from lockstep.cli.jobs.follow import Follower, LineProgress

                ended = client.wait(
                    found.id,
                    each=Follower(LineProgress(), client, logs=True).look,
                    poll_seconds=every,
                )
                print(ended.state.value)
        except KeyboardInterrupt:
            say(f"{found.name} continues; reattach with: lockstep watch {found.id}")
            raise
    if ended.outcome is not None and ended.state is not JobState.SUCCEEDED:
        say(ended.outcome.message)
    return OF_STATE[ended.state]


def top(
    *,
    every: Annotated[float, Parameter(name=["--every", "-n"])] = 2.0,
    once: Flag = False,
    connection: Connection = Connection(),
) -> ExitCode:
    """Nodes with their devices, and the jobs that run and wait, live. Ctrl-C ends it.

    Parameters
    ----------
    every
        Seconds between two looks.
    once
        Write one picture and end; so also in a pipe.
    """
    every = _checked(every)
    with connection.client() as client:
        if once or not sys.stdout.isatty():
            size = (
                shutil.get_terminal_size()
                if sys.stdout.isatty()
                else (out.PIPE_WIDTH, out.PIPE_WIDTH)
            )
            for line in _service(client, *size):
                out.print_line(line)
            return ExitCode.OK
        try:
            with _screen(whole=True) as show:
                while True:
                    show(_service(client, *shutil.get_terminal_size()))
                    time.sleep(every)
        except KeyboardInterrupt:
            return ExitCode.OK


class _Watcher:
    """Shows a job after each look at it."""

    def __init__(self, client: Client, show: Callable[[list[Line]], None]):
        from lockstep.cli.text.frames import Rate

        self._client = client
        self._show = show
        self._rate = Rate()
        self._lines: deque[LogLine] = deque(maxlen=LOG_LINES_KEPT)
        self._cursor: str | None = None

    def look(self, job: JobView) -> None:
        from lockstep.cli.text.frames import job_frame

        width, height = shutil.get_terminal_size()
        if job.attempt is not None:
            self._read_lines(job.id)
        rate = (
            self._rate.look(time.monotonic(), job.progress.step)
            if job.progress is not None
            else None
        )
        usage = _usage(self._client, job)
        # One row less than there are: the cursor stands below the picture.
        self._show(
            job_frame(
                job,
                rate=rate,
                usage=usage,
                lines=self._lines,
                now=datetime.now(UTC),
                width=width,
                height=height - 1,
            )
        )

    def _read_lines(self, job_id: str) -> None:
        while True:
            if self._cursor is None:
                page = self._client.log_page(job_id, tail=LOG_LINES_KEPT)
            else:
                page = self._client.log_page(
                    job_id, cursor=self._cursor, limit=limits.LOG_PAGE_LINES_MAX
                )
            self._lines.extend(page.lines)
            moved, self._cursor = page.next_cursor != self._cursor, page.next_cursor
            if not page.lines or not moved or page.complete:
                return


def _service(client: Client, width: int, height: int) -> list[Line]:
    from lockstep.cli.text.frames import service_frame

    nodes = client.nodes()
    states = [state for state in JobState if state not in TERMINAL]
    jobs = client.jobs(states=states, limit=JOBS_MAX).items
    running = [job for job in jobs if job.state is JobState.RUNNING][:USAGE_JOBS_MAX]
    usage = {job.id: _usage(client, job) for job in running}
    url = client.transport.url
    return service_frame(url, nodes, jobs, usage, now=datetime.now(UTC), width=width, height=height)


def _usage(client: Client, job: JobView) -> DeviceUsage:
    """Return the resource use of a running job's ranks.

    None for other jobs, whose last values are outdated.
    """
    from lockstep.cli.text.frames import DeviceUsage, usage_names, usage_of

    if job.state is not JobState.RUNNING or job.attempt is None:
        return DeviceUsage()
    names = usage_names(min(job.attempt.world_size, USAGE_RANKS_MAX))
    return usage_of(client.metrics(job.id, names=names, max_points=1))


@contextmanager
def _screen(*, whole: bool) -> Iterator[Callable[[list[Line]], None]]:
    """Redraw lines in place: on the alternate screen, or below the earlier output."""
    from rich.live import Live

    console = out.console()
    # Nothing else writes to stdout meanwhile; rich's stand-in for it would hide which letters it
    # can write.
    with Live(
        console=console,
        screen=whole,
        auto_refresh=False,
        vertical_overflow="crop",
        redirect_stdout=False,
    ) as live:
        yield lambda lines: live.update(out.as_text(lines), refresh=True)


def _checked(every: float) -> float:
    if not every >= EVERY_SECONDS_MIN:
        raise UsageError(f"--every {every:g}: expected {EVERY_SECONDS_MIN} seconds or more")
    return every
