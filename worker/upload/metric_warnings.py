"""Warnings about a job's metrics, each once: omitted lines and values, full limits, repeated steps.

Not here: the limits (``domain.limits``) and their enforcement (``storage.series.series``); points
of a step that a later attempt repeats (``storage.series.series_query``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from lockstep.domain import limits
from lockstep.domain.training.metrics import StepValues
from lockstep.storage.series.series import OverLimit
from lockstep.worker.folders import Folder
from lockstep.worker.upload.files.lines import Line

LINE_CHARS_SHOWN: Final = 200
REFUSED_NAMES_MAX: Final = 5
"""Names that are warned about because their values are no metrics."""
NAME_CHARS_SHOWN: Final = 60
REPEATED_MAX: Final = 5
"""Series with repeated steps that are named in events."""
STEPS_MAX: Final = 256
"""Steps that are remembered of each series: so many first ones, and so many of the largest. A
series that goes back reaches one of them again, unless it reports steps in another order."""
METRICS_FILE: Final = "$LOCKSTEP_METRICS"


class QuotaWarnings:
    """Warn about points that an attempt's append omitted.

    Parameters
    ----------
    warn : callable
        Receives one sentence for the job's page.
    """

    def __init__(self, warn: Callable[[str], None]):
        self._warn = warn
        self._reported: set[str] = set()

    def report(self, noted: Iterable[OverLimit]) -> None:
        """Report omitted points, at the first excess of each limit."""
        for left_out in noted:
            if left_out.names:
                self._once(
                    f"metrics limited: a job can have at most {left_out.names_max:,} names; "
                    f"points of other names, such as {left_out.names[0]!r}, are dropped"
                )
            if left_out.definitions:
                self._once(
                    f"definitions limited: a job can define at most "
                    f"{limits.METRIC_NAMES_PER_JOB_MAX:,} series; definitions of other names, such "
                    f"as {left_out.definitions[0]!r}, are dropped"
                )
            if left_out.job_is_full:
                self._once(
                    f"metrics limited: the job has {limits.METRIC_POINTS_PER_JOB_MAX:,} points, "
                    "the limit for a job; of further points only the newest value of each series "
                    "is shown"
                )

    def _once(self, message: str) -> None:
        what = message.partition(";")[0]
        if what not in self._reported:
            self._reported.add(what)
            self._warn(message)


class LineWarnings:
    """Warn about lines and values of the metrics file that are left out."""

    def __init__(self, warn: Callable[[str], None]):
        self._warn = warn
        self._bad_lines = 0
        self._refused: dict[str, None] = {}
        """Names whose values are left out, in the order in which they came."""
        self._refused_values = 0
        self._undefined: dict[str, None] = {}
        """Names whose definitions are left out."""
        self._refused_definitions = 0
        self._are_definitions_limited = False

    def bad(self, line: Line, name_of: Callable[[int], str], why: str) -> None:
        """Name the first line that is left out. ``name_of`` names the line at an offset."""
        self._bad_lines += 1
        if self._bad_lines == 1:
            shown = line.text[:LINE_CHARS_SHOWN].decode(errors="replace")
            text = f"; the line is {shown!r}" if shown else ""
            self._warn(f"{name_of(line.offset)} of {METRICS_FILE} is dropped: {why}{text}")

    def refused(self, refused: Mapping[str, str]) -> None:
        """Warn about each name once, for as many names as may be warned about."""
        self._refused_values += len(refused)
        self._name_each(refused, self._refused, "values")

    def definitions_refused(self, refused: Mapping[str, str]) -> None:
        """As :func:`refused`, for definitions of series."""
        self._refused_definitions += len(refused)
        self._name_each(refused, self._undefined, "definitions")

    def too_many_definitions(self) -> None:
        """Report the limit of definitions once."""
        if not self._are_definitions_limited:
            self._are_definitions_limited = True
            self._warn(
                f"definitions limited: {limits.SERIES_DEFINITIONS_PER_ATTEMPT_MAX:,} definitions "
                f"of series in {METRICS_FILE} are stored; further ones are dropped"
            )

    def _name_each(self, refused: Mapping[str, str], named: dict[str, None], what: str) -> None:
        for name, why in refused.items():
            if name in named or len(named) > REFUSED_NAMES_MAX:
                continue
            named[name] = None
            if len(named) <= REFUSED_NAMES_MAX:
                shown, reason = repr(name[:NAME_CHARS_SHOWN]), why[:LINE_CHARS_SHOWN]
                self._warn(f"{what} of {shown} in {METRICS_FILE} are dropped: {reason}")

    def ended(self) -> None:
        """Count at the end. Names are not repeated."""
        if self._bad_lines > 1:
            self._warn(f"{self._bad_lines} lines of {METRICS_FILE} were dropped")
        if self._refused_values > 1:
            more = ", of other names too" if len(self._refused) > REFUSED_NAMES_MAX else ""
            self._warn(f"{self._refused_values} values of {METRICS_FILE} were dropped in all{more}")
        if self._refused_definitions > 1:
            self._warn(
                f"{self._refused_definitions} definitions of {METRICS_FILE} were dropped in all"
            )


class _SeriesSteps:
    """Steps of one series, with the file of each."""

    def __init__(self) -> None:
        self.first: dict[int, str] = {}
        self.largest: dict[int, str] = {}
        self.step_max = -1

    def add(self, step: int, source: str) -> str | None:
        """Return the file that has reported the step before, if one has."""
        before = self.first.get(step) or self.largest.get(step)
        if before is not None:
            return before
        if len(self.first) < STEPS_MAX:
            self.first[step] = source
        elif step > self.step_max:
            self.largest[step] = source
            if len(self.largest) > STEPS_MAX:
                del self.largest[next(iter(self.largest))]
        self.step_max = max(step, self.step_max)
        return None


class Repeats:
    """Repeated steps of all series of an attempt. Several uploaders use it, each in its thread."""

    def __init__(self, folder: Folder, warn: Callable[[str], None], *, ranks: int):
        self._folder = folder
        self._warn = warn
        self._ranks = ranks
        self._lock = threading.Lock()
        self._series: dict[str, _SeriesSteps] = {}
        self._named: set[str] = set()

    def forget(self) -> None:
        """Forget all steps: a restored database gets its records again."""
        with self._lock:
            self._series.clear()

    def note(self, records: Iterable[StepValues], source: str) -> None:
        """Note stored records of a file, and report each series with a repeated step once."""
        with self._lock:
            for record in records:
                for name in record.values:
                    if name in self._named:
                        continue
                    steps = self._series.get(name) or self._series.setdefault(name, _SeriesSteps())
                    before = steps.add(record.step, source)
                    if before is not None:
                        self._report(name, record.step, before, source)

    def _report(self, name: str, step: int, before: str, source: str) -> None:
        self._named.add(name)
        del self._series[name]
        if len(self._named) > REPEATED_MAX or not self._folder.is_first_report(f"repeat:{name}"):
            return
        alone = "let rank 0 alone write it (RANK is 0), or name the series of each rank differently"
        if before != source:
            next_step = f"{before} and {source} both have it: {alone}"
        elif self._ranks > 1 and source == METRICS_FILE:
            next_step = f"if all {self._ranks} ranks write to {source}, {alone}"
        else:
            next_step = "let the step count on over epochs and phases"
        self._warn(
            f"series {name!r} has step {step} more than once in this attempt, so its curve has "
            f"several points there; {next_step}"
        )
