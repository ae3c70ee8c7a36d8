"""The programs of the handbook, run against a real service: curl's blocks and the client's."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.api.app import routed
from lockstep.api.http.problems import PROBLEMS
from tests.harness.processes import ROOT
from tests.harness.service import Service

pytestmark = pytest.mark.e2e

HTTP = (ROOT / "docs" / "http.md").read_text(encoding="utf-8")
CLIENT = (ROOT / "docs" / "client.md").read_text(encoding="utf-8")
URL = "http://127.0.0.1:8470"
WITHIN_SECONDS = 280
NEEDED = ("bash", "curl", "jq")


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def run(lockstep: Service, *argv: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv,
        cwd=cwd,
        env=lockstep.environment,
        capture_output=True,
        text=True,
        timeout=WITHIN_SECONDS,
        check=False,
    )


def test_the_requests_of_the_page_work_as_stated(lockstep: Service, tmp_path: Path) -> None:
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        pytest.skip(f"the page's commands need {', '.join(missing)}")
    script = "\necho '--- next'\n".join(blocks(HTTP, "bash")).replace(URL, lockstep.url)
    done = run(lockstep, "bash", "-euo", "pipefail", "-c", script, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    answers = done.stdout.split("--- next\n")
    (problem,) = blocks(HTTP, "json")
    problems = [answer for answer in answers if answer.startswith('{\n  "type"')]
    assert list(map(json.loads, problems)) == [json.loads(problem)]


def test_the_program_of_the_client_runs(lockstep: Service, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("\n".join(blocks(CLIENT, "python")).replace(URL, lockstep.url))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    done = run(lockstep, sys.executable, str(program), cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "32 = 2 ranks × 8 samples × 2 accumulation steps" in done.stdout
    assert "('/train/batch', 'is required')" in done.stdout
    assert (tmp_path / "model.safetensors").stat().st_size > 10_000


def test_the_table_has_every_operation_of_the_description() -> None:
    described = {
        (f"{method.upper()} {path}", operation["operationId"])
        for path, methods in routed().openapi()["paths"].items()
        for method, operation in methods.items()
    }
    listed = re.findall(r"^\| `([A-Z]+ [^`]+)` \| `(\w+)` \|", HTTP, re.MULTILINE)
    assert sorted(listed) == sorted(described)


def test_the_table_has_every_code_with_its_status() -> None:
    listed = re.findall(r"^\| `(\w+)` \| (\d+) \|", HTTP, re.MULTILINE)
    statuses = [(code.value, str(status)) for code, (status, _title) in PROBLEMS.items()]
    assert sorted(listed) == sorted(statuses)
