"""``lockstep api``, ``lockstep scheduler`` and ``lockstep agent`` each become their program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.cli.service import programs
from lockstep.client.errors import UsageError


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("api", "; LOCKSTEP_PORT: "),
        ("scheduler", "; LOCKSTEP_TIMINGS_SCALE: "),
        ("agent", "LOCKSTEP_CPU_SLOTS: "),
    ],
)
def test_a_program_starts_with_its_own_settings(tmp_path: Path, command: str, said: str) -> None:
    (tmp_path / "lockstep.py").write_text("raise SystemExit('the wrong lockstep')\n")
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "LOCKSTEP_PORT": "none",
        "LOCKSTEP_TIMINGS_SCALE": "none",
        "LOCKSTEP_CPU_SLOTS": "none",
    }
    done = subprocess.run(
        [sys.executable, "-P", "-m", "lockstep", command],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 78
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_client_without_programs_names_the_missing_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lockstep.client.local.required_packages.SERVER", ("no_such_package",))
    with pytest.raises(UsageError, match="no_such_package is missing") as refused:
        programs.api()
    assert "pip install 'lockstep-jobs[all]'" in (refused.value.next_step or "")


def test_the_settings_of_a_local_service_have_their_sources(tmp_path: Path) -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "LOCKSTEP_HOME": str(tmp_path / "home"),
        "LOCKSTEP_LEASE_SECONDS": "65",
    }

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-P", "-m", "lockstep", "settings", *words]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=120, check=False
        )

    done = run("--json")
    assert done.returncode == 0, done.stderr
    found = {(row["name"], *row["programs"]): row for row in json.loads(done.stdout)}
    store = found["LOCKSTEP_STORE", "api", "scheduler", "agent"]
    assert (store["value"], store["source"]) == (f"{tmp_path}/home/store", "lockstep up")
    assert found["LOCKSTEP_STOP_JOBS_ON_EXIT", "agent"]["value"] == "on"
    lease = found["LOCKSTEP_LEASE_SECONDS", "api", "scheduler", "agent"]
    assert (lease["value"], lease["source"]) == ("65", "environment")
    assert not (tmp_path / "home").exists()
    done = run("--program", "api")
    assert done.returncode == 2
    assert "error: the api does not start: LOCKSTEP_DATABASE_URL: Field required" in done.stderr
    alone = done.stdout.splitlines()
    assert [line.split()[:2] for line in alone if "DATABASE_URL" in line] == [
        ["LOCKSTEP_DATABASE_URL", "-"]
    ]
