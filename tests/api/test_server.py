"""The api as a real process, with a real socket and signals."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from lockstep.broker.publisher import SEND_SECONDS_MAX
from lockstep.domain import limits
from tests.api.conftest import SCRIPT, Api
from tests.harness.processes import ROOT, Program, running_broker, until

SUBMITS = 40


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    made = Program(tmp_path)
    yield made
    made.end(signal.SIGKILL)


def test_the_api_creates_schema_and_token_once_and_reports_its_address(program: Program) -> None:
    program.start()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", program.url)
    token = program.token
    with program.client() as http:
        assert http.get("/readyz").json()["status"] == "degraded"  # there is no broker
        job_id = http.post("/v1/jobs", json=SCRIPT).json()["id"]
    assert program.end() < 60
    program.start()
    assert program.token == token
    with program.client() as http:
        assert http.get("/v1/jobs/last").json()["id"] == job_id
    assert token not in json.dumps(program.lines)


def test_a_refused_body_gets_its_reason_and_not_a_reset_connection(program: Program) -> None:
    program.start()
    size = 8 * limits.SPEC_BYTES_MAX

    def chunks() -> Iterator[bytes]:
        for _ in range(size // 65_536):
            yield b" " * 65_536

    headers = {"Content-Type": "application/json"}
    with program.client() as http:
        for body in (b" " * size, chunks()):
            response = http.post("/v1/jobs", content=body, headers=headers)
            assert (response.status_code, response.json()["code"]) == (413, "too_large")
        refused = http.put(
            f"/v1/uploads/{'0' * 64}", content=b" " * size, headers={"Authorization": "Bearer x"}
        )
        assert (refused.status_code, refused.json()["code"]) == (401, "unauthenticated")


def test_with_a_frozen_broker_a_submit_is_answered_at_once(program: Program) -> None:
    with running_broker() as broker:
        program.environment["LOCKSTEP_BROKER_URL"] = broker.url
        program.start()
        with program.client() as http:
            until(
                lambda: http.get("/readyz").json()["checks"]["broker"] == "ok",
                60,
                "a broker that answers",
            )
            http.post("/v1/jobs", json=SCRIPT)
            os.kill(broker.process.pid, signal.SIGSTOP)
            try:
                started = time.monotonic()
                for _ in range(SUBMITS):
                    assert http.post("/v1/jobs", json=SCRIPT).status_code == 201
                seconds = time.monotonic() - started
            finally:
                os.kill(broker.process.pid, signal.SIGCONT)
    # Each publish with a wait takes a second or more. With this number of them, a wait is visible
    # on the fastest machine.
    assert seconds < SUBMITS * SEND_SECONDS_MAX


def test_it_is_not_opened_to_others_without_authentication(program: Program) -> None:
    program.environment |= {"LOCKSTEP_AUTH": "off", "LOCKSTEP_HOST": "0.0.0.0"}
    refused = program.run()
    assert refused.returncode == 78
    assert "set LOCKSTEP_AUTH=on, or LOCKSTEP_HOST=127.0.0.1" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not list(program.home.iterdir())


def test_an_address_in_use_is_reported(program: Program) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        program.environment["LOCKSTEP_PORT"] = str(taken.getsockname()[1])
        refused = program.run()
    assert refused.returncode == 2
    assert (
        f"cannot listen on 127.0.0.1 port {program.environment['LOCKSTEP_PORT']}" in refused.stderr
    )
    assert "set LOCKSTEP_HOST and LOCKSTEP_PORT" in refused.stderr


def test_a_setting_that_is_missing_or_wrong_is_named(program: Program) -> None:
    del program.environment["LOCKSTEP_STORE"]
    program.environment["LOCKSTEP_PORT"] = "eighty"
    refused = program.run()
    assert refused.returncode == 78
    assert "LOCKSTEP_STORE: Field required" in refused.stderr
    assert "LOCKSTEP_PORT: Input should be a valid integer" in refused.stderr


def test_migrate_reports_its_result(program: Program) -> None:
    program.environment["LOCKSTEP_DATABASE_URL"] = f"sqlite:///{program.home}/new/jobs.db"
    first, again = program.run("migrate"), program.run("migrate")
    assert (first.returncode, first.stdout) == (
        0,
        "jobs: brought to this version\nseries: brought to this version\n",
    )
    assert (again.returncode, again.stdout) == (
        0,
        "jobs: already up to date\nseries: already up to date\n",
    )


def test_every_line_of_a_json_log_is_json(tmp_path: Path) -> None:
    script = (
        "import logging, structlog; import sys; from lockstep.system import logs; "
        "logs.configure('json', 'stderr', libraries=logging.WARNING)\n"
        "with structlog.contextvars.bound_contextvars(request_id='trace-7'):\n"
        "    structlog.get_logger().info('ours', n=1)\n"
        "    logging.getLogger('library').warning('theirs %s', 2)\n"
        "    try: 1 / 0\n"
        "    except ZeroDivisionError: logging.getLogger('library').exception('it broke')\n"
        "logging.getLogger('library').info('chatter')\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    lines = [json.loads(line) for line in said.stderr.splitlines()]
    assert [line["event"] for line in lines] == ["ours", "theirs 2", "it broke"]
    assert {line["request_id"] for line in lines} == {"trace-7"}
    assert [line["level"] for line in lines] == ["info", "warning", "error"]
    assert "ZeroDivisionError" in lines[2]["exception"]


def test_the_log_of_a_request_names_its_id_and_caller(api: Api) -> None:
    api.register("n1")
    with structlog.testing.capture_logs(
        processors=[structlog.contextvars.merge_contextvars]
    ) as lines:
        api.http.post("/v1/nodes/n1/drain", headers={"X-Request-Id": "trace-8"})
    assert [line["event"] for line in lines] == ["a node is drained", "request"]
    assert {(line["request_id"], line["actor"]) for line in lines} == {("trace-8", "ada")}
