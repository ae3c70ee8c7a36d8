"""Names of packages in messages about one that is missing."""

from __future__ import annotations

from typing import Final

DISTRIBUTION: Final = "lockstep-jobs"
"""Name of this project's own package, as pip installs it. A test compares it with
``pyproject.toml``."""


def with_extra(extra: str) -> str:
    """The command that installs the packages of an extra, such as ``pip install 'NAME[hf]'``."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"
