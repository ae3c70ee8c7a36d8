"""The peers' own virtual environments: created from the Python registry, separate from ours.

A peer that cannot be installed takes no part, and its rows have the reason.

Not here: starting a peer (``peer_mlflow``, ``peer_ray``).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

NEEDS: Final = {"mlflow": ("mlflow", "psycopg2-binary"), "ray": ("ray[default]",)}
INSTALL_SECONDS: Final = 1_800.0
_DONE: Final = ".installed"


class Environments:
    """One virtual environment per peer in ``folder``, created at its first use.

    Existing ones are used again.
    """

    def __init__(self, folder: Path, *, wanted: bool):
        self._folder = folder
        self._wanted = wanted
        self._why: dict[str, str] = {}

    def programs(self, peer: str) -> Path | None:
        """Return the folder of the peer's programs, or None if it cannot be installed.

        Then :meth:`why` has the reason.
        """
        home = self._folder / peer
        if (home / _DONE).exists():
            return home / "bin" if self._wanted else None
        if not self._wanted or peer in self._why:
            return None
        print(f"installing {peer} into {home} …", file=sys.stderr, flush=True)
        pip = [str(home / "bin/python"), "-m", "pip", "install", "-q", *NEEDS[peer]]
        steps = ([sys.executable, "-m", "venv", str(home)], pip)
        for step in steps:
            try:
                done = subprocess.run(
                    step, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
                )
            except subprocess.TimeoutExpired:
                self._why[peer] = f"not installed: it took more than {INSTALL_SECONDS:g} s"
                return None
            if done.returncode:
                last = (done.stderr.strip().splitlines() or ["no word"])[-1]
                self._why[peer] = f"not installed: {last}"
                return None
        (home / _DONE).touch()
        return home / "bin"

    def why(self, peer: str) -> str:
        """Return the reason why a peer takes no part."""
        return self._why.get(peer, "left out")
