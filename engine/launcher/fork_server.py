"""Process that has imported torch and forks launchers, which starts attempts seconds sooner.

``python -m lockstep.engine.launcher.fork_server DESCRIPTOR``, where the descriptor is one end
of a ``SOCK_SEQPACKET`` pair:

1. It imports the modules of launchers and ranks, and sends ``ready``.
2. Each message ``{"folder": …, "environ": {…}}``, with the descriptor of the launcher's log, starts
one launcher of that folder, as ``python -m lockstep.engine.launcher FOLDER`` would in that
environment. The answer is its pid.
3. It exits when the other side closes. Launchers continue.

A launcher is forked twice, so it becomes a child of the nearest subreaper, the agent. This process
runs no tensor operation and no thread, and holds no device; if an import has left one it gives up.

Not here: forks of ranks (``engine.launcher.start.forking``), the other side
(``worker.launch.fork_client``).
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from lockstep.domain.kinds.devices import HIDDEN
from lockstep.domain.life.fork_server import BYTES_MAX, READY, LaunchRequest
from lockstep.engine.launcher.bounds import Bounds
from lockstep.engine.launcher.run import run_attempt
from lockstep.engine.launcher.start import forking
from lockstep.engine.launcher.start.processes import name_process, show_environment


def main(arguments: list[str]) -> None:
    """Serve until the other side has gone."""
    channel = socket.socket(fileno=int(arguments[0]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C at the agent's terminal is for the agent.
    os.environ.update(HIDDEN)
    reason = forking.preload() or forking.left_open()
    if reason is not None:
        sys.exit(f"launchers are started by exec instead of fork: {reason}")
    name_process("lockstep-warm")
    gc.collect()
    gc.freeze()
    with contextlib.suppress(ConnectionError):
        channel.send(READY)
        while True:
            message, descriptors, _, _ = socket.recv_fds(channel, BYTES_MAX, 1)
            if not message:
                return
            pid = _fork(LaunchRequest.model_validate_json(message), descriptors[0])
            os.close(descriptors[0])
            channel.send(str(pid).encode())


def _fork(wanted: LaunchRequest, log: int) -> int:
    """Fork a launcher and return its pid once it has another parent."""
    reader, writer = os.pipe()
    between = os.fork()
    if between == 0:
        os.setsid()  # The session separates it from this process for the agent.
        launcher = os.fork()
        if launcher == 0:
            _become_launcher(Path(wanted.folder), wanted.environ, log)
        os.write(writer, str(launcher).encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(between, 0)
    try:
        return int(os.read(reader, 64))
    finally:
        os.close(reader)


def _become_launcher(folder: Path, environ: Mapping[str, str], log: int) -> NoReturn:
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environ)
        show_environment(environ)
        name_process("lockstep-launch")
        run_attempt(folder, Bounds())
    except BaseException:
        sys.excepthook(*sys.exc_info())
        raise
    finally:
        os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
