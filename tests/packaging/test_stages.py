"""First stages of the Dockerfile, run without Docker.

The same COPY and RUN lines run in a folder, with the paths of the image below that folder. Tools
that the lines install are those of this environment. The last stages need root and the network:
``make docker-test`` builds them.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.packaging.dockerfile import ROOT, copies, inherited, stages

BUILD_STAGES = ("pages", "build", "requirements")
INSTALL = re.compile(r"pip install [^&;|]*")


class Stage:
    """A stage below ``folder``, as after its last line."""

    def __init__(self, name: str, folder: Path):
        self.folder = folder / name
        self.work = self.folder
        self.arguments: dict[str, str] = {}
        bin_ = folder / "bin"
        bin_.mkdir(exist_ok=True)
        for command, words in (("python", ""), ("pip", "-m pip ")):
            (bin_ / command).write_text(f'#!/bin/sh\nexec {sys.executable} {words}"$@"\n')
            (bin_ / command).chmod(0o755)
        self.path = f"{bin_}:/usr/bin:/bin"
        for keyword, rest in stages()[name][1]:
            getattr(self, f"_{keyword.lower()}")(rest)

    def place(self, path: str) -> Path:
        """Return the path of the image, below the folder."""
        return self.folder / path.lstrip("/") if path.startswith("/") else self.work / path

    def _workdir(self, path: str) -> None:
        self.work = self.place(path)
        self.work.mkdir(parents=True)

    def _arg(self, words: str) -> None:
        for word in words.split():
            name, equals, value = word.partition("=")
            if equals:
                self.arguments[name] = value

    def _copy(self, words: str) -> None:
        *sources, target = shlex.split(words)
        for source in sources:
            place = self.place(target)
            if target.endswith("/") and not source.endswith("/"):
                place /= Path(source).name
            place.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / source).is_dir():
                ignored = shutil.ignore_patterns("__pycache__", "pages" if source == "api/" else "")
                shutil.copytree(
                    ROOT / source, place, symlinks=True, dirs_exist_ok=True, ignore=ignored
                )
            else:
                shutil.copy2(ROOT / source, place)

    def _run(self, command: str) -> None:
        installed = INSTALL.findall(command)
        command = INSTALL.sub("true ", command)
        for path in ("/src", "/wheels", "/$extra"):
            command = re.sub(rf"(?<=[\s=]){re.escape(path)}", f"{self.folder}{path}", command)
        done = subprocess.run(
            ["/bin/sh", "-ec", command],
            cwd=self.work,
            env={**os.environ, **self.arguments, "PATH": self.path},
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        assert len(installed) <= 1, "one install in a line, which this environment has already"


def test_the_stage_of_the_pages_leaves_them_where_the_image_takes_them(tmp_path: Path) -> None:
    if not (ROOT / "dashboard/node_modules/digest").exists():
        pytest.skip("NOT RUN: the dashboard's packages are not installed here; make pages does it")
    stage = Stage("pages", tmp_path)
    (source,) = copies("server", "pages")
    assert (stage.place(source) / "index.html").is_file()


def test_an_image_without_pages_has_an_empty_folder_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Stage, "_arg", lambda self, _: self.arguments.update(LOCKSTEP_PAGES="skip"))
    monkeypatch.setattr(Stage, "_copy", lambda self, _: None)
    stage = Stage("pages", tmp_path)
    (source,) = copies("server", "pages")
    assert list(stage.place(source).iterdir()) == []


def test_the_stage_of_the_wheel_makes_one_with_every_package(tmp_path: Path) -> None:
    stage = Stage("build", tmp_path)
    (wheel,) = stage.place("/wheels").glob("lockstep_jobs-*.whl")
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
    sources = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "lockstep").rglob("*.py")
        if "__pycache__" not in path.parts
    }
    for link in (path for path in (ROOT / "lockstep").iterdir() if path.is_symlink()):
        sources |= {
            f"lockstep/{path.relative_to(ROOT)}"
            for path in (ROOT / link.name).rglob("*.py")
            if "__pycache__" not in path.parts
        }
    assert sources - names == set()
    assert len(sources) > 300


def test_the_stage_of_the_requirements_writes_the_files_that_the_images_take(
    tmp_path: Path,
) -> None:
    stage = Stage("requirements", tmp_path)
    for image in ("server", "node"):
        for source in copies(image, "requirements"):
            assert "pydantic>=" in stage.place(source).read_text()


@pytest.mark.parametrize("stage", ["base", "server", "scheduler", "node"])
def test_no_image_names_a_version_of_python(stage: str) -> None:
    """A base of another version would leave files where no program reads them."""
    assert [rest for _, rest in inherited(stage) if re.search(r"python3\.\d", rest)] == []


def test_every_stage_begins_from_the_argument_or_a_stage() -> None:
    parents = {parent for parent, _ in stages().values()}
    assert parents - set(stages()) == {"${PYTHON_IMAGE}"}
