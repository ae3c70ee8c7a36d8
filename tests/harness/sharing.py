"""Modules that share one running service, and their way to one process of xdist.

A start of the service takes ten seconds of a core. These modules only submit jobs of their own and
read them by id or by a name that no other module has. A module that kills or restarts programs,
drains nodes, adds users, counts jobs or measures the traffic of lists has a service of its own.
"""

from __future__ import annotations

from typing import Any, Final

from xdist.scheduler.loadfile import LoadFileScheduling

SHARING: Final = {
    f"tests/{folder}/test_{name}.py": folder
    for folder, names in {
        "e2e": "failures generated_client handbook layouts main_job scaling",
        "dashboard": "charts compare first_screen job outcome submit truth",
    }.items()
    for name in names.split()
}
"""Folder of each, whose ``conftest.py`` has the service."""


class OneServicePerFolder(LoadFileScheduling):
    """Distribution by files, but the modules that share a service have one process."""

    def _split_scope(self, nodeid: str) -> Any:
        file = super()._split_scope(nodeid)
        return SHARING.get(file, file)
