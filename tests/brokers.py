"""A real broker for a test: ``python -m lockstep.broker`` on a unix socket.

It can be killed, frozen and started again.

Not here: any fake broker.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from redis import Redis
from redis.exceptions import RedisError

T = TypeVar("T")


def until(ask: Callable[[], T | None], seconds: float, what: str) -> T:
    """Poll until the answer is true, or fail after ``seconds`` with ``what`` in the message."""
    deadline = time.monotonic() + seconds
    while not (answer := ask()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.05)
    return answer


class Broker:
    """One broker, at one address for the whole test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "b.sock"
        self.url = f"redis+socket://{self.socket}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "lockstep.broker",
                    "--socket",
                    str(self.socket),
                    "--dir",
                    str(self.folder / "data"),
                ],
                stdout=log,
                stderr=log,
            )
        until(self.answers, 60, "the broker's first answer")

    def answers(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.ping())
        except RedisError:
            return False

    def client(self) -> Redis:
        return Redis(unix_socket_path=str(self.socket), socket_timeout=60)

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)

    def freeze(self) -> None:
        """SIGSTOP: the kernel accepts connections, and no request is ever answered."""
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@contextmanager
def running_broker(*, started: bool = True) -> Iterator[Broker]:
    """Run a broker in a folder with a short name: a unix socket's path has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="ls-") as folder:
        broker = Broker(Path(folder))
        try:
            if started:
                broker.start()
            yield broker
        finally:
            broker.kill()
