"""Fixture with a world per test, on both databases."""

from __future__ import annotations

import pytest

from lockstep.storage.db.database import Database
from tests.scheduler.world import World


@pytest.fixture
def world(database: Database) -> World:
    return World(database)
