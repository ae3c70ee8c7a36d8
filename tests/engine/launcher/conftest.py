"""Fixtures of the launcher's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.attempts import Attempt


@pytest.fixture
def attempt(tmp_path: Path) -> Iterator[Attempt]:
    """Empty attempt folder, whose processes are killed after the test."""
    folder = tmp_path / "attempt"
    folder.mkdir()
    made = Attempt(folder)
    yield made
    made.end()
