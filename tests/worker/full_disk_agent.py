"""The agent of the tests, on a node whose disk always has too little free space.

It waits a moment only for more.
"""

from __future__ import annotations

import runpy

from lockstep.worker.agent import starting
from lockstep.worker.launch import preparing

preparing.DISK_FREE_BYTES_MIN = 2**60  # type: ignore[misc]  # only the limit changes
starting.FULL_DISK_SECONDS = 0.5  # type: ignore[misc]
runpy.run_module("tests.worker.agent", run_name="__main__")
