"""One running service per module, or one for all modules that share one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.service import Service, own_or_shared, service


@pytest.fixture(scope="package")
def shared_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Start the service on its embedded defaults: SQLite, bundled broker, four CPU slots."""
    yield from service(tmp_path_factory.mktemp("shared"))


@pytest.fixture(scope="module")
def lockstep(request: pytest.FixtureRequest) -> Iterator[Service]:
    yield from own_or_shared(request)
