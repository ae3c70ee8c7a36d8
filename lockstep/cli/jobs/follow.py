"""Following a job to its end: a progress bar on a terminal, plain lines elsewhere.

:class:`Follower` compares each poll of the job with the one before and sends the differences to a
view. On a terminal the bar stays at the bottom and messages scroll above it; elsewhere a line is
written when the state changes, and about progress at most every few seconds. A thread streams the
ranks' lines: they are shown as they are written, independent of the polls.

Not here: the summary of an ended job (``cli.text.closing``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

from lockstep.cli.common import say
from lockstep.cli.text import output as out
from lockstep.client.api import Client
from lockstep.client.errors import ClientError
from lockstep.domain.life.lifecycle import TERMINAL, Intent, JobState
from lockstep.domain.life.outcomes import Reason
from lockstep.domain.views import JobView

if TYPE_CHECKING:
    from rich.progress import Progress

LINE_EVERY_SECONDS: Final = 5.0
"""Between two progress lines where there is no terminal: a log of an hour's job stays readable."""
LAST_LINES_SECONDS: Final = 10.0
"""For the lines that are still on their way when the job has ended."""
LOSS_NAMES: Final = ("train/loss", "loss")
SPEED_NAMES: Final = ("throughput/samples_per_second", "samples_per_second")


class ProgressDisplay(Protocol):
    """Display of progress."""

    def note(self, line: str) -> None:
        """Something happened."""

    def update(self, job: JobView) -> None:
        """The job as it is now."""


class Follower:
    """Send a view the changes since the last poll.

    Parameters
    ----------
    view : View
    client : Client
    logs : bool
        Also show the lines that the ranks write.
    """

    def __init__(self, view: ProgressDisplay, client: Client, *, logs: bool):
        self._view = view
        self._client = client
        self._logs = logs
        self._tail: LogTail | None = None
        self._last: JobView | None = None
        self._ended_attempt = 0

    def look(self, job: JobView) -> None:
        if self._logs and self._tail is None and job.attempt is not None:
            self._tail = LogTail(self._client.twin(), job.id, self._view.note)
        if self._tail is not None and job.state in TERMINAL:
            self._tail.finish(LAST_LINES_SECONDS)
        for line in self._changes(job):
            self._view.note(line)
        self._view.update(job)
        self._last = job

    def _changes(self, job: JobView) -> Iterator[str]:
        last = self._last
        yield from self._end_of_attempt(job)
        is_new = last is not None and last.intent is not job.intent
        if is_new and job.intent in (Intent.CANCEL, Intent.PAUSE, Intent.REQUEUE):
            limit = f" ({job.stop_grace.sentence()})" if job.stop_grace is not None else ""
            yield f"{job.intent} requested; the ranks are being stopped{limit}"
        if last is None or last.state is not job.state or _number(last) != _number(job):
            yield from _new_state(job, last)

    def _end_of_attempt(self, job: JobView) -> Iterator[str]:
        """The outcome of an attempt that has ended, once."""
        attempt = job.attempt
        if (
            attempt is not None
            and attempt.outcome is not None
            and attempt.number > self._ended_attempt
        ):
            self._ended_attempt = attempt.number
            # A success is the job's own news, and may be seen of the attempt a moment before.
            if job.state not in TERMINAL and attempt.outcome.reason is not Reason.SUCCEEDED:
                yield f"attempt {attempt.number} ended: {attempt.outcome.message}"


class LogTail:
    """Notes each line of a job as it is written, until the job's last one.

    Parameters
    ----------
    client : Client
        Of this thread's own.
    job_id : str
    note : callable
        Takes a line; called from another thread.
    """

    def __init__(self, client: Client, job_id: str, note: Callable[[str], None]):
        self._client = client
        self._job_id = job_id
        self._note = note
        # A daemon thread: detaching must not wait for the next line.
        self._thread = threading.Thread(target=self._read, name="log-tail", daemon=True)
        self._thread.start()

    def finish(self, seconds: float) -> None:
        """Wait for the last lines, for so long at most."""
        self._thread.join(seconds)
        if self._thread.is_alive():
            self._note(f"there may be more lines: lockstep logs {self._job_id}")

    def _read(self) -> None:
        try:
            with self._client:
                for line in self._client.logs(self._job_id, follow=True):
                    self._note(f"{out.writer(line.rank)} {line.text}")
        except ClientError as error:
            self._note(f"following its log failed: {error.message}")


