"""Comparison in the service's benchmark: pairs of contestants, medians, ratios, targets.

Not here: load (``test_load``).
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.service.compare import (
    Bench,
    Contestant,
    Figure,
    Line,
    Sample,
    Target,
    lines_of,
    rounds_of,
)
from benchmarks.service.table import as_json, printed


def counting(values: list[float], order: list[str], name: str) -> Callable[[], Sample]:
    """Contestant that returns one value after the other, and records its turn."""
    left = iter(values)

    def measure() -> Sample:
        order.append(name)
        return {"x": next(left)}

    return measure


def test_contestants_rotate_and_the_first_round_is_dropped() -> None:
    order: list[str] = []
    contestants = [
        Contestant(name, counting([9, 1, 2, 3], order, name), ours=name == "a") for name in "abc"
    ]
    found = rounds_of(Bench((Figure("x", "what", ""),), contestants), rounds=3)
    assert "".join(order) == "abcbcacababc"
    assert found["a", None] == [{"x": 1}, {"x": 2}, {"x": 3}]


def test_a_ratio_is_the_median_of_the_rounds_own_ratios() -> None:
    """A slow round affects both.

    The ratio of medians would be 3 / 4; the rounds have 0.5, 0.75 and 0.5.
    """
    contestants = [
        Contestant("ours", counting([0, 1, 3, 50], [], ""), "sqlite", ours=True),
        Contestant("peer", counting([1, 2, 4, 100], [], ""), "sqlite"),
    ]
    bench = Bench((Figure("x", "what", "", (Target("≤", 0.5, "ratio"),)),), contestants)
    (line,) = lines_of("1", bench, rounds_of(bench, rounds=3))
    assert (line.ours, line.theirs, line.ratio, line.met) == (3, 4, 0.5, True)


def test_a_peer_is_compared_on_its_own_database_or_on_all() -> None:
    contestants = [
        Contestant("ours", lambda: {"x": 1.0}, "sqlite", ours=True),
        Contestant("ours", lambda: {"x": 1.0}, "postgresql", ours=True),
        Contestant("one", lambda: {"x": 2.0}, "sqlite"),
        Contestant("all", lambda: {"x": 4.0}),
        Contestant("other", lambda: {"y": 4.0}),
    ]
    bench = Bench(
        (Figure("x", "what", "", (), ("away", "one")),),
        contestants,
        {"away": "not installed"},
        ("later",),
    )
    lines = lines_of("1", bench, rounds_of(bench, rounds=1))
    assert [(line.database, line.peer, line.theirs, line.note) for line in lines] == [
        ("sqlite", "one", 2.0, ""),
        ("sqlite", "all", 4.0, ""),
        ("sqlite", "away", None, "not installed"),
        ("postgresql", "all", 4.0, ""),
        ("postgresql", "away", None, "not installed"),
        (None, None, None, "not built"),
    ]


def test_a_row_is_met_only_if_all_measurable_targets_are() -> None:
    targets = (Target("≤", 15), Target("≤", 0.2, "ratio"))
    assert Line("2", "", "", None, ours=15.0, ratio=0.2, targets=targets).met is True
    assert Line("2", "", "", None, ours=15.0, ratio=0.3, targets=targets).met is False
    assert Line("2", "", "", None, ours=16.0, targets=targets).met is False
    assert Line("2", "", "", None, ours=None, targets=targets).met is None
    assert Line("3", "", "", None, ours=299.0, targets=(Target("≥", 300),)).met is False


def test_a_line_without_a_peer_or_a_figure_is_printed_too() -> None:
    line = Line("2", "many jobs", "", None, None, note="not built")
    assert printed(line).endswith("not built")
    assert as_json(line)["ours"] is None
