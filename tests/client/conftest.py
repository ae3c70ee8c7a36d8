"""A server for the client's tests, and a fixture that runs one command line in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client import examples
from tests.client.server import ReplayServer
from tests.client.terminal import CommandLine


@pytest.fixture
def server() -> Iterator[ReplayServer]:
    with ReplayServer() as running:
        running.on("GET", "/v1/session", examples.caller())
        running.on("GET", f"/v1/jobs/{examples.ID}/files", examples.files())
        yield running


@pytest.fixture
def lockstep(
    server: ReplayServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> CommandLine:
    """Return the command, pointed at ``server``, in an empty folder with an empty home."""
    for name in ("LOCKSTEP_TOKEN", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LOCKSTEP_URL", server.url)
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.chdir(tmp_path)
    return CommandLine(capsys)
