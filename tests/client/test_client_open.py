"""``lockstep open``: the address, and a code that only the browser gets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import pytest

from lockstep.client import handover
from lockstep.domain.views import SignInCode
from tests.client import examples
from tests.client.server import ReplayServer
from tests.client.terminal import CommandLine

TOKEN = "lockstep_a+b/c&d"
CODE = SignInCode(code="lsc_a+b", expires_at=datetime(2026, 3, 2, tzinfo=UTC))
AS_FRAGMENT = "#code=lsc_a%2Bb"


class Browser:
    """Stand-in for the user's browser: it records its command line, and opens the address."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.arrived: list[str] = []
        self.comes = True

    def open(self, address: str) -> bool:
        self.told.append(address)
        if self.comes:
            answer = httpx2.get(address, timeout=60)
            self.arrived.append(answer.headers.get("location", address))
        return True


@pytest.fixture(autouse=True)
def no_window(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("webbrowser.open", lambda address: pytest.fail(f"opened {address}"))


@pytest.fixture
def browser(monkeypatch: pytest.MonkeyPatch, server: ReplayServer) -> Browser:
    found = Browser()
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr("webbrowser.open", found.open)
    server.on("GET", "/", examples.job())
    return found


@pytest.fixture
def signed_in(lockstep: CommandLine, server: ReplayServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set a token of the test; ``lockstep`` removes all earlier ones."""
    monkeypatch.setenv("LOCKSTEP_TOKEN", TOKEN)
    server.on("POST", "/v1/sign-in-codes", CODE)


def test_the_address_is_printed_where_no_window_can_open(
    lockstep: CommandLine, server: ReplayServer
) -> None:
    server.on("GET", "/v1/jobs/tiny", examples.job())
    assert lockstep("open").out == f"{server.url}/\n"
    assert lockstep("open", "tiny").out == f"{server.url}/jobs/{examples.ID}\n"


def test_without_a_token_the_browser_opens_the_page_itself(
    lockstep: CommandLine, server: ReplayServer, browser: Browser
) -> None:
    said = lockstep("open")
    assert (said.code, said.out, browser.told) == (0, "", [f"{server.url}/"])
    assert lockstep("open", "--with-code").out == f"{server.url}/\n"


@pytest.mark.usefixtures("signed_in")
def test_the_browser_gets_a_code_and_its_command_line_does_not(
    lockstep: CommandLine, server: ReplayServer, browser: Browser
) -> None:
    server.on("GET", "/v1/jobs/tiny", examples.job())
    said = lockstep("open", "tiny")
    page = f"{server.url}/jobs/{examples.ID}"
    assert browser.arrived == [f"{page}{AS_FRAGMENT}"]
    assert (said.code, said.out, said.err) == (0, "", f"opened {page}\n")
    assert "code" not in browser.told[0]
    assert server.asked[-1].headers["authorization"] == f"Bearer {TOKEN}"


@pytest.mark.usefixtures("signed_in")
def test_a_code_is_printed_only_on_request(
    lockstep: CommandLine, server: ReplayServer, browser: Browser
) -> None:
    said = lockstep("open", "--print")
    assert (said.out, browser.told) == (f"{server.url}/\n", [])
    assert server.asked == []
    assert "--with-code" in said.err
    assert TOKEN not in said.err
    asked = lockstep("open", "--with-code")
    assert (asked.out, browser.told) == (f"{server.url}/{AS_FRAGMENT}\n", [])


@pytest.mark.usefixtures("signed_in")
def test_a_browser_without_a_request_is_reported(
    lockstep: CommandLine, server: ReplayServer, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockstep.cli.service.shell.BROWSER_SECONDS", 0.01)
    browser.comes = False
    said = lockstep("open")
    assert "did not request the code" in said.err
    assert TOKEN not in said.out + said.err
    assert CODE.code not in said.out + said.err


@pytest.fixture
def way() -> Iterator[handover.Handover]:
    with handover.Handover("http://there/#code=c") as running:
        yield running


def test_only_one_browser_is_answered_at_its_address(
    way: handover.Handover,
) -> None:
    wrong = way.url.rpartition("/")[0]
    for address in (f"{wrong}/", f"{wrong}/favicon.ico", f"{way.url}x", f"{way.url}?a"):
        assert httpx2.get(address).status_code == 404
    assert not way.wait(0)
    first = httpx2.get(way.url)
    assert (first.status_code, first.headers["location"]) == (303, "http://there/#code=c")
    assert first.headers["cache-control"] == "no-store"
    assert way.wait(60)
    assert httpx2.get(way.url).status_code == 404


def test_another_users_socket_is_not_answered(
    way: handover.Handover, monkeypatch: pytest.MonkeyPatch
) -> None:
    me = os.getuid()
    monkeypatch.setattr("os.getuid", lambda: me + 1)
    assert httpx2.get(way.url).status_code == 404
    assert not way.wait(0)


def test_the_owner_of_a_socket_is_read_from_the_system(tmp_path: Path) -> None:
    head = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  "
        "timeout inode\n"
    )
    row = (
        "   0: {}0100007F:1F90 0100007F:1F91 01 00000000:00000000 00:00000000 00000000 {:>5}      "
        "  0 1 1\n"
    )
    four, six, absent = tmp_path / "tcp", tmp_path / "tcp6", tmp_path / "absent"
    four.write_text(head + row.format("", os.getuid()))
    six.write_text(head + row.format("0000000000000000FFFF0000", os.getuid() + 1))
    assert handover.is_mine(0x1F90, (four,))
    assert not handover.is_mine(0x1F90, (absent, six))
    assert not handover.is_mine(0x1F92, (four, six))
    assert handover.is_mine(0x1F90, (absent,))
