"""Pages that are generated from code agree with the code, and an outdated one is detected."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.domain.life.lifecycle import TRANSITIONS
from lockstep.domain.life.outcomes import Reason

ROOT = Path(__file__).parents[2]
PAGES = ("state_machine.md", "reasons.md", "spec.md", "environment.md")
FILLED = ("reliability.md", "cli.md", "variables.md")
"""Pages with marks, between which the generated text is written."""


def _run(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(script), *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=250,
    )


def test_the_committed_pages_are_fresh() -> None:
    done = _run(ROOT / "docs" / "generate.py", "--check")
    assert done.returncode == 0, done.stderr


def test_a_stale_page_is_named_and_not_touched_by_the_check(tmp_path: Path) -> None:
    (tmp_path / "domain").symlink_to(ROOT / "domain")
    (tmp_path / "docs").mkdir()
    for name in ("generate.py", "programs.py", "contract.md", *FILLED, *PAGES):
        shutil.copy(ROOT / "docs" / name, tmp_path / "docs" / name)
    stale = tmp_path / "docs" / "reasons.md"
    stale.write_text("old\n")
    checked = _run(tmp_path / "docs" / "generate.py", "--check")
    assert (checked.returncode, checked.stderr) == (1, "docs/reasons.md is stale: run make docs\n")
    assert stale.read_text() == "old\n"
    assert _run(tmp_path / "docs" / "generate.py").returncode == 0
    assert stale.read_text() == (ROOT / "docs" / "reasons.md").read_text()


@pytest.mark.parametrize("page", ["state_machine.md", "reliability.md"])
def test_the_diagram_has_an_arrow_for_every_step_and_source(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    arrows = set(re.findall(r"^    (\w+) --> (\w+): (\w+)$", text, re.MULTILINE))
    assert arrows == {
        (source, transition.target, name)
        for name, transition in TRANSITIONS.items()
        for source in transition.sources
    }


def test_generated_text_goes_between_its_marks_and_other_text_stays(tmp_path: Path) -> None:
    (tmp_path / "domain").symlink_to(ROOT / "domain")
    (tmp_path / "docs").mkdir()
    for name in ("generate.py", "programs.py", *FILLED):
        shutil.copy(ROOT / "docs" / name, tmp_path / "docs" / name)
    page = tmp_path / "docs" / "reliability.md"
    fresh = page.read_text()
    page.write_text(
        re.sub(r"(<!-- begin: \w+ -->\n).*?(<!-- end)", r"\1old\n\2", fresh, flags=re.DOTALL)
    )
    assert "stateDiagram" not in page.read_text()
    assert _run(tmp_path / "docs" / "generate.py").returncode == 0
    assert page.read_text() == fresh
    page.write_text(fresh.replace("<!-- end: faults -->\n", ""))
    assert (
        "expected <!-- begin: faults --> and <!-- end: faults --> once each"
        in _run(tmp_path / "docs" / "generate.py", "--check").stderr
    )


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
