"""A team at work: links between two people, a session by keys alone, an upgrade, and lost answers."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Locator, Page, expect

from lockstep.api.dashboard.files import DIGEST, FOLDER
from tests.dashboard.browser import Visitor, visiting
from tests.dashboard.conftest import Seeded
from tests.dashboard.proxy import proxy
from tests.dashboard.site import TOKENS
from tests.harness.processes import free_port, until

TABS_MAX = 150
"""Presses of the tab key that a test tries for one button."""


@contextmanager
def visited(browser: Browser, seeded: Seeded, name: str = "ada") -> Iterator[Visitor]:
    with visiting(browser, seeded.url, TOKENS[name]) as visitor:
        yield visitor


def rows(page: Page) -> Locator:
    return page.locator("tbody tr").filter(has=page.get_by_role("rowheader"))


def reach(visitor: Visitor, name: str) -> None:
    """Press the tab key until the button with this name has the focus."""
    button = visitor.button(name)
    expect(button).to_be_visible()
    for _ in range(TABS_MAX):
        if button.evaluate("button => button === document.activeElement"):
            return
        visitor.press("Tab")
    raise AssertionError(f"{name!r} is not reached by the tab key")


def test_a_link_to_a_list_shows_both_people_the_same(browser: Browser, seeded: Seeded) -> None:
    with visited(browser, seeded) as ada, visited(browser, seeded, "cleo") as cleo:
        page = ada.go("/jobs", "Jobs").page
        ada.button("All").click()
        page.get_by_label("Project", exact=True).select_option("vision")
        page.get_by_label("Filter jobs").fill("vit gpus<4")
        ada.press("Enter")
        expect(rows(page)).to_have_count(3)
        ada.button(re.compile("^Columns")).click()
        page.get_by_label("Find a column").fill("size")
        ada.press("Enter", "Escape")
        page.get_by_role("columnheader", name="train/loss").get_by_role("button").click()
        page.wait_for_url(re.compile("sort=.*columns=|columns=.*sort="))
        expect(rows(page).first).to_contain_text("vit-small-a")
        seen = rows(page).all_inner_texts()
        found = cleo.go(ada.address, "Jobs").page
        expect(rows(found)).to_have_count(3)
        expect(found.get_by_role("columnheader", name="size")).to_be_visible()
        expect(rows(found).last).to_contain_text(re.compile(r"1\.4"))
        assert found.get_by_role("columnheader").all_inner_texts() == (
            page.get_by_role("columnheader").all_inner_texts()
        )
        assert rows(found).all_inner_texts() == seen
        assert cleo.address == ada.address


def test_a_link_to_charts_shows_both_people_the_same_range(
    browser: Browser, seeded: Seeded
) -> None:
    with visited(browser, seeded) as ada, visited(browser, seeded, "cleo") as cleo:
        page = ada.go(f"/jobs/{seeded.ids['vit-ablation']}", "vit-ablation").page
        chart = page.locator("[data-metric='train/loss']")
        drawn = chart.locator("canvas").first
        expect(drawn).to_be_visible()
        whole = drawn.screenshot()
        chart.get_by_role("button", name="Log axis for train/loss").click()
        chart.get_by_role("application").focus()
        ada.press("+", "+")
        page.wait_for_url(re.compile("log=.*zoom=|zoom=.*log="))
        page.evaluate("document.activeElement.blur()")
        found = cleo.go(ada.address, "vit-ablation").page
        expect(cleo.button("Reset zoom")).to_be_visible()
        same = found.locator("[data-metric='train/loss'] canvas").first
        until(lambda: same.screenshot() == drawn.screenshot(), 60, "the same chart")
        assert drawn.screenshot() != whole
        assert cleo.address == ada.address


def test_jobs_are_found_compared_and_cancelled_by_keys_alone(
    browser: Browser, seeded: Seeded
) -> None:
    with visited(browser, seeded) as visitor:
        page = visitor.go("/", "Home").page
        visitor.press("g", "j")
        visitor.sees_heading("Jobs")
        visitor.press("/")
        page.keyboard.type("gpt lr<1e-3 ")
        # Keys do nothing to the rows of the view before, which are the same three here.
        expect(visitor.button("Remove lr<1e-3")).to_be_visible()
        expect(page.locator("[class*=_old_]")).to_have_count(0)
        names = page.get_by_role("table").get_by_role("rowheader")
        expect(names).to_have_text([re.compile(each) for each in FOUND])
        visitor.press("Escape", "j", "j", "x", "j", "x", "c")
        visitor.sees_heading("Compare")
        runs = page.get_by_role("region", name="Runs").locator("tbody tr")
        expect(runs).to_have_count(2)
        reach(visitor, "Compare with gpt-350m as base")
        visitor.press("Enter")
        expect(runs.filter(has_text="gpt-1b-base")).to_contain_text(re.compile("[▲▼] "))
        visitor.press("g", "q")
        visitor.sees_heading("Queue")
        reach(visitor, "Cancel eval-1")
        visitor.press("Enter")
        dialog = page.get_by_role("dialog", name="Cancel eval-1?")
        expect(dialog).to_be_visible()
        reach(visitor, "Cancel the job")
        visitor.press("Enter")
        expect(dialog).to_be_hidden()
        expect(page.get_by_role("rowheader").filter(has_text="eval-1")).to_have_count(0)
        expect(page.get_by_role("rowheader").filter(has_text="eval-2")).to_have_count(1)


FOUND = ("gpt-1b-long", "gpt-1b-base", "gpt-350m")


def other_build(folder: Path) -> None:
    """Write the pages as another build has them: the same scripts under other names.

    The bundler's runtime is the same in all builds.
    """
    shutil.copytree(FOLDER, folder)
    for path in folder.rglob("*.gz"):
        path.unlink()
    scripts = [path for path in (folder / "assets").iterdir() if "runtime" not in path.name]
    names = [path.name for path in scripts]
    for path in folder.rglob("*"):
        if path.suffix in {".html", ".js", ".css"}:
            text = path.read_text(encoding="utf-8")
            for name in names:
                text = text.replace(name, f"new-{name}")
            path.write_text(text, encoding="utf-8")
    for path in scripts:
        path.rename(path.with_name(f"new-{path.name}"))
    (folder / DIGEST).write_text("another", encoding="utf-8")


def test_a_tab_goes_on_over_a_restart_with_other_pages(
    browser: Browser, seeded: Seeded, tmp_path: Path
) -> None:
    other_build(tmp_path / "pages")
    port = free_port()
    with ExitStack() as stack:
        with seeded.serve(port=port) as url:
            visitor = stack.enter_context(visiting(browser, url, TOKENS["ada"]))
            visitor.expects("ERR_CONNECTION|Failed to load resource|Failed to fetch|preload")
            page = visitor.go("/submit", "New job").page
            page.get_by_role("textbox", name="Name").first.fill("kept-draft")
        expect(page.get_by_test_id("connection-lost")).to_be_visible()
        stack.enter_context(seeded.serve(port=port, folder=tmp_path / "pages"))
        expect(page.get_by_test_id("connection-lost")).to_be_hidden()
        visitor.button("ada").click()  # Its menu is a part of the pages that is gone.
        script = page.locator("script[type=module][src*='/new-']")
        expect(script.first).to_be_attached()
        visitor.go("/submit", "New job")
        expect(page.get_by_role("textbox", name="Name").first).to_have_value("kept-draft")


def test_no_page_stands_still_in_silence(browser: Browser, seeded: Seeded) -> None:
    runs = ",".join(seeded.ids[name] for name in ("gpt-1b-base", "vit-ablation"))
    job = seeded.ids["vit-ablation"]
    addresses = {"/": "Home", "/jobs": "Jobs", f"/compare?jobs={runs}": "Compare"}
    addresses[f"/jobs/{job}"] = "vit-ablation"
    with proxy(seeded.url) as between, ExitStack() as stack:
        visitors = []
        for address, heading in addresses.items():
            visitor = stack.enter_context(visiting(browser, between.address, TOKENS["ada"]))
            visitor.expects("502|ERR_CONTENT_LENGTH_MISMATCH|ERR_INCOMPLETE|Failed to load")
            visitors.append(visitor.go(address, heading))
        # The second begins when all pages have recovered from the first.
        for how in ("cut", "lost"):
            setattr(between, how, re.compile("/v1/"))
            for visitor in visitors:
                banner = visitor.page.get_by_test_id("connection-lost")
                stale = visitor.page.get_by_test_id("stale").first
                if how == "lost":
                    expect(banner).to_contain_text("Connection lost")
                else:
                    expect(stale).to_contain_text("Not updated for")
                expect(visitor.page.get_by_test_id("freshness")).to_contain_text("old")
            cuts = between.cuts
            until(lambda cuts=cuts: between.cuts > cuts, 60, "polls that go on")
            setattr(between, how, None)
            for visitor in visitors:
                expect(visitor.page.get_by_test_id("freshness")).to_be_empty()
                expect(visitor.page.get_by_test_id("connection-lost")).to_be_hidden()
