"""Use of the node by an attempt, compared with test processes of known use; invalid drivers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pynvml
import pytest

from lockstep.domain.training.metrics import NAME
from lockstep.domain.training.series import metadata_of
from lockstep.worker.devices import sampling
from lockstep.worker.devices.nvidia import Nvidia
from lockstep.worker.devices.sampling import Sampler
from lockstep.worker.folders import Folder

MB = 2**20
RANK = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", '''
import sys
held = bytearray(64 * 2**20)
print("ready", flush=True)
for _ in sys.stdin:
    n = 0
    while n < 3_000_000:
        n += 1
    print("burnt", flush=True)
'''], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
for line in child.stdout:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
    child.stdin.write(sys.stdin.buffer.readline() or sys.exit())
    child.stdin.flush()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path / "assignment-1")
    made.create()
    return made


@pytest.fixture
def rank() -> Iterator[subprocess.Popen[bytes]]:
    """Start a rank whose only child holds 64 MiB, and computes on request."""
    process = subprocess.Popen(
        [sys.executable, "-c", RANK], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == b"ready\n"
    yield process
    process.stdin.close()
    process.kill()
    process.wait()
    process.stdout.close()


def _assignment(**fields: Any) -> Any:
    return SimpleNamespace(**{"node_rank": 0, "devices": [0], "device_kind": "cpu", **fields})


def _ranks(folder: Folder, pids: dict[int, int]) -> None:
    folder.file("ranks.json").write_text(
        json.dumps({"ranks": [{"rank": r, "pid": pid} for r, pid in pids.items()]})
    )


def test_a_rank_is_its_whole_tree_of_processes(
    folder: Folder, rank: subprocess.Popen[bytes]
) -> None:
    assert rank.stdin is not None
    assert rank.stdout is not None
    _ranks(folder, {3: rank.pid})
    now = [100.0]
    sampler = Sampler(folder, _assignment(), clock=lambda: now[0])
    first = sampler.sample()
    assert 64 * MB < first["system/rank3/rss_bytes"] < 400 * MB
    assert "system/rank3/cpu_percent" not in first
    (child,) = psutil.Process(rank.pid).children()
    before = child.cpu_times()
    rank.stdin.write(b"go\n")
    rank.stdin.flush()
    assert rank.stdout.readline() == b"burnt\n"
    now[0] += 2.0
    percent = sampler.sample()["system/rank3/cpu_percent"]
    after = child.cpu_times()
    burnt = after.user + after.system - before.user - before.system
    # The kernel counts in hundredths of a second; the parent forwards a line.
    assert percent == pytest.approx(100 * burnt / 2.0, abs=5.0)
    assert burnt > 0.05


def test_a_rank_that_has_ended_has_no_more_points(
    folder: Folder, rank: subprocess.Popen[bytes]
) -> None:
    _ranks(folder, {0: rank.pid, 1: os.getpid()})
    sampler = Sampler(folder, _assignment())
    assert "system/rank0/rss_bytes" in sampler.sample()
    rank.kill()
    rank.wait()
    values = sampler.sample()
    assert not [name for name in values if name.startswith("system/rank0/")]
    assert "system/rank1/rss_bytes" in values


def test_the_machine_is_measured_by_node_rank_with_rates_after_one_sample(
    folder: Folder,
) -> None:
    now = [0.0]
    sampler = Sampler(folder, _assignment(node_rank=2), clock=lambda: now[0])
    first = sampler.sample()
    assert set(first) == {"system/node2/memory_bytes", "system/node2/disk_free_bytes"}
    assert 0 < first["system/node2/memory_bytes"] < psutil.virtual_memory().total
    while psutil.cpu_times() == psutil.cpu_times():
        pass  # A tick of the kernel's clock. Before it, a rate is zero.
    now[0] += 1.0
    second = sampler.sample()
    assert set(second) - set(first) == {
        "system/node2/cpu_percent",
        "system/node2/network_received_bytes_per_second",
        "system/node2/network_sent_bytes_per_second",
    }
    assert 0 <= second["system/node2/cpu_percent"] <= 100


def test_the_loopback_is_no_network(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {"lo": 10**9, "eth0": 1000, "eth1": 500}
    monkeypatch.setattr(
        sampling.psutil,
        "net_io_counters",
        lambda pernic: {
            name: SimpleNamespace(bytes_recv=n, bytes_sent=2 * n) for name, n in counts.items()
        },
    )
    now = [0.0]
    sampler = Sampler(folder, _assignment(), clock=lambda: now[0])
    sampler.sample()
    counts.update(lo=10**12, eth0=1800)
    now[0] = 2.0
    values = sampler.sample()
    assert values["system/node0/network_received_bytes_per_second"] == 400
    assert values["system/node0/network_sent_bytes_per_second"] == 800


def test_each_rank_has_the_available_numbers_of_its_own_gpu(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def power(gpu: int) -> int:
        if gpu == 5:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return 350_500

    opened = []
    for name, answer in {
        "nvmlInit": lambda: opened.append(1),
        "nvmlShutdown": opened.pop,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetUtilizationRates": lambda gpu: SimpleNamespace(gpu=90 + gpu),
        "nvmlDeviceGetMemoryInfo": lambda gpu: SimpleNamespace(used=gpu * 10**9),
        "nvmlDeviceGetPowerUsage": power,
        "nvmlDeviceGetTemperature": lambda gpu, _sensor: 60 + gpu,
    }.items():
        monkeypatch.setattr(pynvml, name, answer)
    _ranks(folder, {9: os.getpid(), 8: os.getpid()})
    values = Sampler(folder, _assignment(devices=[2, 5], device_kind="cuda")).sample()
    assert {name: value for name, value in values.items() if "gpu" in name} == {
        "system/rank8/gpu_utilization_percent": 92.0,
        "system/rank8/gpu_memory_bytes": 2e9,
        "system/rank8/gpu_power_watts": 350.5,
        "system/rank8/gpu_temperature_celsius": 62.0,
        "system/rank9/gpu_utilization_percent": 95.0,
        "system/rank9/gpu_memory_bytes": 5e9,
        "system/rank9/gpu_temperature_celsius": 65.0,
    }
    assert opened == []
    assert all(NAME.fullmatch(name) and metadata_of(name).unit for name in values)


def test_a_node_without_a_driver_has_no_series_of_gpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", none)
    assert Nvidia().measure([0]) == {}
    assert Nvidia().devices() == []


@pytest.mark.parametrize(
    "text", ["", "[]", '{"ranks": 1}', '{"ranks": [{"rank": "x", "pid": 1}]}', "\xff"]
)
def test_invalid_content_in_the_ranks_file_has_no_effect(folder: Folder, text: str) -> None:
    folder.file("ranks.json").write_bytes(text.encode("latin-1"))
    assert "system/node0/memory_bytes" in Sampler(folder, _assignment()).sample()


@pytest.mark.gpu
def test_a_real_gpu_answers() -> None:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        pytest.skip("NOT RUN: no NVIDIA driver answers")
    pynvml.nvmlShutdown()
    values = Nvidia().measure([0])[0]
    assert 0 <= values["gpu_utilization_percent"] <= 100
    assert values["gpu_memory_bytes"] > 0
