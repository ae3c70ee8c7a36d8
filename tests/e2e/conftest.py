"""One running service per test module: a start takes seconds, and jobs are independent."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.service import Service, service


@pytest.fixture(scope="module")
def lockstep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Start the service on its embedded defaults: SQLite, bundled broker, four CPU slots."""
    yield from service(tmp_path_factory.mktemp("lockstep"))
