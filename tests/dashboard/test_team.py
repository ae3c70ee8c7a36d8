"""A team at work: a link between two people, and an upgrade under an open tab."""

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
from tests.dashboard.site import TOKENS
from tests.harness.processes import free_port


@contextmanager
def visited(browser: Browser, seeded: Seeded, name: str = "ada") -> Iterator[Visitor]:
    with visiting(browser, seeded.url, TOKENS[name]) as visitor:
        yield visitor


def rows(page: Page) -> Locator:
    return page.locator("tbody tr").filter(has=page.get_by_role("rowheader"))


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


def other_build(folder: Path) -> None:
    """Write the pages as another build has them: the same scripts under other names."""
    shutil.copytree(FOLDER, folder)
    for path in folder.rglob("*.gz"):
        path.unlink()
    names = [path.name for path in (folder / "assets").iterdir()]
    for path in folder.rglob("*"):
        if path.suffix in {".html", ".js", ".css"}:
            text = path.read_text(encoding="utf-8")
            for name in names:
                text = text.replace(name, f"new-{name}")
            path.write_text(text, encoding="utf-8")
    for path in (folder / "assets").iterdir():
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
        page.get_by_role("link", name="Audit").or_(visitor.button("ada")).click()
        page.get_by_role("menuitem", name="Audit").click()
        script = page.locator("script[type=module][src*='/new-']")
        expect(script).to_have_count(1)
        visitor.go("/submit", "New job")
        expect(page.get_by_role("textbox", name="Name").first).to_have_value("kept-draft")
