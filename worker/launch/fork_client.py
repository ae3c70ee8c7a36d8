"""Agent's side of the fork server, which forks launchers (``engine.launcher.fork_server``).

The fork server takes seconds to start, and may die. While it is not ready, launchers are started by
exec, which takes those seconds and is otherwise equal.

Not here: the parent of the launcher (``worker.launch.sweeping.Children``).
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import structlog

from lockstep.domain.life.fork_server import BYTES_MAX, READY, LaunchRequest

log = structlog.get_logger(__name__)

COMMAND = (sys.executable, "-P", "-m", "lockstep.engine.launcher.fork_server")
_ROOM = 4096
"""Bytes of the warm process's first environment that are kept free, so that forks can show their
own there."""
_ANSWER_SECONDS = 5.0
"""A fork takes milliseconds."""
_AGAIN_SECONDS = 60.0
"""From one start to the next: where it cannot run, it is not tried all the time."""


class ForkServerError(OSError):
    """It was asked for a launcher and gave none; it has been ended."""


class ForkServer:
    """Client of the fork server. Any thread may call.

    Parameters
    ----------
    environment : mapping
        Environment of the fork server, without the agent's credentials.
    command : sequence of str
        Its command; the descriptor of its end of the channel is appended.
    """

    def __init__(self, environment: Mapping[str, str], command: Sequence[str] = COMMAND):
        self._command = command
        self._environment = {**environment, "LOCKSTEP_ROOM": "x" * _ROOM}
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._ready = False
        self._start_at = 0.0

    def tend(self) -> None:
        """Start it, or start it again if it has died. Does not wait for it."""
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                return
            if self._process is not None:
                log.warning(
                    "the fork server has ended; launchers are started by exec",
                    code=self._process.returncode,
                )
                self._drop()
            if time.monotonic() < self._start_at:
                return
            self._start_at = time.monotonic() + _AGAIN_SECONDS
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                # In the agent's session, unlike the orphans of a launcher.
                self._process = subprocess.Popen(
                    [*self._command, str(theirs.fileno())],
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                )
            self._channel = ours

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def is_ready(self) -> bool:
        """Return whether launchers can be forked."""
        with self._lock:
            if self._channel is not None and not self._ready:
                with contextlib.suppress(BlockingIOError, ConnectionError):
                    self._ready = self._channel.recv(64, socket.MSG_DONTWAIT) == READY
            return self._ready

    def fork(self, folder: Path, environ: Mapping[str, str], log_descriptor: int) -> int | None:
        """The pid of a new launcher of ``folder``, a child of this process.

        None if a warm process is not ready.

        Raises
        ------
        ForkServerError
            If it was asked and did not answer. A launcher may exist nevertheless, as a child of
            this process.
        """
        request = (
            LaunchRequest(folder=str(folder), environ=dict(environ)).model_dump_json().encode()
        )
        if len(request) > BYTES_MAX or not self.is_ready():
            return None
        with self._lock:
            if self._channel is None:
                return None
            try:
                socket.send_fds(self._channel, [request], [log_descriptor])
            except OSError:
                return None  # It has died before the request.
            try:
                self._channel.settimeout(_ANSWER_SECONDS)
                return int(self._channel.recv(64))
            except (OSError, ValueError) as error:
                self._drop()
                raise ForkServerError(f"the fork server started no launcher: {error}") from error

    def close(self) -> None:
        """End it. Launchers continue."""
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        if self._channel is not None:
            self._channel.close()
        if self._process is not None:
            self._process.kill()  # It has nothing to put in order.
            self._process.wait()
        self._process = self._channel = None
        self._ready = False
