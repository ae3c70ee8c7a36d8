"""Charts in a terminal: every point at its position, non-numbers marked, within the given width."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.cli.text import output as out
from lockstep.cli.text.chart import ChartLine, draw
from lockstep.domain.series_views import MetricsView, SeriesView
from tests.client import examples
from tests.client.server import ReplayServer
from tests.client.terminal import CommandLine

METRICS = "/v1/jobs/last/metrics"
DOTS = {1: (0, 0), 2: (0, 1), 3: (0, 2), 4: (1, 0), 5: (1, 1), 6: (1, 2), 7: (0, 3), 8: (1, 3)}
"""Position (column, row) of each numbered dot of a braille letter in the Unicode standard."""


def _curve(
    values: list[float], low: list[float] | None = None, high: list[float] | None = None
) -> ChartLine:
    return ChartLine(list(range(1, len(values) + 1)), values, low or values, high or values)


def _text(lines: list[list[out.Word]]) -> list[str]:
    return ["".join(line) for line in lines]


def _dots(lines: list[str]) -> set[tuple[int, int]]:
    """Return all dots of a drawing, counted from the top left corner inside the axis."""
    found = set()
    for row, line in enumerate(each.partition("┤")[2] for each in lines if "┤" in each):
        for column, letter in enumerate(line):
            bits = ord(letter) - 0x2800 if letter != " " else 0
            found |= {
                (2 * column + x, 4 * row + y)
                for dot, (x, y) in DOTS.items()
                if bits >> (dot - 1) & 1
            }
    return found


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(width=32), min_size=1, max_size=300),
    st.integers(20, 120),
    st.integers(1, 12),
)
def test_every_number_has_its_dot_and_everything_else_its_mark(
    values: list[float], width: int, height: int
) -> None:
    lines = _text(draw([_curve(values)], width, height, out.number))
    assert max(map(len, lines)) <= max(width, 32)
    dots, finite = _dots(lines), [value for value in values if math.isfinite(value)]
    inner = len(lines[0].partition("┤")[2])
    marks = lines[height][-inner:] if len(lines) == height + 2 else ""
    assert bool(marks) == (len(finite) < len(values))
    for index, value in enumerate(values):
        x = round(index * (2 * inner - 1) / (len(values) - 1)) if len(values) > 1 else 0
        if math.isfinite(value):
            low, high = min(finite), max(finite)
            y = round((1 - (value - low) / (high - low) if high > low else 0.5) * (4 * height - 1))
            # The dot, or its neighbour if the two computations round differently.
            assert {(x, y - 1), (x, y), (x, y + 1)} & dots
        else:
            assert lines[height][len(lines[0]) - inner + x // 2] in "N+-"


def test_a_spike_inside_a_bucket_reaches_the_top() -> None:
    flat = [1.0] * 50
    spiked = [*flat[:25], 9.0, *flat[26:]]
    plain, with_spike = (
        _text(draw([_curve(flat, high=flat)], 60, 8, out.number)),
        _text(draw([_curve(flat, high=spiked)], 60, 8, out.number)),
    )
    assert with_spike[0].lstrip().startswith("9 ┤")
    assert any(y == 0 for _, y in _dots(with_spike))
    assert len({y for _, y in _dots(plain)}) == 1


def test_the_band_is_lighter_than_a_line() -> None:
    wide = _text(draw([_curve([5.0] * 80, [0.0] * 80, [10.0] * 80)], 60, 8, out.number))
    full = len(_dots(wide)) / (2 * len(wide[0].partition("┤")[2]) * 32)
    assert 0.4 < full < 0.7


@pytest.mark.parametrize(("value", "mark"), [(math.nan, "N"), (math.inf, "+"), (-math.inf, "-")])
def test_a_single_point_that_is_no_number_is_marked_below_its_step(value: float, mark: str) -> None:
    lines = _text(draw([_curve([1.0] * 500 + [value] + [2.0] * 500)], 70, 6, out.number))
    row = lines[6]
    assert row.strip() == mark
    assert abs(row.index(mark) - (len(lines[0]) + lines[0].index("┤")) // 2) <= 1


def test_a_terminal_without_braille_gets_stars() -> None:
    lines = _text(draw([_curve([1.0, 2.0, 3.0])], 40, 5, out.number, braille=False))
    assert all(line.isascii() for line in lines)
    assert sum(line.count("*") for line in lines) >= 5


def test_metrics_in_a_pipe_are_a_table_and_a_chart_on_demand(
    lockstep: CommandLine, server: ReplayServer
) -> None:
    server.on("GET", METRICS, examples.metrics(examples.series("train/loss", [5.5, "NaN", 2.25])))
    assert "⠁" not in lockstep("metrics", "last").out
    said = lockstep("metrics", "last", "-o", "chart")
    first, *drawn = said.out.splitlines()
    assert first == "train/loss  2.25 at step 3, loss  not a number first at step 2"
    assert len(drawn) == 12 + 3
    assert drawn[12].split() == ["N"]
    assert "\x1b" not in said.out


def test_the_losses_are_drawn_first_and_others_by_name(
    lockstep: CommandLine, server: ReplayServer
) -> None:
    found: MetricsView = examples.run_metrics()
    server.on("GET", METRICS, found)
    assert lockstep("metrics", "last", "-o", "chart").out.startswith("train/loss")
    both = lockstep("metrics", "last", "-o", "chart", "--names", "time/step_seconds,train/loss").out
    assert both.index("time/step_seconds") < both.index("train/loss")


def test_attempts_are_in_one_chart_and_omitted_series_are_named(
    lockstep: CommandLine, server: ReplayServer
) -> None:
    two = [examples.series("a/x", [1.0, 2.0]), examples.series("a/x", [3.0, 4.0], attempt=2)]
    many: list[SeriesView] = [examples.series(f"b/{number}", [1.0]) for number in range(9)]
    server.on("GET", METRICS, examples.metrics(*two, *many))
    said = lockstep("metrics", "last", "-o", "chart")
    assert said.out.count("a/x") == 1
    assert "attempt 1  attempt 2" in said.out
    assert "2 more series are not drawn" in said.err
