"""Running one command line as a person would, and reading what it wrote."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from client.cli.app import run


class Said(NamedTuple):
    code: int
    out: str
    err: str


class CommandLine:
    """``lockstep(*words)`` runs a command in this process; neither stdout nor stderr is a terminal."""

    def __init__(self, capsys: pytest.CaptureFixture[str]):
        self._capsys = capsys

    def __call__(self, *words: str) -> Said:
        self._capsys.readouterr()
        code = run(words)
        written = self._capsys.readouterr()
        return Said(code, written.out, written.err)
