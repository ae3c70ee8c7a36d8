"""A team shares one service: real processes, the command line, programs with own tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.harness.service import Service

pytestmark = pytest.mark.e2e
FOREIGN = "there is no job"


def run(lockstep: Service, *words: str, token: str = "", code: int = 0) -> str:
    """Run a command, as the admin or with a token; return its stdout."""
    lockstep.environment["LOCKSTEP_TOKEN"] = token or (lockstep.home / "token").read_text().strip()
    try:
        done = lockstep.run(*words)
    finally:
        del lockstep.environment["LOCKSTEP_TOKEN"]
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + (done.stderr if code else "")


def script(folder: Path, project: str) -> str:
    path = folder / f"{project}.yaml"
    body: dict[str, Any] = {"name": f"of-{project}", "kind": "script", "project": project}
    path.write_text(json.dumps({**body, "script": {"command": ["true"]}}))
    return str(path)


def test_two_projects_share_a_service_and_see_their_own_jobs(
    lockstep: Service, tmp_path: Path
) -> None:
    secrets = {}
    for project in ("nlp", "vision"):
        run(lockstep, "project", "create", project)
        run(lockstep, "user", "add", f"{project}-bot", "--service")
        run(lockstep, "project", "add", project, f"{project}-bot")
        secrets[project] = run(lockstep, "token", "create", "--owner", f"{project}-bot").strip()
    for project, secret in secrets.items():
        words = ("submit", script(tmp_path, project), "--detach")
        run(lockstep, *words, token=secret)
        run(lockstep, "wait", f"of-{project}", token=secret)
    for project, other in (("nlp", "vision"), ("vision", "nlp")):
        secret = secrets[project]
        assert run(lockstep, "ps", "-a", "-o", "name", token=secret).count("\n") == 1
        for command in ("show", "logs", "cancel"):
            assert FOREIGN in run(lockstep, command, f"of-{other}", token=secret, code=3)
        found = json.loads(run(lockstep, "project", "ls", "-o", "json", token=secret))
        assert project in {each["name"] for each in found}
        assert other not in {each["name"] for each in found}
    assert run(lockstep, "ps", "-a", "-o", "name").count("\n") == 2
    run(lockstep, "user", "off", "vision-bot")
    assert "not active" in run(lockstep, "ps", token=secrets["vision"], code=4)
    (token,) = json.loads(run(lockstep, "token", "ls", "-o", "json", token=secrets["nlp"]))
    new = run(lockstep, "token", "rotate", token["id"], token=secrets["nlp"]).strip()
    for secret in (secrets["nlp"], new):
        run(lockstep, "ps", token=secret)
    run(lockstep, "token", "revoke", token["id"], token=new)
    assert "was revoked" in run(lockstep, "ps", token=new, code=4)
