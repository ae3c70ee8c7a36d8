"""A chart of one series in a terminal.

Its line, the band between its extremes, and where it was not a number.

One cell holds 2 × 4 dots of a braille letter; a terminal that cannot write those gets one ``*`` per
cell. The band is drawn at every second dot, so that it differs from the line without colour too.
Points outside the numbers cannot be drawn to scale and must not be missed: they are marked in a row
of their own below the chart, ``N`` for NaN, ``+`` and ``-`` for the infinities.

Not here: which series are drawn, and how wide (``cli.jobs.metrics``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from lockstep.cli.text.output import Word

BRAILLE_FIRST: Final = 0x2800
_BITS: Final = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""Of the dot in column x and row y of a cell."""
COLOURS: Final = ("cyan", "yellow", "green", "magenta")
"""Of the curves in one chart, in their order."""
MARK_STYLE: Final = "bold red"


@dataclass(frozen=True)
class ChartLine:
    """One attempt's points of one series, in the order of their steps.

    Any value may be non-finite.
    """

    step: Sequence[int]
    value: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


@dataclass(frozen=True)
class _Scale:
    """From steps and values to dots, the first of which is at the top left."""

    first: int
    last: int
    low: float
    high: float
    columns: int
    rows: int

    def column(self, step: int) -> int:
        span = self.last - self.first
        return round((step - self.first) * (self.columns - 1) / span) if span else 0

    def row(self, value: float) -> int:
        # Halved first: the distance between two floats may be no float any more.
        span = self.high / 2 - self.low / 2
        share = (value / 2 - self.low / 2) / span if span else 0.5
        return round((1 - share) * (self.rows - 1))


class _Canvas:
    """Dots, and which curve set each cell's colour."""

    def __init__(self, width: int, height: int, *, braille: bool):
        self.across, self.down = (2, 4) if braille else (1, 1)
        self._braille = braille
        self._bits = [[0] * width for _ in range(height)]
        self._owner = [[-1] * width for _ in range(height)]

    def dot(self, x: int, y: int, owner: int) -> None:
        cell_x, cell_y = x // self.across, y // self.down
        self._bits[cell_y][cell_x] |= _BITS[x % self.across][y % self.down]
        self._owner[cell_y][cell_x] = owner

    def rows(self) -> Iterator[list[Word]]:
        for row in zip(self._bits, self._owner, strict=True):
            yield [
                Word(
                    "".join(self._letter(bits) for bits, _ in cells),
                    COLOURS[owner % len(COLOURS)] if owner >= 0 else "",
                )
                for owner, cells in groupby(zip(*row, strict=True), key=lambda cell: cell[1])
            ]

    def _letter(self, bits: int) -> str:
        if not bits:
            return " "
        return chr(BRAILLE_FIRST + bits) if self._braille else "*"


def draw(
    curves: Sequence[ChartLine],
    width: int,
    height: int,
    shown: Callable[[float], str],
    *,
    braille: bool = True,
) -> list[list[Word]]:
    """Return the lines of a chart.

    Parameters
    ----------
    curves : sequence of Curve
        Drawn over each other, each in its colour; at least one point among them.
    width, height : int
        Columns of the whole, and rows of the drawing; two or three more hold the axis and values
        that are no numbers.
    shown : callable
        Formats a value at the axis.
    braille : bool
        True if the terminal can write braille letters.
    """
    numbers = [
        each for curve in curves for part in (curve.value, curve.low, curve.high) for each in part
    ]
    finite = [each for each in numbers if math.isfinite(each)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    labels = _labels(low, high, height, shown) if finite else [""] * height
    margin = max(map(len, labels))
    inner = max(8, width - margin - 2)
    steps = [step for curve in curves for step in curve.step]
    canvas = _Canvas(inner, height, braille=braille)
    scale = _Scale(min(steps), max(steps), low, high, inner * canvas.across, height * canvas.down)
    for owner, curve in enumerate(curves):
        _band(canvas, scale, curve, owner)
    for owner, curve in enumerate(curves):
        _line(canvas, scale, curve, owner)
    corner = "┤" if braille else "|"
    lines = [
        [Word(f"{label:>{margin}} {corner}", "dim"), *row]
        for label, row in zip(labels, canvas.rows(), strict=True)
    ]
    if marks := _marks(scale, curves, canvas.across, inner):
        lines.append([Word(" " * (margin + 2), ""), Word(marks, MARK_STYLE)])
    first, last = str(scale.first), str(scale.last) if scale.last > scale.first else ""
    lines.append([Word(" " * (margin + 2) + first + last.rjust(inner - len(first)), "dim")])
    return lines


def _labels(low: float, high: float, height: int, shown: Callable[[float], str]) -> list[str]:
    """The scale at the left: its ends and its middle."""
    middle = (height - 1) // 2
    share = 1 - middle / (height - 1) if height > 1 else 0.5
    if low == high:
        return [shown(low) if row == middle else "" for row in range(height)]
    at = {height - 1: low, middle: low * (1 - share) + high * share, 0: high}
    return [shown(at[row]) if row in at else "" for row in range(height)]


def _band(canvas: _Canvas, scale: _Scale, curve: ChartLine, owner: int) -> None:
    """From the lowest to the highest value of each column, at every second dot.

    A single value stands out whole.
    """
    reach: dict[int, tuple[int, int]] = {}
    for step, low, high in zip(curve.step, curve.low, curve.high, strict=True):
        ends = [scale.row(each) for each in (low, high) if math.isfinite(each)]
        if ends:
            x = scale.column(step)
            top, bottom = reach.get(x, (ends[0], ends[0]))
            reach[x] = min(top, *ends), max(bottom, *ends)
    for x, (top, bottom) in reach.items():
        for y in range(top, bottom + 1):
            # Always the extremes: the band shows spikes of one point.
            if y in (top, bottom) or (x + y) % 2 == 0:
                canvas.dot(x, y, owner)


def _line(canvas: _Canvas, scale: _Scale, curve: ChartLine, owner: int) -> None:
    """From point to point; a value that is no number leaves a gap."""
    before: tuple[int, int] | None = None
    for step, value in zip(curve.step, curve.value, strict=True):
        if not math.isfinite(value):
            before = None
            continue
        here = scale.column(step), scale.row(value)
        for x, y in _between(before or here, here):
            canvas.dot(x, y, owner)
        before = here


def _between(start: tuple[int, int], end: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """The dots of a straight line, both ends included."""
    across, down = end[0] - start[0], end[1] - start[1]
    count = max(abs(across), abs(down), 1)
    for number in range(count + 1):
        yield start[0] + round(across * number / count), start[1] + round(down * number / count)


def _marks(scale: _Scale, curves: Sequence[ChartLine], across: int, width: int) -> str:
    """A letter below each column in which a value is no number; empty where all are."""
    row = [" "] * width
    for curve in curves:
        for step, *values in zip(curve.step, curve.value, curve.low, curve.high, strict=True):
            odd = [each for each in values if not math.isfinite(each)]
            if odd:
                first = odd[0]
                row[scale.column(step) // across] = (
                    "N" if math.isnan(first) else "+" if first > 0 else "-"
                )
    return "".join(row).rstrip()
