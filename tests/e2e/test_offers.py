"""A job that needs what no node offers waits with its reason, until a node comes that offers it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.processes import until
from tests.harness.service import Service, service

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def lockstep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    home = tmp_path_factory.mktemp("lockstep")
    yield from service(home, LOCKSTEP_NODE_NAME="first", LOCKSTEP_NODE_OFFERS="rack:a")


def test_a_job_starts_once_a_node_offers_what_it_needs(lockstep: Service, tmp_path: Path) -> None:
    spec = tmp_path / "job.yaml"
    spec.write_text(
        '{name: picky, kind: script, script: {command: ["true"]}, '
        "resources: {needs: [rack:a, data:x]}}"
    )
    submitted = lockstep.run("submit", str(spec), "--detach", "-o", "name")
    assert submitted.returncode == 0, submitted.stderr
    assert "note   no node that is registered offers data:x" in submitted.stderr
    job_id = submitted.stdout.strip()
    until(lambda: lockstep.job(job_id)["reason"] == "no ready node offers data:x", 60, "its reason")

    second = lockstep.another_node("second", LOCKSTEP_NODE_OFFERS="rack:a,data:x")
    try:
        ended = lockstep.ended(job_id)
        assert (ended["state"], ended["attempt"]["nodes"]) == ("succeeded", ["second"]), ended
        table = lockstep.run("nodes").stdout
        assert "data:x, rack:a, kind:cpu and 1 more" in table, table
    finally:
        second.terminate()
        second.wait(60)


def test_an_agent_with_a_wrong_name_names_the_setting_and_ends(lockstep: Service) -> None:
    refused = lockstep.another_node("refused", LOCKSTEP_NODE_OFFERS="rack:a,Data:X")
    assert refused.wait(60) != 0
    said = (lockstep.home / "logs/refused.log").read_text()
    assert "LOCKSTEP_NODE_OFFERS: 'Data:X' is not a name" in said, said
