"""Pins in constraints.txt: every package of the images, at the tested version."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.packaging.installed import closure

ROOT = Path(__file__).parents[2]
BY_TORCH = re.compile(r"nvidia-(?!ml-py)|cuda-|triton")
"""CUDA's packages, which torch's own metadata pins."""


def pins() -> dict[str, Version]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): Version(version) for name, version in pairs}


def direct(extra: str) -> list[str]:
    """Return the output of ``docker/requirements.py`` for an image."""
    words = [
        sys.executable,
        str(ROOT / "docker" / "requirements.py"),
        str(ROOT / "pyproject.toml"),
        extra,
    ]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()


def needed_by(extra: str) -> set[str]:
    """Return the names of all packages of an image, without CUDA's."""
    return {name for name in closure(direct(extra)) if not BY_TORCH.match(name)}


@pytest.mark.parametrize("extra", ["server", "node"])
def test_an_image_installs_its_extra_and_the_client(extra: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(direct(extra)) == {
        *project["dependencies"],
        *project["optional-dependencies"][extra],
    }


@pytest.mark.parametrize("extra", ["server", "node"])
def test_every_package_of_an_image_is_pinned_at_the_tested_version(extra: str) -> None:
    pinned, needed = pins(), needed_by(extra)
    assert needed - set(pinned) == set()
    assert {name: Version(metadata.version(name)).public for name in needed} == {
        name: pinned[name].public for name in needed
    }


def test_a_pin_is_within_the_range_of_pyproject() -> None:
    pinned = pins()
    for line in {*direct("server"), *direct("node")}:
        one = Requirement(line)
        assert one.specifier.contains(pinned[canonicalize_name(one.name)]), line
