"""Frames of ``watch`` and ``top`` as lines of words.

Pure functions of the data, a width and a height.

Not here: polling, and output on a terminal (``cli.jobs.watch``).
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from lockstep.cli.text import output as out
from lockstep.cli.text.output import Word
from lockstep.domain.life.lifecycle import TERMINAL, JobState
from lockstep.domain.training.metrics import SYSTEM
from lockstep.domain.training.series import metadata_of

if TYPE_CHECKING:
    from lockstep.domain.series_views import MetricsView
    from lockstep.domain.views import JobView, LogLine, NodeView

Line = list[Word]

BAR_COLUMNS: Final = 30
BAR_COLUMNS_MIN: Final = 5
FIRST_METRICS: Final = (
    "train/loss",
    "loss",
    "eval/loss",
    "throughput/samples_per_second",
    "train/lr",
    "train/grad_norm",
)
"""Shown before the others, which follow in the order of their names."""
PARTS: Final = "time/"
RATE_SECONDS: Final = 30.0
"""The step rate is that of so many last seconds: long enough to be steady, short enough to show a
change."""
ORDER: Final = (JobState.RUNNING, JobState.STARTING, JobState.QUEUED)


class DeviceUsage(NamedTuple):
    """Device use of a job's ranks: means over the measured ranks, None if none was measured."""

    gpu_percent: float | None = None
    gpu_memory_bytes: float | None = None
    cpu_percent: float | None = None
    memory_bytes: float | None = None

    def words(self) -> str:
        """The GPU's where there is one, else the processor's."""
        percent, size = self.gpu_percent, self.gpu_memory_bytes
        what = "GPU"
        if percent is None:
            percent, size, what = self.cpu_percent, self.memory_bytes, "CPU"
        if percent is None:
            return ""
        return f"{what} {percent:.0f} %" + (
            f", {out.size(round(size))}" if size is not None else ""
        )


_OF_A_RANK: Final = ("gpu_utilization_percent", "gpu_memory_bytes", "cpu_percent", "rss_bytes")
"""In the order of :class:`DeviceUsage`."""


def usage_names(ranks: int) -> list[str]:
    """The series that :func:`usage_of` reads."""
    return [f"{SYSTEM}rank{rank}/{name}" for rank in range(ranks) for name in _OF_A_RANK]


def usage_of(found: MetricsView) -> DeviceUsage:
    """The newest of each rank's values, as a mean over the ranks."""
    newest = {series.name: series.value[-1] for series in found.series if series.value}
    means: list[float | None] = []
    for name in _OF_A_RANK:
        values = [value for series, value in newest.items() if series.endswith(f"/{name}")]
        means.append(sum(values) / len(values) if values else None)
    return DeviceUsage(*means)


