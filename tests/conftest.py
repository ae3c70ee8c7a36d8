"""Fixtures for every test: what needs databases takes them from ``tests.databases``."""

from hypothesis import settings

pytest_plugins = ["tests.databases", "tests.faults.table", "pytester"]

# How long one example takes says nothing on a machine that runs other tests beside it.
settings.register_profile("lockstep", deadline=None)
settings.load_profile("lockstep")
