"""Settings, the inventory of devices, and folders that are kept."""

from __future__ import annotations

import platform
from pathlib import Path

import pynvml
import pytest
from pydantic import ValidationError

from lockstep.domain.kinds.offers import PAUSES
from lockstep.storage.attempts.nodes import DeviceInfo
from lockstep.storage.control.settings_list import refusals
from lockstep.worker.devices import inventory
from lockstep.worker.folders import Folder, folders_in, retire
from lockstep.worker.settings import AgentSettings, node_name_of


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in {
        "DATABASE_URL": f"sqlite:///{tmp_path}/jobs.db",
        "BROKER_URL": f"redis+socket://{tmp_path}/b.sock",
        "STORE": str(tmp_path / "store"),
        "NODE_DIR": str(tmp_path / "node"),
    }.items():
        monkeypatch.setenv(f"LOCKSTEP_{name}", value)


def test_a_hosts_name_becomes_a_nodes_name() -> None:
    assert node_name_of("GPU Box_7.example.org.") == "gpu-box_7.example.org"
    assert node_name_of("***") == "node"


def test_a_name_that_is_none_is_refused_with_one_that_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_NODE_NAME", "GPU 7")
    with pytest.raises(ValidationError, match="for example 'gpu-7'"):
        AgentSettings()


def test_a_relative_folder_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_NODE_DIR", "node")
    with pytest.raises(ValidationError, match="expected an absolute path"):
        AgentSettings()


def test_what_a_node_offers_is_checked_with_the_name_of_its_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert AgentSettings().node_offers == ()
    monkeypatch.setenv("LOCKSTEP_NODE_OFFERS", "rack:a, data:x")
    assert AgentSettings().node_offers == ("data:x", "rack:a")
    monkeypatch.setenv("LOCKSTEP_NODE_OFFERS", "rack:a,Data:X")
    with pytest.raises(ValidationError) as refused:
        AgentSettings()
    (line,) = refusals(refused.value)
    assert line.startswith("LOCKSTEP_NODE_OFFERS: 'Data:X' is not a name: expected a word or")


def test_a_node_offers_its_interpreter_and_the_kinds_of_its_devices_too() -> None:
    found = [DeviceInfo(0, "cuda", "NVIDIA H200"), DeviceInfo(1, "cuda", "NVIDIA A100")]
    python = "python:" + ".".join(platform.python_version_tuple()[:2])
    assert inventory.offers(["rack:a"], found) == ["kind:cuda", python, "rack:a", PAUSES]
    assert inventory.offers((), []) == [python, PAUSES]


@pytest.mark.parametrize(("cores", "slots"), [(1, 2), (16, 16)])
def test_a_node_without_gpus_offers_its_cores_as_slots(
    monkeypatch: pytest.MonkeyPatch, cores: int, slots: int
) -> None:
    monkeypatch.setattr(inventory, "DRIVERS", {})
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    found = inventory.devices(None)
    assert [(device.index, device.kind, device.type) for device in found] == [
        (i, "cpu", "cpu") for i in range(slots)
    ]


def test_the_number_of_slots_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "DRIVERS", {})
    assert len(inventory.devices(5)) == 5
    assert (
        sum(device.memory_bytes or 0 for device in inventory.devices(5)) <= inventory.host_bytes()
    )
    assert inventory.devices(0) == []


def test_gpus_are_described_as_nvml_numbers_them(monkeypatch: pytest.MonkeyPatch) -> None:
    class Memory:
        total = 80 * 2**30

    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 2)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: index)
    monkeypatch.setattr(
        pynvml, "nvmlDeviceGetName", lambda handle: b"NVIDIA H200" if handle else "NVIDIA A100"
    )
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", lambda _handle: Memory)
    found = inventory.devices(cpu_slots=7)
    assert [(device.index, device.kind, device.type) for device in found] == [
        (0, "cuda", "NVIDIA A100"),
        (1, "cuda", "NVIDIA H200"),
    ]
    assert found[0].memory_bytes == 80 * 2**30


def test_folders_of_ended_attempts_are_deleted_or_the_newest_are_kept(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        Folder(tmp_path / name).create()
    retire(Folder(tmp_path / "a"), keep=0)
    assert {path.name for path in tmp_path.iterdir()} == {"b", "c"}
    for name in ("b", "c"):
        retire(Folder(tmp_path / name), keep=1)
    assert {path.name for path in tmp_path.iterdir()} == {".kept-c"}
    assert folders_in(tmp_path) == []


def test_deleting_a_folder_does_not_follow_the_link_to_a_jobs_code(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "train.py").write_text("1")
    folder = Folder(tmp_path / "attempt")
    folder.create()
    folder.file("code").symlink_to(mine)
    folder.delete()
    assert not folder.exists()
    assert (mine / "train.py").exists()


@pytest.mark.parametrize(("limit", "found"), [("max", 2**63), ("1048576", 2**20), (None, 2**63)])
def test_the_memory_of_a_container_is_its_limit(
    tmp_path: Path, limit: str | None, found: int
) -> None:
    if limit is not None:
        (tmp_path / "memory.max").write_text(limit + "\n")
    assert inventory.host_bytes(tmp_path) == min(found, inventory.psutil.virtual_memory().total)
