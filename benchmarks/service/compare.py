"""Contestants take turns, and their figures are compared.

Medians over rounds, ratios within a round, targets.

All contestants of a row are up at once and each round asks all of them, in an order that rotates,
so that other work on the machine affects all alike. The first round warms up and is dropped. A
ratio is the median of the rounds' own ratios: it does not contain the slowdown of a whole round.

Not here: the output (``table``).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

Sample = dict[str, float]
"""The figures of one contestant in one round, by key."""


@dataclass(frozen=True)
class Target:
    """Required value of a figure, or of its ratio to a peer's."""

    sign: Literal["≤", "≥"]
    limit: float
    of: Literal["ours", "ratio"] = "ours"

    def met(self, value: float) -> bool:
        return value <= self.limit if self.sign == "≤" else value >= self.limit

    def words(self) -> str:
        return f"{self.sign} {self.limit:g}{'×' if self.of == 'ratio' else ''}"


@dataclass(frozen=True)
class Figure:
    """One line of the table."""

    key: str
    what: str
    unit: str
    targets: tuple[Target, ...] = ()
    beside: tuple[str, ...] = ()
    """Peers that have it, if they take part."""


@dataclass(frozen=True)
class Contestant:
    """Measured program.

    Attributes
    ----------
    name : str
    measure : callable
        One round; a figure that it does not have is missing.
    database : str or None
        None for a contestant that is compared with ours on every database.
    ours : bool
    """

    name: str
    measure: Callable[[], Sample]
    database: str | None = None
    ours: bool = False


@dataclass
class Bench:
    """One row, ready to be measured."""

    figures: tuple[Figure, ...]
    contestants: list[Contestant]
    absent: dict[str, str] = field(default_factory=dict)
    """Peers that do not take part, with the reason."""
    not_built: tuple[str, ...] = ()
    """Parts of the row that cannot be measured yet."""


@dataclass(frozen=True)
class Line:
    """Results of one figure on one database, compared with one peer."""

    row: str
    what: str
    unit: str
    database: str | None
    ours: float | None
    peer: str | None = None
    theirs: float | None = None
    ratio: float | None = None
    targets: tuple[Target, ...] = ()
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Return True if every measurable target is met; None if there is none."""
        values = {"ours": self.ours, "ratio": self.ratio}
        verdicts = [
            target.met(value) for target in self.targets if (value := values[target.of]) is not None
        ]
        return all(verdicts) if verdicts else None


def rounds_of(bench: Bench, rounds: int) -> dict[tuple[str, str | None], list[Sample]]:
    """Return the samples of each contestant, by name and database; all rounds belong together."""
    contestants = bench.contestants
    found: dict[tuple[str, str | None], list[Sample]] = {
        (one.name, one.database): [] for one in contestants
    }
    for turn in range(rounds + 1):
        for place in range(len(contestants)):
            one = contestants[(turn + place) % len(contestants)]
            sample = one.measure()
            if turn:
                found[one.name, one.database].append(sample)
    return found


def lines_of(
    row: str, bench: Bench, found: dict[tuple[str, str | None], list[Sample]]
) -> list[Line]:
    """Return every figure of our contestants, compared with every peer that has it."""
    lines = [
        line
        for figure in bench.figures
        for ours in bench.contestants
        if ours.ours
        for line in _beside_peers(row, bench, found, figure, ours)
    ]
    return lines + [Line(row, what, "", None, None, note="not built") for what in bench.not_built]


def _beside_peers(
    row: str,
    bench: Bench,
    found: dict[tuple[str, str | None], list[Sample]],
    figure: Figure,
    ours: Contestant,
) -> list[Line]:
    mine = _values(found[ours.name, ours.database], figure.key)
    if mine is None:
        return []
    about: dict[str, Any] = {
        "row": row,
        "what": figure.what,
        "unit": figure.unit,
        "database": ours.database,
    }
    about |= {"ours": statistics.median(mine), "targets": figure.targets}
    lines = []
    for peer in bench.contestants:
        if peer.ours or peer.database not in {None, ours.database}:
            continue
        theirs = _values(found[peer.name, peer.database], figure.key)
        if theirs is not None:
            ratio = statistics.median(a / b for a, b in zip(mine, theirs, strict=True))
            lines.append(
                Line(**about, peer=peer.name, theirs=statistics.median(theirs), ratio=ratio)
            )
    lines += [
        Line(**about, peer=name, note=bench.absent[name])
        for name in figure.beside
        if name in bench.absent
    ]
    return lines or [Line(**about)]


def _values(samples: list[Sample], key: str) -> list[float] | None:
    """Return a figure of every round, or None if the contestant does not have it."""
    values = [sample[key] for sample in samples if key in sample]
    return values if values and len(values) == len(samples) else None
