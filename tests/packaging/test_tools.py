"""Settings of editors and of the commit hook agree with the repository."""

from __future__ import annotations

import re
import subprocess
import tomllib
from configparser import ConfigParser
from pathlib import Path

from packaging.requirements import Requirement
from ruamel.yaml import YAML

from lockstep.broker.server import VERSION_MIN

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
POLICY = (ROOT / "docs" / "upgrading.md").read_text(encoding="utf-8")
BINARY = {".png"}


def texts() -> dict[str, str]:
    done = subprocess.run(
        ["git", "ls-files", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    paths = [ROOT / name for name in done.stdout.split("\0") if name]
    files = [path for path in paths if path.is_file() and path.suffix not in BINARY]
    return {str(path.relative_to(ROOT)): path.read_bytes().decode("utf-8") for path in files}


def test_every_file_is_as_editorconfig_states() -> None:
    stated = ConfigParser()
    stated.read_string("[top]\n" + (ROOT / ".editorconfig").read_text(encoding="utf-8"))
    every = dict(stated["*"])
    assert every["charset"] == "utf-8"
    assert every["end_of_line"] == "lf"
    assert every["indent_style"] == "space"
    for name, text in texts().items():
        assert "\r" not in text, name
        assert not text or text.endswith("\n"), name
        assert all(line == line.rstrip(" \t") for line in text.split("\n")), name
        assert "\t" not in text or name == "Makefile", name


def test_the_hooks_run_programs_of_the_virtual_environment() -> None:
    (repository,) = YAML(typ="safe").load(ROOT / ".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for hook in repository["hooks"]:
        program = hook["entry"].split()[0]
        assert hook["language"] == "system"
        assert program.startswith(".venv/bin/")
        assert f"$(BIN)/{Path(program).name}" in makefile


def test_the_policy_names_the_supported_versions() -> None:
    rows = dict(re.findall(r"^\| (\S.*?) \| (.*?) \|$", POLICY, re.MULTILINE))
    oldest = PROJECT["requires-python"].removeprefix(">=")
    assert rows["Python"] == f"{oldest} or newer"
    node = map(Requirement, PROJECT["optional-dependencies"]["node"])
    (torch,) = [requirement.specifier for requirement in node if requirement.name == "torch"]
    first, last = rows["torch"].split(" to ")
    major, minor = last.split(".")
    assert f">={first}" in str(torch)
    assert f"<{major}.{int(minor) + 1}" in str(torch)
    assert rows["Valkey or Redis"] == f"{'.'.join(map(str, VERSION_MIN))} or newer"
