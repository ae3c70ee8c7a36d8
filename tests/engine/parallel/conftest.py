"""Eight ranks for layouts that need them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.ranks import Pool


@pytest.fixture(scope="package")
def eight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    running = Pool(tmp_path_factory.mktemp("eight"), 8)
    yield running
    running.close()
