"""Which version this is, read from the installed package's metadata."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed


def version() -> str:
    """The version, or ``unknown`` where the package runs from a folder without being installed."""
    try:
        return installed("lockstep")
    except PackageNotFoundError:
        return "unknown"
