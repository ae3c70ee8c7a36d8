"""``lockstep usage``: the table, CSV, JSON, and the range."""

from __future__ import annotations

import csv
import io

from lockstep.domain.people_views import UsageBy, UsageRow, UsageView
from tests.client import examples
from tests.client.server import ReplayServer
from tests.client.terminal import CommandLine

REPORT = UsageView(
    by=UsageBy.PROJECT,
    begins_at=examples.T0,
    ends_at=examples.T0,
    rows=[
        UsageRow(
            name='a "b", c', allocated=1_204, productive=1_150.5, repeated=12.25, idle=41.25, jobs=8
        )
    ],
)


def test_usage_is_a_table_csv_or_json(lockstep: CommandLine, server: ReplayServer) -> None:
    server.on("GET", "/v1/usage", REPORT)
    heading, row = lockstep("usage").out.splitlines()
    assert heading.split() == ["PROJECT", "HOURS", "PRODUCTIVE", "REPEATED", "IDLE", "JOBS"]
    assert row.split()[-5:] == ["1,204.00", "1,150.50", "12.25", "41.25", "8"]
    assert server.asked[-1].query == {"by": ["project"]}
    printed = lockstep("usage", "--csv", "--by", "day", "--from", "2026-03-01T00:00:00Z").out
    assert list(csv.reader(io.StringIO(printed, newline=""), strict=True)) == [
        ["project", "allocated_hours", "productive_hours", "repeated_hours", "idle_hours", "jobs"],
        ['a "b", c', "1204.0000", "1150.5000", "12.2500", "41.2500", "8"],
    ]
    assert server.asked[-1].query["by"] == ["day"]
    assert server.asked[-1].query["from"][0].startswith("2026-0")
    assert UsageView.model_validate_json(lockstep("usage", "--json").out) == REPORT
    assert lockstep("usage", "-o", "name").out == 'a "b", c\n'
    assert lockstep("usage", "--to", "never").code == 2