class LineProgress:
    """Progress as lines, for a file or a pipe."""

    def __init__(self) -> None:
        self._written_at = float("-inf")
        self._written_step = -1

    def note(self, line: str) -> None:
        say(line)

    def update(self, job: JobView) -> None:
        progress = job.progress
        if progress is None or progress.step <= 0 or progress.step == self._written_step:
            return
        now = time.monotonic()
        if now - self._written_at < LINE_EVERY_SECONDS and job.state not in TERMINAL:
            return
        self._written_at, self._written_step = now, progress.step
        total = f"/{progress.steps}" if progress.steps else ""
        words = [f"step {progress.step}{total}", *_numbers(job)]
        if progress.eta_seconds is not None and job.state not in TERMINAL:
            words.append(f"{out.duration(round(progress.eta_seconds))} left")
        say(", ".join(words))


class BarProgress:
    """Progress as a bar at the bottom of the terminal."""

    def __init__(self, progress: Progress):
        self._progress = progress
        self._task = progress.add_task("queued", total=None, step="", numbers="", left="")

    def note(self, line: str) -> None:
        from rich.text import Text

        self._progress.console.print(Text.from_ansi(out.harmless(line)))

    def update(self, job: JobView) -> None:
        progress = job.progress
        step, total = (progress.step, progress.steps) if progress is not None else (0, None)
        waiting = job.state in (JobState.QUEUED, JobState.STARTING)
        left = ""
        if (
            job.state not in TERMINAL
            and not waiting
            and progress is not None
            and progress.eta_seconds is not None
        ):
            left = f"ETA {out.duration(round(progress.eta_seconds))}"
        elif waiting and job.queue is not None:
            left = f"position {job.queue.position}"
        shown = f"{step}/{total}" if total else (str(step) if step else "")
        self._progress.update(
            self._task,
            description=out.state_of(job),
            # A bar without a total pulses: the progress is unknown.
            total=None if (waiting and not step) or not total else total,
            completed=step,
            step=shown,
            numbers="  ".join(_numbers(job)),
            left=left,
        )


@contextmanager
def progress_view() -> Iterator[ProgressDisplay]:
    """The bar where stderr is a terminal, lines otherwise."""
    console = out.console(stderr=True)
    if not console.is_terminal:
        yield LineProgress()
        return
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[step]}", markup=False),
        TextColumn("{task.fields[numbers]}", markup=False),
        TextColumn("{task.fields[left]}", markup=False),
    )
    with Progress(*columns, console=console, transient=True, refresh_per_second=8) as progress:
        yield BarProgress(progress)


def _new_state(job: JobView, last: JobView | None) -> Iterator[str]:
    """The state of a job that waits or runs; ``last`` is the poll before."""
    attempt = job.attempt
    if job.state is JobState.QUEUED:
        again = " again" if last is not None and last.state is not JobState.QUEUED else ""
        reason = job.queue.reason if job.queue is not None else job.reason
        yield f"queued{again}" + (f": {reason}" if reason else "")
    elif job.state is JobState.PAUSED:
        yield f"paused; continue it with: lockstep resume {job.id}"
    elif job.state is JobState.STARTING and attempt is not None:
        ranks = f"{attempt.world_size} rank{'s' if attempt.world_size != 1 else ''}"
        which = f" (attempt {attempt.number})" if attempt.number > 1 else ""
        yield f"starting {ranks} on {', '.join(attempt.nodes)}{which}"
    elif job.state is JobState.RUNNING and (last is None or last.state is not JobState.RUNNING):
        yield f"running: {_running(job)}"


def _running(job: JobView) -> str:
    """Return the state of the ranks: a script does not report their rendezvous."""
    if job.kind != "script":
        return "all ranks are connected"
    ranks = job.attempt.world_size if job.attempt is not None else 1
    return "1 process has started" if ranks == 1 else f"{ranks} processes have started"


def _number(job: JobView) -> int:
    """Of the newest attempt; 0 before the first.

    Its state may change a moment before the job's does, which is no news.
    """
    return job.attempt.number if job.attempt is not None else 0


def _numbers(job: JobView) -> Iterator[str]:
    """The loss and the speed, as far as they are known."""
    latest = job.progress.latest if job.progress is not None else {}
    loss = next((latest[name] for name in LOSS_NAMES if name in latest), None)
    speed = next((latest[name] for name in SPEED_NAMES if name in latest), None)
    if loss is not None:
        yield f"loss {out.loss(loss)}"
    if speed is not None:
        yield f"{speed:.0f} samples/s" if speed >= 10 else f"{speed:.2f} samples/s"
