"""Each page in four widths and two themes: as in the committed pictures, and accessible.

``make pictures`` writes the pictures. Look at each that has changed. Another version of the browser
may draw other pixels, so ``make test`` compares none.
"""

from __future__ import annotations

import os
import time
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.dashboard import pictures
from tests.dashboard.browser import EVERY_RULE, NARROW, WIDE, Scheme, violations
from tests.dashboard.conftest import Seeded
from tests.dashboard.pictures import FOLDER, SIZES, Pixels
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
DIFFERENT_MAX: Final = 0.001
"""Part of a picture's pixels."""
SETTLING_SECONDS: Final = 20.0
WRITES: Final = "LOCKSTEP_WRITE_PICTURES" in os.environ
SCHEMES: Final[tuple[Scheme, ...]] = ("light", "dark")
RULES: Final[dict[Scheme, dict[str, Any]]] = {
    "light": EVERY_RULE,
    # The others do not depend on colours.
    "dark": {"runOnly": ["color-contrast", "link-in-text-block"]},
}


@pytest.mark.drill
@pytest.mark.parametrize("name", PAGES)
def test_a_page_looks_as_in_its_pictures_and_is_accessible(
    browser: Browser, seeded: Seeded, tmp_path: Path, name: str
) -> None:
    found: list[str] = []
    token = None if name == "signin" else TOKENS["ada"]
    with pictures.gallery(browser, token, MOMENT) as page:
        page.goto(seeded.url + PAGES[name].format_map(seeded.ids))
        expect(page.get_by_role("heading", level=1).first).to_be_visible()
        page.wait_for_load_state("networkidle")
        page.wait_for_function("[...document.fonts].every(({ status }) => status === 'loaded')")
        for (width, height), scheme in product(SIZES.items(), SCHEMES):
            page.set_viewport_size({"width": width, "height": height})
            page.emulate_media(color_scheme=scheme)
            expect(page.locator("html")).to_have_attribute("data-mantine-color-scheme", scheme)
            picture = f"{name}-{width}-{scheme}.png"
            part, pixels = settled(page, FOLDER / picture)
            if WRITES:
                pictures.stored(FOLDER / picture, pixels)
            elif part > DIFFERENT_MAX:
                pictures.stored(tmp_path / picture, pixels)
                found.append(f"{100 * part:.2f} % of {FOLDER / picture}: {tmp_path / picture}")
            if width in (NARROW[0], WIDE[0]) and not WRITES:
                about = f"{picture}: axe: "
                found += [about + each for each in violations(page, scheme, RULES[scheme])]
            wide = page.evaluate("document.documentElement.scrollWidth")
            if wide > width:
                found.append(f"{picture} is {wide} px wide")
    assert not found, "\n".join(found)


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
