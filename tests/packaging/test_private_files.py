"""Mode of the files that the programs of the service make, whatever the mask of their user is."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "module",
    ["api/__main__.py", "scheduler/__main__.py", "broker/__main__.py", "worker/service.py"],
)
def test_a_program_makes_files_for_its_user_alone(module: str) -> None:
    calls = [
        node.func
        for node in ast.walk(ast.parse((ROOT / module).read_text()))
        if isinstance(node, ast.Call)
    ]
    assert "keep_files_private" in [getattr(call, "id", "") for call in calls]


def test_databases_are_made_for_their_user_alone(tmp_path: Path) -> None:
    others = {
        "LOCKSTEP_BROKER_URL": "redis+socket:///nowhere.sock",
        "LOCKSTEP_STORE": str(tmp_path),
    }
    urls = {
        f"LOCKSTEP_{kind}_URL": f"sqlite:///{tmp_path}/{kind.lower()}.db"
        for kind in ("DATABASE", "SERIES")
    }
    subprocess.run(
        [sys.executable, "-m", "lockstep.api", "migrate"],
        env={**os.environ, **others, **urls},
        umask=0,
        check=True,
        timeout=120,
        capture_output=True,
    )
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert {"database.db", "series.db"} <= modes.keys()
    assert set(modes.values()) == {0o600}
