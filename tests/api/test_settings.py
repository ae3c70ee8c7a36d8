"""Settings that the api refuses at its start, before it opens a database or a socket."""

from __future__ import annotations

import os

import pytest
from pydantic import ValidationError

from lockstep.api.settings import ApiSettings, is_loopback

REQUIRED = {
    "LOCKSTEP_DATABASE_URL": "sqlite:////nowhere/jobs.db",
    "LOCKSTEP_BROKER_URL": "redis+socket:///nowhere/broker.sock",
    "LOCKSTEP_STORE": "/nowhere/store",
}


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("LOCKSTEP_")]:
        monkeypatch.delenv(name)
    for name, value in REQUIRED.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "gpu-box"])
def test_a_service_that_guards_nothing_is_not_opened_to_others(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv("LOCKSTEP_AUTH", "off")
    monkeypatch.setenv("LOCKSTEP_HOST", host)
    with pytest.raises(ValidationError) as caught:
        ApiSettings()
    message = str(caught.value)
    assert host in message
    assert "set LOCKSTEP_AUTH=on, or LOCKSTEP_HOST=127.0.0.1" in message


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "[::1]", "localhost", "127.8.8.8"])
def test_loopback_may_be_open(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("LOCKSTEP_AUTH", "off")
    monkeypatch.setenv("LOCKSTEP_HOST", host)
    assert ApiSettings().auth == "off"
    assert is_loopback(host)


def test_with_authentication_any_address_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_HOST", "0.0.0.0")
    assert ApiSettings().host == "0.0.0.0"


def test_allowed_hosts_are_names_without_scheme_and_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_ALLOWED_HOSTS", "Lab.example, gpu-box,")
    assert ApiSettings().allowed_hosts == ("lab.example", "gpu-box")
    for wrong in ("https://lab.example", "lab.example:8470", "*"):
        monkeypatch.setenv("LOCKSTEP_ALLOWED_HOSTS", wrong)
        with pytest.raises(ValidationError, match="without scheme and port, got"):
            ApiSettings()


def test_settings_do_not_change_once_read() -> None:
    with pytest.raises(ValidationError):
        ApiSettings().port = 1  # type: ignore[misc]
