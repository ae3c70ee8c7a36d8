"""Runs of one command line as by a user, and their output."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from typing import NamedTuple

import pytest

from lockstep.cli.app import run


class Said(NamedTuple):
    code: int
    out: str
    err: str


class CommandLine:
    """``lockstep(*words)`` runs a command in this process.

    Neither stdout nor stderr is a terminal.
    """

    def __init__(self, capsys: pytest.CaptureFixture[str]):
        self._capsys = capsys

    def __call__(self, *words: str) -> Said:
        self._capsys.readouterr()
        code = run(words)
        written = self._capsys.readouterr()
        return Said(code, written.out, written.err)


class Terminal:
    """A command in a pseudo-terminal."""

    def __init__(self, *words: str):
        self._master, slave = pty.openpty()
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
        environment.pop("NO_COLOR", None)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "lockstep", *words],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
        )
        os.close(slave)
        self.seen = ""

    def read_until(self, words: str, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while words not in self.seen:
            assert time.monotonic() < deadline, f"{words!r} did not come; seen: {self.seen}"
            if not select.select([self._master], [], [], 0.1)[0]:
                continue
            try:
                self.seen += os.read(self._master, 65536).decode("utf-8", "replace")
            except OSError:
                raise AssertionError(f"{words!r} did not come; seen: {self.seen}") from None

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)
