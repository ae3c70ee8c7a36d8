"""Each page in four widths and two themes: as in the committed pictures, and accessible.

``make pictures`` writes the pictures. Look at each that has changed. ``make test`` compares those of
``OFTEN``, where the browser draws as that of the committed pictures.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.dashboard import pictures
from tests.dashboard.browser import NARROW, WIDE, Scheme, violations
from tests.dashboard.conftest import Seeded
from tests.dashboard.pictures import DRAWN_BY, FOLDER, FONTS_LOADED, SIZES, Pixels
from tests.dashboard.site import MOMENT, TOKENS

PAGES: Final = {
    "signin": "/jobs",
    "home": "/",
    "jobs": "/jobs?owner=*",
    "job": "/jobs/{gpt-1b-base}",
    "succeeded": "/jobs/{gpt-350m}",
    "failed": "/jobs/{vit-large}",
    "waiting": "/jobs/{gpt-1b-long}",
    "logs": "/jobs/{vit-large}?tab=logs",
    "timeline": "/jobs/{llama-tune}?tab=timeline",
    "configuration": "/jobs/{gpt-1b-base}?tab=configuration",
    "checkpoints": "/jobs/{gpt-350m}?tab=checkpoints",
    "files": "/jobs/{gpt-350m}?tab=files",
    "compare": "/compare?jobs={sweep}&metric=val/loss&colour=args.lr",
    "scatter": "/compare?jobs={sweep}&metric=val/loss&colour=args.lr&scatter=args.lr",
    "cluster": "/cluster",
    "queue": "/queue",
    "submit": "/submit?clone={gpt-1b-base}",
    "account": "/account",
    "projects": "/projects",
    "people": "/people",
    "tokens": "/tokens",
    "audit": "/audit",
    "settings": "/settings",
}
"""Addresses by the names of the pictures, with names of jobs in place of their ids."""
OFTEN: Final = ("home", "jobs", "job", "failed", "compare", "cluster", "queue")
"""Pages that each run of the tests compares, on a telephone and on a large screen."""
DIFFERENT_MAX: Final = 0.001
"""Part of a picture's pixels."""
SETTLING_SECONDS: Final = 20.0
WRITES: Final = "LOCKSTEP_WRITE_PICTURES" in os.environ
SCHEMES: Final[tuple[Scheme, ...]] = ("light", "dark")


@pytest.mark.drill
@pytest.mark.parametrize("name", PAGES)
def test_a_page_looks_as_in_its_pictures_and_is_accessible(
    browser: Browser, seeded: Seeded, tmp_path: Path, name: str
) -> None:
    found: list[str] = []
    token = None if name == "signin" else TOKENS["ada"]
    with pictures.gallery(browser, token, MOMENT) as page:
        show(page, seeded, name)
        for (width, height), scheme in product(SIZES.items(), SCHEMES):
            found += compared(page, name, (width, height), scheme, tmp_path)
            if width in (NARROW[0], WIDE[0]) and not WRITES:
                about = f"{name}-{width}-{scheme}: axe: "
                found += [about + each for each in violations(page, scheme)]
    assert not found, "\n".join(found)


@pytest.mark.drill
@pytest.mark.skipif(not WRITES, reason="only where pictures are written")
def test_the_browser_of_the_pictures_is_noted(browser: Browser) -> None:
    DRAWN_BY.write_text(json.dumps(pictures.drawn_by(browser), indent=2) + "\n")


@pytest.fixture(scope="module")
def same_drawing(browser: Browser) -> None:
    if (why := pictures.unlike(browser)) is not None:
        pytest.skip(f"NOT RUN: {why}")


@pytest.fixture(scope="module")
def tab(same_drawing: None, browser: Browser) -> Iterator[Page]:
    """Return a tab for all pages: the first one of a new tab takes twice as long."""
    with pictures.gallery(browser, TOKENS["ada"], MOMENT) as page:
        yield page


@pytest.mark.parametrize("name", OFTEN)
def test_a_page_looks_as_in_its_pictures(
    tab: Page, seeded: Seeded, tmp_path: Path, name: str
) -> None:
    found: list[str] = []
    tab.emulate_media(color_scheme="light")
    show(tab, seeded, name)
    for width, scheme in product((NARROW[0], WIDE[0]), SCHEMES):
        found += compared(tab, name, (width, SIZES[width]), scheme, tmp_path)
    tab.evaluate("localStorage.clear()")
    assert not found, "\n".join(found)


def show(page: Page, seeded: Seeded, name: str) -> None:
    """Open a page of ``PAGES`` with all its first data."""
    page.goto(seeded.url + PAGES[name].format_map(seeded.ids))
    expect(page.get_by_role("heading", level=1).first).to_be_visible()
    page.wait_for_load_state("networkidle")
    page.wait_for_function(FONTS_LOADED)


def compared(
    page: Page, name: str, size: tuple[int, int], scheme: Scheme, differing: Path
) -> list[str]:
    """Return the difference of a page from its picture, and store the new one in ``differing``."""
    width, height = size
    page.set_viewport_size({"width": width, "height": height})
    page.emulate_media(color_scheme=scheme)
    expect(page.locator("html")).to_have_attribute("data-mantine-color-scheme", scheme)
    picture = f"{name}-{width}-{scheme}.png"
    found: list[str] = []
    part, pixels = settled(page, FOLDER / picture)
    if WRITES:
        pictures.stored(FOLDER / picture, pixels)
    elif part > DIFFERENT_MAX:
        pictures.stored(differing / picture, pixels)
        found.append(f"{100 * part:.2f} % of {FOLDER / picture}: {differing / picture}")
    wide = page.evaluate("document.documentElement.scrollWidth")
    if wide > width:
        found.append(f"{picture} is {wide} px wide")
    return found


def settled(page: Page, committed: Path) -> tuple[float, Pixels]:
    """Return the picture once it is the committed one, or else the last one, and the difference.

    Pictures that are to be written are those that did not change for a while.
    """
    ends_at = time.monotonic() + SETTLING_SECONDS
    before = pictures.taken(page)
    while True:
        part = 1.0 if WRITES else pictures.difference(committed, before)
        if part <= DIFFERENT_MAX or time.monotonic() > ends_at:
            return part, before
        page.wait_for_timeout(500 if WRITES else 200)
        now = pictures.taken(page)
        if WRITES and np.array_equal(before, now):
            return part, now
        before = now


def test_each_committed_picture_belongs_to_a_page() -> None:
    expected = {f"{p}-{w}-{s}.png" for p, w, s in product(PAGES, SIZES, SCHEMES)}
    assert {path.name for path in FOLDER.glob("*.png")} == expected
