"""Content of pages that are generated from code.

Not here: whether they are fresh (``make check``).
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lockstep.domain.life.lifecycle import TRANSITIONS
from lockstep.domain.life.outcomes import Reason

ROOT = Path(__file__).parents[2]
PAGES = ("state_machine.md", "reasons.md", "spec.md", "environment.md")


@pytest.mark.parametrize("page", ["state_machine.md", "reliability.md"])
def test_the_diagram_has_an_arrow_for_every_step_and_source(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    arrows = set(re.findall(r"^    (\w+) --> (\w+): (\w+)$", text, re.MULTILINE))
    assert arrows == {
        (source, transition.target, name)
        for name, transition in TRANSITIONS.items()
        for source in transition.sources
    }


def test_every_reason_state_and_field_has_a_meaning() -> None:
    for name in PAGES:
        for line in (ROOT / "docs" / name).read_text().splitlines():
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            if line.startswith("| `"):
                assert cells[-1] or cells[0] in {
                    f"`{Reason.SUCCEEDED}`",
                    f"`{Reason.CANCELLED}`",
                }, line
                assert cells[1], line
