"""The service goes away under an open page, and comes back."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.dashboard.browser import Visitor
from tests.dashboard.work import Work
from tests.e2e.service import Service


def test_a_lost_connection_is_said_what_was_shown_stays_and_it_heals(
    visitor: Visitor, work: Work, lockstep: Service
) -> None:
    work.ended(work.curve("before"))
    visitor.go("/jobs", "Jobs")
    visitor.sees("before")
    visitor.expects("ERR_CONNECTION|Failed to load resource")
    lockstep.down()
    lost = visitor.page.get_by_test_id("connection-lost")
    expect(lost).to_contain_text("Connection lost")
    visitor.sees("before")
    visitor.is_accessible()
    lockstep.up()
    expect(lost).to_be_hidden(timeout=20_000)
    visitor.sees("up to date")
