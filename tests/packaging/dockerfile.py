"""Reader of the Dockerfile's stages and instructions, for tests."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]

Instruction = tuple[str, str]


def stages() -> dict[str, tuple[str, list[Instruction]]]:
    """Return each stage's parent and instructions, by name."""
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    text = "\n".join(line for line in lines if not line.startswith("#"))
    found: dict[str, tuple[str, list[Instruction]]] = {}
    current = ""
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        keyword, _, rest = line.strip().partition(" ")
        if keyword == "FROM":
            parent, _, current = rest.partition(" AS ")
            found[current] = (parent, [])
        elif keyword and current:
            found[current][1].append((keyword, rest.strip()))
    return found


def inherited(stage: str) -> list[Instruction]:
    """Return a stage's instructions after those of its parents."""
    parent, own = stages()[stage]
    return (inherited(parent) if parent in stages() else []) + own


def copies(stage: str, source: str) -> list[str]:
    """Return the paths that a stage copies from another one."""
    option = f"--from={source} "
    return [
        rest.removeprefix(option).split()[0]
        for keyword, rest in inherited(stage)
        if keyword == "COPY" and rest.startswith(option)
    ]
