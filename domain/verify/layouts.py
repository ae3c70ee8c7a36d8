"""Layouts of a verification: ranks times micro-batch, such as ``2x4``."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

DEFAULT: Final = "1x8,2x4,3x2"
_LAYOUT: Final = re.compile(r"([1-9][0-9]{0,3})x([1-9][0-9]{0,8})")


class Layout(NamedTuple):
    """One split of the batch."""

    world_size: int
    micro_size: int

    def __str__(self) -> str:
        return f"{self.world_size}x{self.micro_size}"


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


def fitting(layouts: list[Layout], devices: int) -> list[Layout]:
    """The layouts with no more ranks than there are devices, each once."""
    return list(
        dict.fromkeys(Layout(min(each.world_size, devices), each.micro_size) for each in layouts)
    )
