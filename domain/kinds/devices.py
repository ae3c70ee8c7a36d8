"""Kinds of devices: one row for each.

Not here: the driver that finds and measures the devices of a node (``worker.devices.drivers``), the
engine's use of one (``engine.runtime.device``). Both have an entry for each row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

DeviceName = Literal["cuda", "cpu"]


@dataclass(frozen=True, kw_only=True)
class DeviceKind:
    """Traits of a kind of device."""

    name: DeviceName
    """As torch calls it, too."""
    is_slot: bool = False
    """True for a part of the node's CPU. It has no driver, and no variable selects it."""
    selected_by: str = ""
    """Environment variable that restricts a process to some devices, by index."""
    use_metric: str
    """Last part of the series with the use of a rank's device, in percent."""
    order: tuple[str, str] | None = None
    """Environment variable and value with which the devices have the driver's order."""

    def environment(self, devices: Iterable[int]) -> dict[str, str]:
        """Return the variables with which a process sees these devices, and no others."""
        mine = {self.selected_by: ",".join(map(str, devices))} if self.selected_by else {}
        return HIDDEN | mine


DEVICES: Final[dict[str, DeviceKind]] = {
    row.name: row
    for row in (
        DeviceKind(
            name="cuda",
            selected_by="CUDA_VISIBLE_DEVICES",
            use_metric="gpu_utilization_percent",
            # The driver numbers GPUs by bus; CUDA by default puts the fastest first, and a rank
            # would run on another job's device.
            order=("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
        ),
        DeviceKind(name="cpu", is_slot=True, use_metric="cpu_percent"),
    )
}
"""Rows by name."""
HIDDEN: Final = {row.selected_by: "" for row in DEVICES.values() if row.selected_by}
"""Environment in which a process sees no device but the CPU."""
ORDER: Final = dict(row.order for row in DEVICES.values() if row.order)
"""Environment in which all programs number devices as the drivers do."""


def named(name: str) -> DeviceKind:
    """Return a row.

    Raises
    ------
    ValueError
        If there is no kind of this name: it is not taken for another.
    """
    if name not in DEVICES:
        raise ValueError(f"unknown kind of device: expected {' or '.join(DEVICES)}, got {name!r}")
    return DEVICES[name]
