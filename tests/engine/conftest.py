"""One pool of gloo ranks for all tests of the engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.engine.pool import Pool


@pytest.fixture(scope="session")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    running = Pool(tmp_path_factory.mktemp("pool"))
    yield running
    running.close()
