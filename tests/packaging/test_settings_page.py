"""The page of settings has every name of the code, and no other."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from lockstep.api.settings import ApiSettings
from lockstep.domain import job_environment
from lockstep.scheduler.settings import SchedulerSettings
from lockstep.worker.settings import AgentSettings
from tests.harness.faults.soak import Load

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
NAME = re.compile(r"\bLOCKSTEP_[A-Z][A-Z_]*[A-Z]\b")
NO_VARIABLES = {
    "LOCKSTEP_DATABASE": "beginning of names that a test looks for",
    "LOCKSTEP_SOAK": "beginning of the names of tests.harness.faults.soak.Load",
}
DERIVED = {f"LOCKSTEP_SOAK_{name.upper()}" for name in Load.__dataclass_fields__}
"""Names that the code composes."""


def test_every_name_in_the_repository_is_on_the_page() -> None:
    done = subprocess.run(
        ["git", "grep", "-ohIE", NAME.pattern, "--", ":!docs/*.md", ":!CHANGELOG.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    named = set(done.stdout.split()) | DERIVED
    assert sorted(named - set(NAME.findall(PAGE)) - set(NO_VARIABLES)) == []
    assert sorted(set(NO_VARIABLES) - named) == []


def test_the_page_has_no_name_that_the_code_lacks() -> None:
    code = (*ROOT.glob("*.py"), ROOT / "Makefile", *(ROOT / "tests").rglob("*.py"))
    packages = ("broker", "domain", "engine", "lockstep", "worker")
    files = [path for folder in packages for path in (ROOT / folder).rglob("*.py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in (*code, *files))
    settings = {
        f"LOCKSTEP_{name.upper()}"
        for model in (ApiSettings, SchedulerSettings, AgentSettings)
        for name in model.model_fields
    }
    of_jobs = {variable.name for variable in job_environment.OF_LOCKSTEP}
    known = settings | of_jobs | DERIVED | set(NAME.findall(text))
    assert settings | of_jobs <= set(NAME.findall(PAGE))
    assert sorted(set(NAME.findall(PAGE)) - known) == []
