"""Drivers of devices by kind: each finds the devices of the node, and measures them.

Slots of the CPU have no driver.

Not here: the traits of a kind (``domain.kinds.devices``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from lockstep.storage.attempts.nodes import DeviceInfo
from lockstep.worker.devices.nvidia import Nvidia


class Driver(Protocol):
    """Driver of one kind. A missing or silent driver is no error: the answers are empty."""

    def devices(self) -> list[DeviceInfo]:
        """Return all devices of the node, in the driver's order."""

    def used_bytes(self, devices: Sequence[int]) -> dict[int, int]:
        """Return the memory in use on each of these devices."""

    def measure(self, devices: Sequence[int]) -> dict[int, dict[str, float]]:
        """Return the measurements of each of these devices, by the end of the series' name."""


DRIVERS: Final[dict[str, Driver]] = {"cuda": Nvidia()}


def used_bytes(devices: Sequence[int]) -> Mapping[int, int]:
    """Return the memory in use on each of these devices; empty on a node without a driver.

    All devices of a node are of one kind.
    """
    answers = (driver.used_bytes(devices) for driver in DRIVERS.values())
    return next(filter(None, answers), {})
