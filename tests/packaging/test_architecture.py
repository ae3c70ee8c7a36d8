"""Rules for the code as a whole: direction of imports, docstrings, length, forbidden names."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "system",
    "domain",
    "storage",
    "broker",
    "api",
    "scheduler",
    "worker",
    "engine",
    "lockstep",
    "migrations",
)
BESIDE = ("docs", "docker", "benchmarks", "examples", "dashboard")
LINES_MAX = 400
TEST_LINES_MAX = 500
STRATEGY_LINES_MAX = 300
PAGE_LINES_MAX = 250

LONGER: dict[str, str] = {
    "lockstep/client/api.py": "one short method for each route, in the order of the routes",
}
"""Modules that may be longer, each with its reason."""


def _run(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def _modules(*folders: str) -> list[Path]:
    found = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    assert found
    return [path for path in found if not {"__pycache__", "node_modules"} & {*path.parts}]


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_imports_run_the_way_of_the_design() -> None:
    done = _run(str(Path(sys.executable).parent / "lint-imports"), "--no-cache")
    assert done.returncode == 0, done.stdout + done.stderr
    kept = re.search(r"Contracts: (\d+) kept, 0 broken", done.stdout)
    assert kept, done.stdout
    assert int(kept[1]) >= 5


@pytest.mark.parametrize(
    "folders", [PACKAGES, BESIDE, ("tests",)], ids=["packages", "beside", "tests"]
)
def test_every_module_has_a_docstring(folders: tuple[str, ...]) -> None:
    silent = [
        _name(path)
        for path in _modules(*folders)
        if not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert silent == []


@pytest.mark.parametrize("package", [name for name in PACKAGES if name != "migrations"])
def test_a_package_has_a_docstring_of_its_own(package: str) -> None:
    assert (
        len(
            (
                ast.get_docstring(ast.parse((ROOT / package / "__init__.py").read_text())) or ""
            ).split()
        )
        >= 5
    )


@pytest.mark.parametrize(
    ("folders", "lines_max"),
    [((*PACKAGES, *BESIDE), LINES_MAX), (("tests",), TEST_LINES_MAX)],
    ids=["code", "tests"],
)
def test_no_module_is_longer_than_one_sitting(folders: tuple[str, ...], lines_max: int) -> None:
    lengths = {_name(path): len(path.read_text().splitlines()) for path in _modules(*folders)}
    assert {
        name: count for name, count in lengths.items() if count > lines_max and name not in LONGER
    } == {}


def test_a_strategy_is_read_in_a_few_minutes() -> None:
    lengths = {
        path.name: len(path.read_text().splitlines())
        for path in (ROOT / "engine/strategies").glob("*.py")
    }
    assert "ddp.py" in lengths
    del lengths["base.py"]  # the common base, most of it docstrings
    assert {name: count for name, count in lengths.items() if count > STRATEGY_LINES_MAX} == {}


def test_an_exception_from_the_length_is_still_needed() -> None:
    assert [
        name for name in LONGER if len((ROOT / name).read_text().splitlines()) <= LINES_MAX
    ] == []


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        (
            "lockstep.domain.spec.reading",
            {"torch", "numpy", "sqlalchemy", "celery", "fastapi", "rich", "ruamel", "httpx2"},
        ),
        (
            "lockstep.domain.views",
            {"torch", "numpy", "sqlalchemy", "celery", "fastapi", "rich", "ruamel", "httpx2"},
        ),
        (
            "lockstep.__main__",
            {"torch", "numpy", "sqlalchemy", "celery", "kombu", "fastapi"},
        ),
    ],
)
def test_commands_of_the_client_load_no_module_of_the_server(module: str, absent: set[str]) -> None:
    done = _run(sys.executable, "-c", f"import sys, {module}; print(*sorted(sys.modules))")
    assert done.returncode == 0, done.stderr
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert module.partition(".")[0] in loaded
    assert loaded & absent == set()


# In pieces, so that this file does not contain the searched names.
NEVER = {
    "a path of one machine": re.compile(r"/(?:wo" + r"rk/(?:main|shared|brief)|ro" + r"ot/|Us" + r"ers/\w+/|ho" + r"me/\w+/\w)"),
    "a package index": re.compile(r"https?://[^\s\"')]*/sim" + r"ple\b|(?:pypi|npm" + r"js|pyt" + r"horch)[\w.-]*\.(?:org|com|internal|example)/"),
}  # fmt: skip
TEXT = {".py", ".md", ".toml", ".txt", ".yaml", ".yml", ".sh", ".cfg", ".ini", ".json", ".mako", ""}


def _tracked() -> list[Path]:
    done = _run("git", "ls-files", "-z")
    assert done.returncode == 0, done.stderr
    paths = [ROOT / name for name in done.stdout.split("\0") if name]
    return [
        path for path in paths if path.suffix in TEXT and path.is_file() and path.name != "LICENSE"
    ]


@pytest.mark.parametrize("what", NEVER)
def test_no_tracked_file_names_a_machine_or_where_packages_come_from(what: str) -> None:
    named = {
        f"{_name(path)}:{number}": found[0]
        for path in _tracked()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if (found := NEVER[what].search(line))
    }
    assert named == {}


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("a path of one machine", "open('/ro" + "ot/x')"),
        ("a path of one machine", "see /wo" + "rk/shared/x"),
        ("a package index", "--index-url https://mirror.example.org/sim" + "ple"),
    ],
)
def test_the_search_finds_its_pattern(what: str, line: str) -> None:
    assert NEVER[what].search(line)


def test_every_ignore_carries_its_reason() -> None:
    pattern = re.compile(r"#\s*(?:noqa(?::\s*[A-Z0-9, ]+)?|type: ignore(?:\[[\w, -]+\])?)(.*)$")
    # A call into a library without types is a reason by itself, and torch and kombu have many of
    # them.
    own_reason = re.compile(r"type: ignore\[(?:no-untyped-call|untyped-decorator)\]")
    bare = []
    for path in _modules(*PACKAGES):
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            found = pattern.search(line)
            if found and len(found[1].strip(" #-")) < 8 and not own_reason.search(line):
                bare.append(f"{_name(path)}:{number}")
    assert bare == []


def _pages() -> list[Path]:
    found = sorted(
        path for path in (ROOT / "dashboard/src").rglob("*.ts*") if "generated" not in path.parts
    )
    assert len(found) > 100
    return found


def test_no_feature_of_the_dashboard_imports_another() -> None:
    source = ROOT / "dashboard/src"
    below = {"components": {"api", "components", "lib"}, "lib": {"api", "lib"}}
    wrong = []
    for path in _pages():
        own = path.relative_to(source).parts
        if ".test." in path.name or own[0] not in {"features", *below}:
            continue
        allowed = below.get(own[0], below["components"])
        for imported in re.findall(r'(?:from|import\()\s*"((?:@|\.\.?)/[^"]+)"', path.read_text()):
            target = source / imported[2:] if imported.startswith("@/") else path.parent / imported
            place = target.resolve().relative_to(source).parts
            if place[0] not in allowed and place[:2] not in {own[:2], ("app", "keys")}:
                wrong.append(f"{_name(path)} imports {imported}")
    assert wrong == []


def test_no_file_of_the_dashboard_is_longer_than_one_sitting() -> None:
    lengths = {_name(path): len(path.read_text().splitlines()) for path in _pages()}
    assert {name: length for name, length in lengths.items() if length > PAGE_LINES_MAX} == {}
