"""Release of a device only after its memory is free.

The numbers are simulated, except on a machine with a GPU.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from lockstep.domain.kinds.devices import DEVICES, named
from lockstep.worker.devices import device_memory
from lockstep.worker.devices.device_memory import SLACK_BYTES, MemoryReclaim, Used
from lockstep.worker.devices.drivers import DRIVERS, used_bytes
from lockstep.worker.folders import Folder

GIB = 2**30


def test_a_release_waits_until_the_memory_is_free() -> None:
    answers = [
        {0: 9 * GIB, 1: GIB},
        {0: GIB + SLACK_BYTES + 1, 1: GIB},
        {0: GIB + SLACK_BYTES, 1: GIB},
    ]
    asked: list[list[int]] = []

    def used(devices: Sequence[int]) -> Used:
        asked.append(list(devices))
        return answers[len(asked) - 1]

    waits = MemoryReclaim(lambda: {0: GIB, 1: GIB}, used)
    assert [waits.over() for _ in answers] == [False, False, True]
    assert asked == [[0, 1]] * 3


def test_the_wait_for_memory_of_another_program_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits = MemoryReclaim(lambda: {0: GIB}, lambda devices: dict.fromkeys(devices, 40 * GIB))
    assert not waits.over()
    now = time.monotonic()
    monkeypatch.setattr(
        device_memory.time, "monotonic", lambda: now + device_memory.WAIT_SECONDS + 1
    )
    assert waits.over()


@pytest.mark.parametrize("before", [{}, {0: GIB}])
def test_where_no_driver_answers_nothing_is_waited_for(before: Used) -> None:
    assert MemoryReclaim(lambda: before, lambda _: {}).over()


def test_the_baseline_survives_the_agent(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "0000-attempt")
    folder.create()
    assert folder.memory_before() == {}
    folder.write_memory_before({0: GIB, 3: 5})
    assert Folder(folder.path).memory_before() == {0: GIB, 3: 5}


@pytest.mark.gpu
def test_a_gpu_reports_its_used_memory() -> None:
    before = used_bytes([0])[0]
    held = torch.empty(GIB, dtype=torch.uint8, device="cuda")
    assert used_bytes([0])[0] >= before + GIB
    del held


def test_each_kind_but_a_slot_has_a_driver() -> None:
    assert set(DRIVERS) == {name for name, kind in DEVICES.items() if not kind.is_slot}


def test_an_unknown_kind_is_an_error_and_not_the_cpu() -> None:
    with pytest.raises(ValueError, match=r"expected cuda or cpu, got 'tpu'"):
        named("tpu")
