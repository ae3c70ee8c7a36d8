"""``python -m scheduler``: one scheduler, with its settings from ``LOCKSTEP_*``.

Not here: what it does (``scheduler.service``).
"""

from __future__ import annotations

import sys

from pydantic import ValidationError

from scheduler import logs
from scheduler.service import run
from scheduler.settings import Settings


def main() -> None:
    """Read the environment, then serve."""
    try:
        settings = Settings()
    except ValidationError as error:
        lines = (f"LOCKSTEP_{str(line['loc'][0]).upper()}: {line['msg']}" for line in error.errors() if line["loc"])
        sys.exit("scheduler: " + "; ".join(lines))
    logs.configure(settings.log_format)
    run(settings)


if __name__ == "__main__":
    main()
