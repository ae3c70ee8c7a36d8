"""A user's browser for one test: it opens pages, and records all complaints of the browser.

Not here: the service behind the pages (``tests.harness.service``), and the start of a browser
(``conftest``).
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Error,
    Locator,
    Page,
    expect,
)

AXE = Path(__file__).parents[2] / "dashboard" / "node_modules" / "axe-core" / "axe.min.js"
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Each window loads pages for suggestions below the address: 0.8 s of a core for each test. Each
    # tab has a spare renderer. The last two are of playwright's list, which this one replaces.
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup,WebUIOmniboxFullPopup,"
    "SpareRendererForSitePerProcess,PaintHolding,HttpsUpgrades",
    # Compiling for speed, and functions before they are called, costs more than it gains on pages
    # that are open for seconds: a seventh of the time of the renderers.
    "--js-flags=--max-lazy --no-turbofan",
    # The same pictures on each machine.
    "--font-render-hinting=none",
    "--disable-lcd-text",
    "--force-device-scale-factor=1",
    "--force-color-profile=srgb",
)
WAIT_MS = 60_000
"""Limit for any element to appear; a busy machine needs some of it."""
RUN = "async (options) => (await axe.run(document, options)).violations"
TARGETS = "target-size"
"""Rule of axe: targets of 24 px, or with this distance (WCAG 2.2, 2.5.8). Off by default."""
WIDE, NARROW = (1440, 900), (360, 780)
expect.set_options(timeout=WAIT_MS)

Scheme = Literal["light", "dark"]
RULES: dict[Scheme, dict[str, Any]] = {
    "light": {"rules": {TARGETS: {"enabled": True}}},
    # The others do not depend on colours.
    "dark": {"runOnly": ["color-contrast", "link-in-text-block"]},
}


def chromium() -> str | None:
    """Return the browser of this machine, if it has one.

    No browser is ever downloaded.
    """
    return os.environ.get("LOCKSTEP_CHROMIUM") or shutil.which("chromium")


class Visitor:
    """One user in one tab."""

    def __init__(self, page: Page, url: str):
        self.page = page
        self.url = url
        self.complaints: list[str] = []
        self._expected: list[re.Pattern[str]] = []
        page.on("console", self._on_console)
        page.on("pageerror", self._on_error)

    def expects(self, pattern: str) -> None:
        """Accept complaints of the browser that match, such as a refusal that a test expects."""
        self._expected.append(re.compile(pattern))

    def ends(self) -> None:
        """Record nothing more; the browser must not have complained."""
        self.page.remove_listener("console", self._on_console)
        self.page.remove_listener("pageerror", self._on_error)
        assert not self.complaints, "\n".join(self.complaints)

    def _on_error(self, error: Error) -> None:
        self.complaints.append(f"page error: {error}")

    def _on_console(self, message: ConsoleMessage) -> None:
        said = f"{message.type}: {message.text} ({message.location.get('url', '')})"
        if message.type in {"error", "warning"} and not any(
            known.search(said) for known in self._expected
        ):
            self.complaints.append(said)

    # --- navigation

    def go(self, address: str, heading: str | re.Pattern[str] | None = None) -> Visitor:
        """Open an address of the dashboard, and wait for the page with this heading."""
        self.page.goto(f"{self.url}{address}")
        if heading is not None:
            self.sees_heading(heading)
        return self

    def walk(self, address: str, heading: str | re.Pattern[str] | None = None) -> Visitor:
        """Open an address in the loaded pages as a link does, at a third of the cost of ``go``."""
        self.page.evaluate("address => history.pushState({}, '', address)", address)
        if heading is not None:
            self.sees_heading(heading)
        return self

    def keep(self, token: str) -> Visitor:
        """Keep a token in this tab, as a sign-in does, from the next page on."""
        # Once: a test that signs out must stay signed out after a reload.
        self.page.add_init_script(
            f"if (!sessionStorage.getItem('{token}')) {{ sessionStorage.setItem('{token}', '1');"
            f" sessionStorage.setItem('lockstep.token', '{token}'); }}"
        )
        return self

    def sees_heading(self, name: str | re.Pattern[str]) -> None:
        exact = isinstance(name, str)
        expect(self.page.get_by_role("heading", level=1, name=name, exact=exact)).to_be_visible()

    def sees(self, text: str | re.Pattern[str]) -> Locator:
        found = self.page.get_by_text(text).first
        expect(found).to_be_visible()
        return found

    def button(self, name: str | re.Pattern[str]) -> Locator:
        return self.page.get_by_role("button", name=name, exact=isinstance(name, str))

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    @property
    def address(self) -> str:
        """Return the address of the tab, without the service's own part."""
        return self.page.url.removeprefix(self.url)

    # --- rules for every page

    def is_accessible(self) -> None:
        """Check that axe finds nothing, in light and in dark.

        On a telephone targets are large enough, and no page scrolls sideways.
        """
        schemes: tuple[Scheme, ...] = ("light", "dark")
        found = [
            f"{self.address}, {scheme}: {line}"
            for scheme in schemes
            for line in violations(self.page, scheme)
        ]
        assert not found, "\n".join(found)
        self.page.set_viewport_size({"width": NARROW[0], "height": NARROW[1]})
        small = violations(self.page, "dark", {"runOnly": [TARGETS]})
        width = self.page.evaluate("document.documentElement.scrollWidth")  # once it is drawn
        self.page.set_viewport_size({"width": WIDE[0], "height": WIDE[1]})
        assert not small, "\n".join(small)
        assert width <= NARROW[0], f"{self.address} is {width} px wide on a screen of {NARROW[0]}"


