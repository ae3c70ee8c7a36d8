"""Reader of an attempt's spools that parses them as plain text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def records(folder: Path) -> dict[int, dict[str, Any]]:
    """Return all values by step. A step may have several lines; no name occurs twice."""
    found: dict[int, dict[str, Any]] = {}
    for line in (folder / "spool/metrics.jsonl").read_text().splitlines():
        document = json.loads(line)
        values = found.setdefault(document["step"], {})
        assert not values.keys() & document["values"].keys()
        values.update(document["values"])
    return found


def events(folder: Path, kind: str) -> list[dict[str, Any]]:
    lines = (folder / "spool/events.jsonl").read_text().splitlines()
    return [event["data"] for event in map(json.loads, lines) if event["kind"] == kind]
