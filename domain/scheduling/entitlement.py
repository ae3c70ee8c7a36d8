"""Entitlement of projects: the devices that their weights give them.

The api reports it (``api.jobs.sharing``). No decision of the scheduler reads it.

Not here: the order of jobs (``domain.scheduling.shares``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping


def entitled(
    weights: Mapping[str, float], active: Collection[str], devices: int
) -> dict[str, float]:
    """Return the devices to which each active project is entitled.

    Parameters
    ----------
    weights : mapping of project to weight
        A project that is missing has weight 1.
    active : collection of str
        Projects with jobs that wait or run. They divide the devices of the other projects, too.
    devices : int
        All devices.
    """
    total = sum(weights.get(name, 1.0) for name in active)
    return {name: devices * weights.get(name, 1.0) / total for name in active}
