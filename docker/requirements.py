"""Print the requirements of the client and of one extra of pyproject.toml, one per line.

    python docker/requirements.py pyproject.toml server

The images install them, at the versions of constraints.txt, before Lockstep's own wheel: a changed
line of Lockstep leaves the layers of torch and of all other packages as they are.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def requirements(pyproject: Path, extra: str) -> list[str]:
    """Return the requirements of the base and of ``extra``, sorted."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    return sorted({*project["dependencies"], *project["optional-dependencies"][extra]})


if __name__ == "__main__":
    sys.stdout.write("".join(f"{line}\n" for line in requirements(Path(sys.argv[1]), sys.argv[2])))
