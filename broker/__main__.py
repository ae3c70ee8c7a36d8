"""``python -m lockstep.broker --socket PATH --dir FOLDER``: become the broker of this machine.

Not here: how the server is found and set up (``broker.server``).
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from lockstep.broker.server import check_socket, command, find_server
from lockstep.domain.errors import LockstepError
from lockstep.system.processes import keep_files_private


def main() -> None:
    """Check, then exec the server."""
    parser = argparse.ArgumentParser(
        prog="python -m lockstep.broker", description="Run the broker of one machine."
    )
    parser.add_argument(
        "--socket", type=Path, required=True, help="absolute path of the unix socket to listen on"
    )
    parser.add_argument(
        "--dir",
        type=Path,
        required=True,
        help="working folder of the server; no data is stored in it",
    )
    arguments = parser.parse_args()
    try:
        check_socket(arguments.socket)
        server = find_server()
    except LockstepError as error:
        sys.exit(f"broker: {error.message}" + (f"\n{error.next_step}" if error.next_step else ""))
    keep_files_private()
    for folder in (arguments.dir, arguments.socket.parent):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    argv = command(server, socket=arguments.socket, folder=arguments.dir.absolute())
    os.execv(argv[0], argv)  # noqa: S606 -- this is the server's own argv; there is no shell


if __name__ == "__main__":
    main()
