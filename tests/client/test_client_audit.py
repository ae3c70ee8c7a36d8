"""``lockstep audit``: the table, its filters, and the export."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lockstep.domain.audit import AuditOutcome
from lockstep.domain.views import AuditView, Page
from tests.client import examples
from tests.client.server import ReplayServer
from tests.client.terminal import CommandLine

ROWS = [
    AuditView(id=2, at=examples.T0, actor="bob", action="job.control", target="POST /v1/jobs/x/cancel",
              project="nlp", outcome=AuditOutcome.DENIED, address="192.0.2.7"),
    AuditView(id=1, at=examples.T0, actor="ada", action="node.drain", target="gpu\x1b[2J",
              outcome=AuditOutcome.OK, detail={"after": {"draining": True}}),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _rows(server: ReplayServer) -> None:
    server.on("GET", "/v1/audit", Page[AuditView](items=ROWS))


def test_ls_has_a_line_per_row(lockstep: CommandLine, server: ReplayServer) -> None:
    heading, first, second = lockstep("audit", "ls").out.splitlines()
    assert heading.split() == ["TIME", "WHO", "ACTION", "TARGET", "PROJECT", "OUTCOME"]
    assert first.split()[2:] == [
        "bob", "job.control", "POST", "/v1/jobs/x/cancel", "nlp", "denied",
    ]  # fmt: skip
    assert second.split()[-2:] == ["-", "ok"]
    assert "\x1b" not in second
    assert "192.0.2.7" in lockstep("audit", "ls", "-o", "wide").out
    lockstep("audit", "ls", "-n", "1", "--actor", "bob", "--action", "x", "--project", "nlp")
    asked = {"limit": ["1"], "actor": ["bob"], "action": ["x"], "project": ["nlp"]}
    assert server.asked[-1].query == asked
    assert lockstep("audit", "ls", "-n", "0").code == 2


def test_json_and_the_export_are_the_apis_own_objects(
    lockstep: CommandLine, tmp_path: Path
) -> None:
    listed = json.loads(lockstep("audit", "ls", "-n", "1", "-o", "json").out)
    assert [AuditView.model_validate(row) for row in listed] == ROWS[:1]
    file = tmp_path / "audit.jsonl"
    said = lockstep("audit", "export", str(file))
    assert (said.out, said.err) == (f"{file}\n", "2 rows\n")
    assert lockstep("audit", "export").out == file.read_text()
    assert [AuditView.model_validate_json(line) for line in file.read_text().splitlines()] == ROWS
