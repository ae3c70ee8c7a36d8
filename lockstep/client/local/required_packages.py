"""Check that the packages of the service are installed.

The base package is the client: it installs without torch, SQLAlchemy or Celery. The check runs
before a program starts, so the user reads a command to run instead of a failed import.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Final

from lockstep.client.errors import UsageError
from lockstep.domain.packages import with_extra

SERVER: Final = ("alembic", "celery", "fastapi", "pwdlib", "sqlalchemy", "structlog", "uvicorn")
NODE: Final = ("celery", "psutil", "sqlalchemy", "torch")


def require(needed: tuple[str, ...], *, find: Callable[[str], object] = find_spec) -> None:
    """Check that these packages can be imported, without importing them.

    Raises
    ------
    UsageError
        If one is missing.
    """
    missing = [name for name in dict.fromkeys(needed) if find(name) is None]
    if missing:
        raise UsageError(
            f"the service is not fully installed: {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing",
            next_step=(
                f"install the service with {with_extra('all')} (from a clone: pip install '.[all]')"
            ),
        )