class Rate:
    """Steps per second, from looks at the step."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def look(self, now: float, step: int) -> float | None:
        """The rate of the last seconds.

        None until two steps were seen, and after a restart from an earlier step.
        """
        if self._seen and step < self._seen[-1][1]:
            self._seen.clear()
        self._seen.append((now, step))
        while len(self._seen) > 2 and now - self._seen[1][0] >= RATE_SECONDS:
            self._seen.popleft()
        (then, before) = self._seen[0]
        return (step - before) / (now - then) if now > then and step > before else None


def job_frame(
    job: JobView,
    *,
    rate: float | None,
    usage: DeviceUsage,
    lines: Iterable[LogLine],
    now: datetime,
    width: int,
    height: int,
) -> list[Line]:
    """One job: its state, how far it is and how fast, its newest numbers and lines."""
    shown = [_heading(job), *_where(job), *_progress(job, rate, now, width)]
    if words := usage.words():
        shown.append([Word("uses    ", "bold"), Word(f"{words}, mean over the ranks", "")])
    shown += _numbers(job, width, rows=max(1, (height - len(shown)) // 3))
    room = height - len(shown) - 1
    tail = list(lines)[-room:] if room > 0 else []
    if tail:
        shown.append([Word("", "")])
        shown += [_log_line(line) for line in tail]
    return [cut(line, width) for line in shown[:height]]


def _heading(job: JobView) -> Line:
    state = out.styled(out.state_of(job))
    return [Word(job.name, "bold"), Word("  ", ""), state, Word(f"  {job.id}", "dim")]


def _where(job: JobView) -> Iterator[Line]:
    if job.queue is not None:
        yield [Word("waits   ", "bold"), Word(out.turn(job.queue), "")]
    if job.plan_sentence:
        yield [Word("batch   ", "bold"), Word(job.plan_sentence, "")]
    if job.attempt is not None:
        ranks = f"{job.attempt.world_size} rank{'s' if job.attempt.world_size != 1 else ''}"
        yield [
            Word("attempt ", "bold"),
            Word(f"{job.attempt.number}, {ranks} on {', '.join(job.attempt.nodes)}", ""),
        ]
    outcome = job.outcome
    if outcome is not None and job.state is not JobState.SUCCEEDED:
        yield [
            Word("outcome " if job.state in TERMINAL else "before  ", "bold"),
            Word(out.harmless(outcome.message), "red"),
        ]


def _progress(job: JobView, rate: float | None, now: datetime, width: int) -> Iterator[Line]:
    progress = job.progress
    took = out.took(job, now)
    if progress is None:
        return
    words = [f"{progress.step}/{progress.steps}" if progress.steps else f"step {progress.step}"]
    if progress.fraction is not None:
        words.append(f"{100 * progress.fraction:.0f} %")
    if rate is not None and job.state not in TERMINAL:
        words.append(f"{rate:.1f} steps/s" if rate >= 1 else f"{1 / rate:.1f} s per step")
    if took is not None:
        words.append(f"took {out.duration(round(took))}")
    if progress.eta_seconds is not None and job.state is JobState.RUNNING:
        words.append(f"{out.duration(round(progress.eta_seconds))} left")
    text = "  ".join(words)
    room = min(BAR_COLUMNS, width - len(text) - 10)
    bar = (
        _bar(progress.fraction, room)
        if progress.fraction is not None and room >= BAR_COLUMNS_MIN
        else []
    )
    yield [Word("steps   ", "bold"), *bar, Word(text, "")]


def _bar(fraction: float, columns: int) -> Line:
    full, rest = ("━", "─") if out.can_write("━─") else ("#", ".")
    done = round(min(1.0, max(0.0, fraction)) * columns)
    return [Word(full * done, "cyan"), Word(rest * (columns - done) + "  ", "dim")]


def _numbers(job: JobView, width: int, rows: int) -> Iterator[Line]:
    """The newest values, as many as fit in a few rows."""
    latest = job.progress.latest if job.progress is not None else {}
    names: list[str] = [name for name in FIRST_METRICS if name in latest]
    # The parts of a step's time mean something only beside each other: lockstep metrics and the
    # last table have them.
    names += sorted(
        name for name in latest if name not in FIRST_METRICS and not name.startswith(PARTS)
    )
    line: Line = []
    for name in names:
        value = _value(name, latest[name])
        if line and len("".join(line)) + 3 + len(name) + 1 + len(value) > width:
            yield line
            rows -= 1
            line = []
            if rows <= 0:
                return
        gap = "   " if line else "latest  " if name == names[0] else " " * 8
        odd = not math.isfinite(latest[name])
        line += [Word(gap, "bold"), Word(f"{name} ", "dim"), Word(value, "bold red" if odd else "")]
    if line:
        yield line


def _value(name: str, value: float) -> str:
    return out.size(value) if metadata_of(name).kind == "bytes" else out.number(value)


def _log_line(line: LogLine) -> Line:
    # Colours of the job's own would end in the middle of a cut line.
    return [
        Word(f"{out.writer(line.rank)} ", "dim"),
        Word(out.colourless(line.text).expandtabs(), ""),
    ]


def service_frame(
    url: str,
    nodes: Sequence[NodeView],
    jobs: Sequence[JobView],
    usage: Mapping[str, DeviceUsage],
    *,
    now: datetime,
    width: int,
    height: int,
) -> list[Line]:
    """The whole service: its nodes with their devices, then the jobs that run, start and wait."""
    states = Counter(job.state for job in jobs)
    counts = (
        ", ".join(f"{states[state]} {state}" for state in ORDER if states[state])
        or "no job is queued or running"
    )
    devices = [device for node in nodes for device in node.devices]
    busy = sum(device.held for device in devices)
    shown: list[Line] = [
        [Word("lockstep", "bold"), Word(f"  {url}  {now.astimezone():%H:%M:%S}", "dim")],
        [Word(f"{busy} of {len(devices)} devices busy", "bold"), Word(f"  {counts}", "")],
        [Word("", "")],
        *_table(["NODE", "STATE", "DEVICES", "", "SEEN"], [_node_row(node, now) for node in nodes]),
        [Word("", "")],
    ]
    ordered = sorted(
        jobs, key=lambda job: (ORDER.index(job.state), job.queue.position if job.queue else 0)
    )
    columns = ["ID", "NAME", "STATE", "PROGRESS", "LOSS", "RANKS", "USES", "TOOK", "LEFT", "WHY"]
    if jobs:
        rows = [_job_row(job, usage.get(job.id, DeviceUsage()), now) for job in ordered]
        table = list(_table(columns, rows, right={"PROGRESS", "LOSS", "RANKS"}))
        room = height - len(shown)
        shown += table if len(table) <= room else table[: max(1, room - 1)]
        if len(table) > room:
            shown.append(
                [Word(f"and {len(table) - max(1, room - 1)} more: lockstep ps lists them", "dim")]
            )
    return [cut(line, width) for line in shown[:height]]


def _node_row(node: NodeView, now: datetime) -> list[str]:
    full, free = ("■", "□") if out.can_write("■□") else ("#", ".")
    squares = "".join(full if device.held else free for device in node.devices)
    kinds = Counter(device.type for device in node.devices)
    names = ", ".join(f"{count} × {kind}" for kind, count in sorted(kinds.items()))
    return [
        node.name,
        out.styled(node.state),
        squares or "-",
        names,
        f"{out.age(node.seen_at, now)} ago",
    ]


def _job_row(job: JobView, usage: DeviceUsage, now: datetime) -> list[str]:
    progress, ranks = job.progress, job.attempt.world_size if job.attempt is not None else None
    if ranks is None and job.plan is not None:
        ranks = job.plan.world_size
    done, loss, left = "-", "-", "-"
    if progress is not None and job.started_at is not None:
        done = f"{progress.step}/{progress.steps}" if progress.steps else str(progress.step)
        newest = progress.latest.get("train/loss", progress.latest.get("loss"))
        loss = out.loss(newest) if newest is not None else "-"
        left = out.duration(progress.eta_seconds and round(progress.eta_seconds))
    return [
        out.short_id(job.id),
        job.name,
        out.styled(out.state_of(job)),
        done,
        loss,
        str(ranks) if ranks is not None else "-",
        usage.words() or "-",
        out.duration(out.took(job, now)),
        left,
        job.queue.reason if job.queue is not None else "",
    ]


def _table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], right: Iterable[str] = ()
) -> Iterator[Line]:
    to_right = [column in set(right) for column in columns]
    for number, line in enumerate(out.aligned([columns, *rows], to_right)):
        yield [Word(word, "bold") for word in line] if number == 0 else line


def cut(line: Line, width: int) -> Line:
    """Return the beginning of a line that fits; an ellipsis marks a cut."""
    if out.columns_of("".join(line)) <= width:
        return line
    kept: Line = []
    room = width - 1
    for word in line:
        end = len(word)
        while end and out.columns_of(word[:end]) > room:
            end -= 1
        kept.append(Word(word[:end], word.style))
        room -= out.columns_of(word[:end])
        if end < len(word):
            break
    return [*kept, Word("…" if out.can_write("…") else ">", "dim")]
