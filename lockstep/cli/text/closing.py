"""Summary of an ended job: outcome, loss, parts of the time, checkpoints, files, further commands.

Not here: the measurement of a step's parts (``engine.runtime.timeline``), and the reasons
(``domain.life.outcomes``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final

from lockstep.cli.text import output as out
from lockstep.client.api import Client
from lockstep.domain import limits
from lockstep.domain.file_views import KeptFilesPage
from lockstep.domain.life.lifecycle import JobState
from lockstep.domain.life.outcomes import Outcome, Reason
from lockstep.domain.series_views import MetricsView, SeriesView
from lockstep.domain.training.series import METRICS
from lockstep.domain.views import JobView

STEP: Final = "time/step_seconds"
PARTS: Final = tuple(
    metric.name for metric in METRICS if metric.name.startswith("time/") and metric.name != STEP
)
LOSSES: Final = ("train/loss", "loss", "eval/loss")
SHOWN_SHARE_MIN: Final = 0.005
"""Parts below half a percent are not worth a word."""


def print_closing(client: Client, job: JobView, url: str) -> None:
    """The table that closes ``submit``."""
    metrics = client.metrics(
        job.id, names=(*LOSSES, STEP, *PARTS), max_points=limits.SERIES_POINTS_MAX
    )
    facts: list[tuple[str, str]] = [*_run(job), *_losses(metrics)]
    if shares := time_shares(metrics.series):
        facts.append(("time went to", words_of(shares)))
    if checkpoints := client.checkpoints(job.id):
        newest = max(checkpoints, key=lambda each: each.step)
        facts.append(
            ("checkpoint", f"step {newest.step}, {out.size(newest.bytes)}, {newest.location}")
        )
    facts += files_facts(job, client.files_page(job.id, limit=1))
    if job.outcome is not None and job.state is not JobState.SUCCEEDED:
        facts += outcome_facts(job.outcome)
    short = out.short_id(job.id)
    facts += [
        ("see more", f"lockstep show {short} · lockstep metrics {short} · lockstep logs {short}"),
        ("page", f"{url}/jobs/{job.id}"),
    ]
    print()
    out.print_facts(facts)


def _run(job: JobView) -> Iterator[tuple[str, str]]:
    yield "job", f"{job.name} ({job.id})"
    yield "state", out.styled(job.state.value)
    if job.plan_sentence:
        yield "batch", job.plan_sentence
    if job.progress is not None:
        total = f" of {job.progress.steps}" if job.progress.steps is not None else ""
        yield "steps", f"{job.progress.step}{total}"
    if job.attempt is not None and job.attempt.number > 1:
        yield "attempts", str(job.attempt.number)
    yield "took", out.duration(out.took(job, datetime.now(UTC)))


def _losses(metrics: MetricsView) -> Iterator[tuple[str, str]]:
    for name in LOSSES:
        values = [
            value
            for series in sorted(_named(metrics.series, name), key=_attempt)
            for value in series.value
        ]
        if values:
            last = f"{out.loss(values[-1])} last"
            yield name, f"{out.loss(values[0])} first, {last}" if len(values) > 1 else last


def _attempt(series: SeriesView) -> int:
    return series.attempt


def _named(series: Iterable[SeriesView], name: str) -> list[SeriesView]:
    return [each for each in series if each.name == name]


def time_shares(series: Iterable[SeriesView]) -> list[tuple[str, float]]:
    """Return each part's share of the steps' time, largest first; empty if steps were not timed.

    A long series arrives as buckets that hold one point each; its sum is then estimated as mean ×
    points stored.
    """
    found = list(series)
    whole = sum(_total(each) for each in _named(found, STEP))
    if whole <= 0:
        return []
    shares = [
        (
            name.removeprefix("time/").removesuffix("_seconds"),
            sum(_total(each) for each in _named(found, name)) / whole,
        )
        for name in PARTS
    ]
    return sorted(((name, share) for name, share in shares if share > 0), key=lambda item: -item[1])


def _total(series: SeriesView) -> float:
    values = series.value
    return sum(values) / len(values) * max(series.count, len(values)) if values else 0.0


def words_of(shares: Iterable[tuple[str, float]]) -> str:
    """The shares in words: ``backward 52 % · forward 31 % · …``."""
    return " · ".join(
        f"{name} {100 * share:.0f} %" for name, share in shares if share >= SHOWN_SHARE_MIN
    )


def files_facts(job: JobView, files: KeptFilesPage) -> Iterator[tuple[str, str]]:
    """Number and size of the kept files, if there are some. ``files`` is any page of them."""
    if files.total:
        size = out.size(files.total_bytes)
        yield "files", f"{files.total:,} ({size}), lockstep files ls {out.short_id(job.id)}"


def outcome_facts(outcome: Outcome) -> Iterator[tuple[str, str]]:
    """Return an attempt's outcome for the user, with the next step."""
    if outcome.reason is Reason.SUCCEEDED:
        yield "outcome", outcome.message
        return
    yield "outcome", f"{outcome.reason}: {outcome.message}"
    if outcome.rank is not None:
        yield "rank", f"{outcome.rank}" + (f" on {outcome.node}" if outcome.node else "")
    elif outcome.node:
        yield "node", outcome.node
    if outcome.signal is not None:
        yield "signal", outcome.signal
    elif outcome.exit_code:
        yield "exit code", str(outcome.exit_code)
    if outcome.exception and outcome.exception not in outcome.message:
        yield "exception", out.harmless(outcome.exception)
    if outcome.last_step is not None:
        yield "last step", str(outcome.last_step)
    if outcome.traceback:
        yield "traceback", out.harmless(outcome.traceback).rstrip()
    elif outcome.log_excerpt:
        # The end of a traceback is the end of the log, too.
        yield "last lines", out.harmless(outcome.log_excerpt).rstrip()
    if outcome.advice:
        yield "what to do", outcome.advice
