"""Threads of ranks on the CPU, and of Gloo, that wait for a core instead of taking one."""

from __future__ import annotations

import os
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch.distributed as dist

from lockstep.engine.runtime.ranks import RankEnvironment, Ranks, connect
from tests.harness.ranks import Pool


def policies_at_the_start(world_size: int) -> list[int]:
    """Return how a thread is scheduled that connects, where Gloo's threads start and at the end."""
    found: list[int] = []

    def look(*_: Any, **__: Any) -> None:
        found.append(os.sched_getscheduler(0))  # Threads that start here inherit it.

    def start() -> None:
        connect(RankEnvironment(world_size=world_size), kind="cpu", patience=timedelta(seconds=9))
        look()

    with mock.patch.object(dist, "init_process_group", look):
        thread = threading.Thread(target=start)
        thread.start()
        thread.join()
    return found


def test_a_rank_with_peers_takes_no_core_when_it_wakes() -> None:
    assert policies_at_the_start(2) == [os.SCHED_BATCH] * 2
    assert policies_at_the_start(1) == [os.sched_getscheduler(0)]


def test_a_rank_connects_where_the_policy_is_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: Any) -> None:
        raise PermissionError("not in this container")

    monkeypatch.setattr(os, "sched_setscheduler", forbidden)
    assert policies_at_the_start(2) == [os.sched_getscheduler(0)] * 2


def policies_of_gloo(ranks: Ranks) -> set[int]:
    ranks.barrier()
    return {
        os.sched_getscheduler(int(thread.name))
        for thread in Path("/proc/self/task").iterdir()
        if "gloo" in (thread / "comm").read_text()
    }


def test_threads_of_gloo_inherit_it(pool: Pool) -> None:
    assert pool.run(policies_of_gloo, world_size=2) == [{os.SCHED_BATCH}] * 2