def violations(page: Page, scheme: Scheme, rules: dict[str, Any] | None = None) -> list[str]:
    """Return the findings of axe on the current page, in the colours of ``scheme``.

    In light colours every rule is checked, unless ``rules`` names others.
    """
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    expect(page.locator("html")).to_have_attribute("data-mantine-color-scheme", scheme)
    # Evaluated, not added as a script: the page's own policy remains in force, which would refuse
    # one.
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text(encoding="utf-8"))
    options = {"resultTypes": ["violations"], **(rules or RULES[scheme])}
    # First without what is a third of the time: the selector of each element, and the rules of the
    # style sheets, which only a rule that is off reads.
    if not page.evaluate(RUN, {**options, "selectors": False, "preload": False}):
        return []
    found: list[dict[str, Any]] = page.evaluate(RUN, options)
    return [
        f"{one['id']}: {node['target']} {node['failureSummary']}"
        for one in found
        for node in one["nodes"]
    ]


def _opened(browser: Browser) -> BrowserContext:
    context = browser.new_context(
        viewport={"width": WIDE[0], "height": WIDE[1]}, reduced_motion="reduce", locale="en-GB"
    )
    context.set_default_timeout(WAIT_MS)
    return context


@contextmanager
def visiting(browser: Browser, url: str, token: str | None) -> Iterator[Visitor]:
    """Yield a new tab, signed in if a token is given.

    Afterwards the browser must not have complained.
    """
    context = _opened(browser)
    try:
        visitor = Visitor(context.new_page(), url)
        yield visitor if token is None else visitor.keep(token)
        visitor.ends()
    finally:
        context.close()


class Tab:
    """A tab for the visits of one user, one after the other; each begins with empty storage.

    The first page of a new tab takes twice as long as that of one whose process has run the
    scripts. Unlike a new one, it has the service's scripts in its cache.
    """

    def __init__(self, browser: Browser, url: str, token: str):
        self._browser, self._url, self._token = browser, url, token
        self._page: Page | None = None

    @contextmanager
    def visited(self) -> Iterator[Visitor]:
        """Yield the user, whose browser must not have complained afterwards."""
        is_new = self._page is None
        page = self._page = self._page or _opened(self._browser).new_page()
        visitor = Visitor(page, self._url)
        try:
            yield visitor.keep(self._token) if is_new else visitor
            visitor.ends()
        except BaseException:
            self.close()
            raise
        try:
            self._clear(page)
        except Error:  # It shows no page of the service.
            self.close()

    @staticmethod
    def _clear(page: Page) -> None:
        context = page.context
        page.unroute_all(behavior="ignoreErrors")
        context.set_offline(False)
        for other in context.pages:
            if other != page:
                other.close()
        page.evaluate("localStorage.clear(); sessionStorage.clear()")
        page.goto("about:blank")
        page.mouse.move(0, 0)
        page.emulate_media(color_scheme="light", reduced_motion="reduce")
        page.set_viewport_size({"width": WIDE[0], "height": WIDE[1]})

    def close(self) -> None:
        if self._page is not None:
            self._page.context.close()
            self._page = None
