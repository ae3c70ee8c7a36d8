"""A program whose loop ended or stands still ends; one with a requested stop does not."""

from __future__ import annotations

import subprocess
import sys

import pytest

from lockstep.system.watchdog import EXIT_CODE

PROGRAM = """
import sys, threading, time
from lockstep.system.watchdog import Watchdog
watchdog = Watchdog("test loop", standstill_seconds=0.5, look_seconds=0.05)
def loop(how):
    for _ in range(10):
        watchdog.report()
        time.sleep(0.02)
    if how == "stands still":
        time.sleep(600)
    if how == "raises":
        raise ValueError("a defect")
thread = threading.Thread(target=loop, args=(sys.argv[1],), daemon=True)
if sys.argv[1] == "is asked to end":
    watchdog.let_end()
thread.start()
watchdog.watch(thread.is_alive)
time.sleep(2 if sys.argv[1] == "is asked to end" else 600)
"""


@pytest.mark.parametrize(
    ("how", "code", "message"),
    [
        ("stands still", EXIT_CODE, "the test loop did not report for"),
        ("raises", EXIT_CODE, "the test loop has ended: this process ends"),
        ("is asked to end", 0, ""),
    ],
)
def test_the_end_of_a_loop(how: str, code: int, message: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == code
    assert message in done.stderr
