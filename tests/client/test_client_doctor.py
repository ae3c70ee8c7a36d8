"""``doctor``: each possible fault is found and named, with advice."""

from __future__ import annotations

import json
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from lockstep.client import doctor
from lockstep.domain.list_views import JobPage
from lockstep.domain.version import VERSION
from lockstep.domain.views import Health, NodeView, Page
from tests.client import examples
from tests.client.server import Answer, ReplayServer, problem, view
from tests.client.terminal import CommandLine, Said

NOW = 1_800_000_000.0


def _well(server: ReplayServer, **changes: Any) -> None:
    """Return a state without faults, except for the changes."""
    node = examples.node().model_copy(update={"version": VERSION})
    answers = {
        "/livez": Health(status="ok", version=VERSION),
        "/readyz": Health(status="ok", checks={"broker": "ok", "database": "ok"}),
        "/v1/jobs": JobPage(items=[], total=0),
        "/v1/nodes": Page[NodeView](items=[node]),
        **changes,
    }
    for path, answer in answers.items():
        server.on("GET", path, answer)


def _findings(said: Said) -> dict[str, str]:
    return {each["name"]: each["level"] for each in json.loads(said.out)}


def test_where_all_is_well_nothing_fails(lockstep: CommandLine, server: ReplayServer) -> None:
    _well(server)
    said = lockstep("doctor", "--json")
    found = _findings(said)
    assert said.code == 0
    names = (
        "address",
        "answer",
        "version",
        "clock",
        "broker",
        "database",
        "token",
        "nodes",
        "python",
        "programs",
        "torch",
    )
    assert {name: found[name] for name in names} == dict.fromkeys(names, "ok")
    assert "disk" in found
    assert "roles" not in found
    _well(server, **{"/v1/session": examples.caller(is_alone=False)})
    assert "roles" in _findings(lockstep("doctor", "--json"))
    table = lockstep("doctor")
    assert table.out.splitlines()[0].split()[:2] == ["ok", "address"]


READY = examples.node().model_copy(update={"version": VERSION})
LEAVING = examples.node().model_copy(
    update={"name": "node-2", "state": "leaving", "version": VERSION}
)
LOST = examples.node().model_copy(update={"state": "lost", "version": VERSION})


@pytest.mark.parametrize(
    ("changes", "name", "level", "words"),
    [
        ({"/livez": Answer(404, b"<html>")}, "answer", "fail", "another program"),
        ({"/livez": Health(status="ok", version="9.9")}, "version", "warn", "9.9 on the server"),
        ({"/livez": Answer(200, b"[]")}, "version", "warn", "does not report its version"),
        (
            {
                "/readyz": view(
                    Health(
                        status="degraded", checks={"broker": "does not answer", "database": "ok"}
                    )
                )
            },
            "broker",
            "warn",
            "does not answer",
        ),
        (
            {
                "/readyz": view(
                    Health(status="unavailable", checks={"broker": "ok", "database": "is full"}),
                    503,
                )
            },
            "database",
            "fail",
            "is full",
        ),
        (
            {
                "/readyz": view(
                    Health(
                        status="degraded",
                        checks={"database": "ok", "store": "/s cannot be written"},
                    )
                )
            },
            "store",
            "fail",
            "/s cannot be written",
        ),
        (
            {"/v1/nodes": Page[NodeView](items=[READY, LEAVING])},
            "node-2",
            "warn",
            "its agent was stopped",
        ),
        (
            {"/v1/jobs": problem(401, "unauthenticated", "this token is not known")},
            "token",
            "fail",
            "LOCKSTEP_TOKEN",
        ),
        ({"/v1/nodes": Page[NodeView](items=[])}, "nodes", "fail", "every job waits"),
        ({"/v1/nodes": Page[NodeView](items=[LOST])}, "nodes", "fail", "none of 1 is ready"),
        ({"/v1/nodes": Page[NodeView](items=[LOST])}, "node-1", "warn", "start its agent"),
        (
            {
                "/v1/nodes": Page[NodeView](
                    items=[examples.node().model_copy(update={"version": "0.0.9"})]
                )
            },
            "node-1",
            "warn",
            "has version 0.0.9",
        ),
    ],
)
def test_each_fault_is_found_with_advice(
    lockstep: CommandLine,
    server: ReplayServer,
    changes: dict[str, Any],
    name: str,
    level: str,
    words: str,
) -> None:
    _well(server, **changes)
    said = lockstep("doctor", "--json")
    assert _findings(said)[name] == level
    assert (said.code == 1) == (
        level == "fail" or LOST in getattr(changes.get("/v1/nodes"), "items", [])
    )
    assert words in lockstep("doctor").out


def test_without_a_server_the_machine_is_still_checked(
    lockstep: CommandLine,
) -> None:
    said = lockstep("doctor", "--url", "http://127.0.0.1:9", "--json")
    found = _findings(said)
    assert (said.code, found["answer"]) == (1, "fail")
    assert "token" not in found
    assert "disk" in found


def test_without_a_server_advice_explains_how_to_start_one(
    lockstep: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOCKSTEP_URL")
    said = lockstep("doctor")
    assert said.code == 1
    assert "lockstep up" in said.out


@pytest.mark.parametrize(("ahead", "level"), [(0, "ok"), (4, "ok"), (60, "warn"), (-3600, "warn")])
def test_a_clock_that_goes_wrong_is_named(ahead: float, level: str) -> None:
    finding = doctor._clock(formatdate(NOW + ahead, usegmt=True), NOW)
    assert finding.level == level
    if level == "warn":
        assert f"{abs(ahead):.0f} s {'ahead' if ahead > 0 else 'behind'}" in finding.what
        assert finding.next_step


def test_a_full_disk_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for free, level in ((100 * 1024**3, "ok"), (5 * 1024**3, "warn"), (1024, "fail")):
        usage = type("Usage", (), {"free": free})
        monkeypatch.setattr(
            "lockstep.client.doctor.shutil.disk_usage", lambda _, usage=usage: usage
        )
        (finding,) = [
            each for each in doctor.of_machine(tmp_path / "not" / "there") if each.name == "disk"
        ]
        assert finding.level == level
