"""A million points with four outliers: they are visible at every zoom, found in the picture.

The test has no information about their position. It detects marks at the edges and needles through
the middle, zooms in on them, and at the end reads the steps that were planted.
"""

from __future__ import annotations

from dataclasses import dataclass

from playwright.sync_api import Locator

from tests.dashboard.browser import Visitor
from tests.dashboard.test_charts import card, drag, picture, point_at
from tests.dashboard.work import PLANTED, Work
from tests.harness.processes import until

ZOOMS = 5
"""Each to a sixth: 1,000,000 steps, then 167,000, 28,000, 4,600, 770 and 130."""
SHARE = 1 / 6
PIXELS = tuple(pixels / 360 for pixels in (1.5, 0.5, 2.5))
"""Fractions of a card's width.

From the beginning of a column to its middle, and the error of ``point_at``. At the deepest zoom a
step has less than three pixels, and the mark of one may begin in the pixel of the step before it.
"""

LOOK = """(canvas, [left, top, width, height]) => {
  const ratio = canvas.width / canvas.clientWidth;
  const [x0, y0, w, h] = [left, top, width, height].map((one) => Math.round(one * ratio));
  const { data } = canvas.getContext("2d").getImageData(x0, y0, w, h);
  const rgb = (x, y) => data.subarray(4 * (y * w + x), 4 * (y * w + x) + 3);
  // Only the line is in a colour: ground and grid are grey.
  const colour = (x, y) => Math.max(...rgb(x, y)) - Math.min(...rgb(x, y));
  const isDrawn = (x, y) => colour(x, y) > 24;
  const share = (x, from, to) => {
    let drawn = 0;
    const rows = [Math.floor(from * h), Math.floor(to * h)];
    for (let y = rows[0]; y < rows[1]; y += 1) drawn += isDrawn(x, y) ? 1 : 0;
    return drawn / (rows[1] - rows[0]);
  };
  const columns = (holds) => {
    const groups = [];
    for (let x = 0; x < w; x += 1)
      if (holds(x)) {
        const last = groups.at(-1);
        if (last !== undefined && x - last.at(-1) <= 4) last.push(x);
        else groups.push([x]);
      }
    return groups.map((group) => (group[0] + group.at(-1)) / 2 / w);
  };
  return {
    up: columns((x) => share(x, 0.2, 0.42) > 0.9),
    down: columns((x) => share(x, 0.58, 0.8) > 0.9),
    upper: columns((x) => share(x, 3 / h, 8 / h) > 0.7),
    lower: columns((x) => share(x, (h - 8) / h, (h - 3) / h) > 0.7),
  };
}"""


@dataclass(frozen=True)
class Seen:
    """Positions of outliers, as fractions of the drawing area's width."""

    up: list[float]
    """Needles from the line up, through most of the upper half."""
    down: list[float]
    upper: list[float]
    """Marks drawn at the upper edge, which has nothing else."""
    lower: list[float]


def look(at: Locator) -> Seen:
    """Return the visible outliers of the chart when it is completely drawn."""
    picture(at)
    canvas, area = at.locator("canvas"), at.locator(".u-over")
    outer, inner = canvas.bounding_box(), area.bounding_box()
    assert outer is not None
    assert inner is not None
    place = [inner["x"] - outer["x"], inner["y"] - outer["y"], inner["width"], inner["height"]]
    return Seen(**canvas.evaluate(LOOK, place))


def shown(chart: Locator, value: str, pixel: float) -> tuple[str, int]:
    """Return value and step of the tooltip over a pixel of the mark of a value."""
    seen = look(chart)
    places = {
        "Infinity": seen.upper[:1],
        "100": seen.up[:1],
        "-100": seen.down[:1],
        "NaN": seen.lower[-1:],
    }
    point_at(chart, sum(places[value]) + pixel)
    tooltip = chart.page.get_by_test_id("chart-tooltip")
    cells = tooltip.get_by_role("row", include_hidden=True).last.get_by_role(
        "cell", include_hidden=True
    )
    words, step = cells.nth(0).inner_text(), cells.nth(1).inner_text()
    found = words.replace("\N{MINUS SIGN}", "-").replace("∞", "Infinity")
    return found, int("".join(filter(str.isdigit, step)))


def test_outliers_among_a_million_points_are_visible_at_every_zoom(
    visitor: Visitor, work: Work
) -> None:
    job = work.million("million")
    visitor.expects(
        "willReadFrequently"
    )  # The test reads the picture repeatedly, which no page does.
    visitor.go(f"/jobs/{job}", "million")
    chart = card(visitor)
    seen = look(chart)
    for zoom in range(ZOOMS + 1):
        if zoom:
            middle = (seen.up[0] + seen.up[-1]) / 2
            drag(chart, max(0.0, middle - SHARE / 2), min(1.0, middle + SHARE / 2))
            seen = look(chart)
        # In between, the infinity has a bucket of its own, which reaches the upper edge.
        assert (len(seen.up) in (1, 2), len(seen.down)) == (True, 1), f"zoom {zoom}: {seen}"
        assert seen.upper, f"zoom {zoom}: no infinity, {seen}"
        assert seen.lower, f"zoom {zoom}: no NaN, {seen}"
    # Now they are separate, in the order in which they were planted.
    assert max(seen.upper[:1]) < seen.up[0] < seen.down[0] < seen.lower[-1], seen
    for value, step in PLANTED.items():
        # A finer answer may still come, and move the columns.
        def is_told(expected: tuple[str, int] = (value, step)) -> bool:
            return any(shown(chart, expected[0], pixel) == expected for pixel in PIXELS)

        until(is_told, 60, f"{value} at step {step} in the tooltip")
