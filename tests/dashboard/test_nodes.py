"""Nodes and the queue: holders of devices, waiting jobs, and nodes that are drained and resumed."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.dashboard.browser import Visitor
from tests.dashboard.work import Work
from tests.harness.processes import until
from tests.harness.service import Service


def test_devices_name_their_jobs_and_the_queue_has_reasons(
    visitor: Visitor, work: Work, lockstep: Service
) -> None:
    going = work.endless("going")
    lockstep.at_step(going, 1)
    waiting = work.curve("waiting", gpus=4)
    try:
        visitor.go("/cluster", "Cluster")
        visitor.sees("offers kind:cpu, python:3.")
        devices = visitor.page.get_by_role("table", name="Devices of").get_by_role("row")
        expect(devices).to_have_count(5)
        expect(devices.filter(has_text="free")).to_have_count(3)
        visitor.is_accessible()
        devices.get_by_role("link", name="going").click()
        visitor.sees_heading("going")
        visitor.go("/queue", "Queue")
        row = visitor.page.get_by_role("row").filter(has_text="waiting")
        expect(row).to_contain_text("4")
        visitor.button("Priority 50 of waiting: change").click()
        visitor.page.get_by_label("Priority of waiting").fill("80")
        visitor.button("Set").click()
        expect(visitor.button("Priority 80 of waiting: change")).to_be_visible()
        visitor.button("Why waiting waits").click()
        visitor.sees("No start is known")
        visitor.is_accessible()
        visitor.button("Cancel waiting").click()
        visitor.button("Cancel the job").click()
        work.ended(waiting)
    finally:
        work.cancel(going)
    visitor.sees("Nothing waits")
    visitor.is_accessible()


def test_a_drained_node_gets_no_work_until_it_is_resumed(
    visitor: Visitor, work: Work, lockstep: Service
) -> None:
    page = visitor.go("/cluster", "Cluster").page
    visitor.button("Drain").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("The node gets no more work until it is resumed.")
    visitor.is_accessible()
    dialog.get_by_label("Reason").fill("new fan")
    dialog.get_by_role("button", name="Drain").click()
    visitor.sees("draining")
    visitor.sees(
        "It is given no more work: new fan. Nothing runs there. Drained by admin just now."
    )
    waits = work.curve("waits")
    until(lambda: lockstep.job(waits)["queue"], 60, "a place in the queue")
    visitor.is_accessible()
    visitor.button("Resume").click()
    expect(visitor.button("Drain")).to_be_visible()
    assert lockstep.ended(waits)["state"] == "succeeded"
