"""Handwritten pages: each is on the map, and each link has a target."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
MAP = DOCS / "README.md"
PAGES = sorted({*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *ROOT.glob("*/README.md")})
WRAPPED = (
    *(
        "CONTRIBUTING.md",
        "SECURITY.md",
        "docs/security.md",
        "docs/README.md",
        "docs/cli.md",
        "docs/client.md",
    ),
    *("docs/http.md", "docs/tasks.md", "docs/settings.md"),
    *sorted(page.relative_to(ROOT).as_posix() for page in DOCS.glob("contributing/*.md")),
)
"""Pages whose lines have at most 100 columns. Tables, links and code may be longer."""
COLUMNS_MAX = 100
LINK = re.compile(r"\]\(([^)\s]+)\)")


def _prose(page: Path) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines that are not code."""
    in_code = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code:
            yield number, line


def _links(page: Path) -> list[str]:
    text = "\n".join(re.sub(r"`[^`]*`", "", line) for _, line in _prose(page))
    return [link for link in LINK.findall(text) if not re.match(r"[a-z]+:", link)]


def _anchors(page: Path) -> set[str]:
    """Return the anchors that a Markdown viewer makes of a page's headings."""
    headings = (line.lstrip("#").strip() for _, line in _prose(page) if line.startswith("#"))
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in kept}


def _leads_somewhere(page: Path, link: str) -> bool:
    file, _, anchor = link.partition("#")
    target = (page.parent / file).resolve() if file else page
    if not target.exists():
        return False
    return not anchor or target.suffix != ".md" or anchor in _anchors(target)


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def test_every_page_is_on_the_map() -> None:
    linked = {(DOCS / link.partition("#")[0]).resolve() for link in _links(MAP)}
    missing = {*DOCS.rglob("*.md")} - linked - {MAP}
    assert sorted(map(_name, missing)) == []


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_link_leads_somewhere(page: Path) -> None:
    assert [link for link in _links(page) if not _leads_somewhere(page, link)] == []


@pytest.mark.parametrize("name", WRAPPED)
def test_lines_are_wrapped(name: str) -> None:
    long = [
        number
        for number, line in _prose(ROOT / name)
        if len(line) > COLUMNS_MAX and not line.startswith("|") and "](" not in line
    ]
    assert long == []


def test_every_reader_has_a_part_of_the_map() -> None:
    headings = [line for _, line in _prose(MAP) if line.startswith("## ")]
    readers = [heading.split()[2].rstrip(":") for heading in headings]
    assert readers == ["users", "operators", "contributors"]
