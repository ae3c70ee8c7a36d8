"""Layouts of a verification: ranks times micro-batch, such as ``2x4``.

A layout whose ranks complete copies of a cut model (``train.parallel``) keeps the cut; any other
has a whole model on each rank.
"""

from __future__ import annotations

import re
from math import prod
from typing import Any, Final, NamedTuple

DEFAULT: Final = "1x8,2x4,3x2"
"""Layouts of a model that is not cut."""
_LAYOUT: Final = re.compile(r"([1-9][0-9]{0,3})x([1-9][0-9]{0,8})")


class Layout(NamedTuple):
    """One split of the batch."""

    world_size: int
    micro_size: int
    cut: str = ""
    """Cut of each copy of the model, in words."""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.label, self.cut)))

    @property
    def label(self) -> str:
        """Ranks and micro-batch, as they are given."""
        return f"{self.world_size}x{self.micro_size}"


class CopyCut(NamedTuple):
    """Cut of the model of a spec."""

    words: str = ""
    unit: int = 1
    """Ranks of one copy."""

    @classmethod
    def of(cls, document: dict[str, Any]) -> CopyCut:
        """Return the cut of a spec that was accepted."""
        parallel = document["train"].get("parallel") or {}
        parts = {name: count for name, count in parallel.items() if count and count > 1}
        words = ", ".join(f"{name} {count}" for name, count in parts.items())
        return cls(words, prod(parts.values()))

    @property
    def default(self) -> str:
        """Layouts by default: the cut one first, as the reference, and last an uncut rank."""
        return DEFAULT if self.unit == 1 else f"{self.unit}x8,{2 * self.unit}x4,1x8"

    def applied(self, layouts: list[Layout]) -> list[Layout]:
        """Return the layouts, each with the cut that it has."""
        return [
            layout._replace(cut="" if layout.world_size % self.unit else self.words)
            for layout in layouts
        ]


def read_layouts(text: str) -> list[Layout]:
    """The layouts of ``--layouts``; the first is the reference.

    Raises
    ------
    ValueError
        If they are not at least two different layouts.
    """
    found = [_LAYOUT.fullmatch(word.strip()) for word in text.split(",")]
    layouts = [Layout(int(match[1]), int(match[2])) for match in found if match]
    if len(layouts) < len(found) or len(set(layouts)) < max(2, len(layouts)):
        raise ValueError(
            f"expected at least two different layouts of ranks x micro-batch, such as {DEFAULT}, "
            f"got {text!r}"
        )
    return layouts


def fitting(layouts: list[Layout], devices: int, unit: int = 1) -> list[Layout]:
    """The layouts with no more ranks than there are devices, each once.

    Those of whole copies of a cut model, of ``unit`` ranks each, keep at least one.
    """
    found = []
    for layout in layouts:
        step = 1 if layout.world_size % unit else unit
        most = max(step, devices - devices % step)
        found.append(layout._replace(world_size=min(layout.world_size, most)))
    return list(dict.fromkeys(found))
