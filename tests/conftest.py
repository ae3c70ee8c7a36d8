"""Fixtures for every test: what needs databases takes them from ``tests.databases``."""

pytest_plugins = ["tests.databases"]
