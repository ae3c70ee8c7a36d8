"""End of a job: the exception, advice, and a success whose numbers are not finite."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.dashboard.browser import Visitor
from tests.harness.builders import script
from tests.harness.service import Service

CRASH = """
def work(step):
    raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")

def deeper(step, depth):
    return work(step) if depth == 0 else deeper(step, depth - 1)

for step in range(80):
    print("step", step, flush=True)
deeper(80, 15)
"""
NAN = """
import json, os

with open(os.environ["LOCKSTEP_METRICS"], "a") as metrics:
    for step in range(1, 1_501):
        loss = float("nan") if step > 989 else 1 / step
        grad = float("inf") if step == 7 else 1.0
        metrics.write(json.dumps({"step": step, "train/loss": loss, "train/lr": 0.1, "grad": grad}) + "\\n")
"""


@pytest.fixture(scope="module")
def code(lockstep: Service, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder: Path = tmp_path_factory.mktemp("outcome")
    (folder / "crash.py").write_text(CRASH)
    (folder / "nan.py").write_text(NAN)
    return lockstep.upload(folder)


def _ended(lockstep: Service, name: str, code: str) -> str:
    job = str(lockstep.submit(script(name, [f"{name}.py"], upload=code))["id"])
    lockstep.ended(job)
    return job


def test_the_exception_of_a_script_is_in_view_with_advice_on_memory(
    visitor: Visitor, lockstep: Service, code: str
) -> None:
    page = visitor.go(f"/jobs/{_ended(lockstep, 'crash', code)}", "crash").page
    outcome = page.get_by_test_id("outcome")
    expect(outcome.get_by_role("heading")).to_have_text("Failed")
    expect(outcome).to_contain_text("smaller micro-batch")
    expect(outcome).not_to_contain_text("mend")
    # Above the facts, with the frame that raised it.
    raised = (
        re.compile("^RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB$"),
        re.compile("^File .*in work$"),
    )
    expect(outcome.locator("p").nth(0)).to_have_text(raised[0])
    expect(outcome.locator("p").nth(1)).to_have_text(raised[1])
    box = outcome.locator("pre")
    line = box.get_by_text("RuntimeError: CUDA out of memory").last
    inner, outer = line.bounding_box(), box.bounding_box()
    assert inner is not None
    assert outer is not None
    assert outer["y"] <= inner["y"]
    assert inner["y"] + inner["height"] <= outer["y"] + outer["height"]
    visitor.is_accessible()


def test_a_success_with_non_finite_values_has_their_count(
    visitor: Visitor, lockstep: Service, code: str
) -> None:
    page = visitor.go(f"/jobs/{_ended(lockstep, 'nan', code)}", "nan").page
    outcome = page.get_by_test_id("outcome")
    expect(outcome.get_by_role("heading")).to_have_text("Succeeded")
    expect(outcome).to_contain_text(
        "train/loss is not finite at 511 of 1,500 points, the last one included"
    )
    # The last of these is a number again, also if one bucket holds all of them.
    expect(outcome.get_by_role("listitem").nth(1)).to_have_text(
        "grad is not finite at 1 of 1,500 points."
    )
    expect(outcome).not_to_contain_text("train/lr")
    expect(page.locator("[data-metric='train/loss']")).to_contain_text("511")
    visitor.is_accessible()
