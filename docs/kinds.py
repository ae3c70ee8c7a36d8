"""Count the product files that a new member of a kind changes, by the lists of two pages.

    python docs/kinds.py    print the counts; exit 1 if one is above its limit

"`a`, `b`" counts as two files and "`a` or `b`" as one. Rows for some members only ("only …"),
tests, pages, benchmarks, packaging and generated files do not count. ``tests/packaging/test_contributing.py``
proves that the lists are complete.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PAGES: Final = ("docs/contributing/kinds.md", "CONTRIBUTING.md")
LIMITS: Final = {
    # Section: (limit, goal)
    "An optimizer": (2, 3),
    "A strategy": (3, 4),
    "A device vendor": (4, 4),
    "A failure reason": (2, 2),
    "A field of the job spec": (2, 4),
    "An endpoint with a page": (8, 8),
}
_NOT_PRODUCT: Final = re.compile(r"`(?:tests|docs|benchmarks|migrations)/|`pyproject\.toml`")


def files_of(section: str, page: str) -> int:
    """Return the number of files of a section that count."""
    text = page.partition(f"### {section}\n")[2].partition("\n### ")[0]
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| `")]
    return sum(
        row[0].count("`, `") + 1
        for row in rows
        if not (_NOT_PRODUCT.search(row[0]) or row[1].startswith(("only ", "generated")))
    )


def main() -> int:
    """Print the counts."""
    page = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in PAGES)
    counts = {section: files_of(section, page) for section in LIMITS}
    high = [section for section, count in counts.items() if count > LIMITS[section][0]]
    for section, count in counts.items():
        sys.stdout.write(f"{section}: {count} (limit {LIMITS[section][0]})\n")
    sys.stderr.writelines(f"above its limit: {section}\n" for section in high)
    return 1 if high else 0


if __name__ == "__main__":
    sys.exit(main())
