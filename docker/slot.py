"""Start a program with a node folder and a node name of its own.

    python slot.py python -m lockstep.worker

Containers of one service share a volume and a node name: with ``docker compose up --scale`` or both
profiles, several agents. Each takes the first slot whose lock is free, and keeps the lock until it
ends. A container that replaces another one takes the same slot, so folder and name stay. The host
name would be another one after each re-creation.

Slot 1 of the name ``compose-cpu`` is the folder ``compose-cpu-1`` and the node ``compose-cpu``;
slot 2 is ``compose-cpu-2``, folder and node.

Not here: the agent's own lock on its folder (``worker.service``).
"""

from __future__ import annotations

import fcntl
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

NOTE = Path(tempfile.gettempdir(), "lockstep-node-folder")
"""In the container's own files; ``docker/health.py`` reads it."""
SLOTS_MAX = 64
UNNAMED = "node"


def take(environment: Mapping[str, str]) -> tuple[dict[str, str], int]:
    """Take the first free slot.

    Returns
    -------
    variables : dict
        ``LOCKSTEP_NODE_DIR`` and, if the environment has one, ``LOCKSTEP_NODE_NAME``.
    lock : int
        Open file that holds the slot. Programs inherit it on exec.

    Raises
    ------
    OSError
        If the volume is not writable, or all slots are taken.
    """
    volume = Path(environment["LOCKSTEP_NODE_DIR"])
    name = environment.get("LOCKSTEP_NODE_NAME", "")
    for number in range(1, SLOTS_MAX + 1):
        folder = volume / f"{name or UNNAMED}-{number}"
        folder.mkdir(mode=0o700, exist_ok=True)
        lock = os.open(volume / f".{folder.name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        os.set_inheritable(lock, True)
        variables = {"LOCKSTEP_NODE_DIR": str(folder)}
        if name:
            variables["LOCKSTEP_NODE_NAME"] = name if number == 1 else f"{name}-{number}"
        return variables, lock
    raise OSError(f"all {SLOTS_MAX} slots of {volume} are taken; stop an agent of this host")


def main(command: list[str]) -> None:
    """Take a slot and become ``command``."""
    try:
        variables, _ = take(os.environ)
        NOTE.write_text(variables["LOCKSTEP_NODE_DIR"], encoding="utf-8")
    except OSError as error:
        sys.exit(f"no folder for the node: {error}")
    os.execvpe(command[0], command, {**os.environ, **variables})  # noqa: S606 -- no shell is wanted


if __name__ == "__main__":
    main(sys.argv[1:])
