"""Take the pictures of ``docs/dashboard/`` of a running service.

Every page is shown wide and narrow, light and dark.

    python dashboard/screenshots.py                         # of the service on this machine
    LOCKSTEP_URL=... LOCKSTEP_TOKEN=... python dashboard/screenshots.py

The service should have a running job, a failed one, some to compare, and some that wait.

Not here: tests of the pages (``tests/dashboard``).
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from playwright.sync_api import BrowserContext, sync_playwright

HERE: Final = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from lockstep.client import api  # noqa: E402  # after the path above
from lockstep.client.config import find_server  # noqa: E402

FOLDER: Final = HERE.parent / "docs" / "dashboard"
WIDTHS: Final = {"wide": (1280, 860), "narrow": (360, 740)}
FLAGS: Final = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync"
).split()


def main() -> int:
    """Take them all."""
    server = find_server(url=None, token=None, environment=os.environ, folder=Path.cwd())
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.stderr.write("no chromium here: apt-get install chromium\n")
        return 1
    with api.Client(server.url, server.token, patience_seconds=0, say=lambda _: None) as client:
        addresses = pages([job.model_dump(mode="json") for job in client.jobs(limit=50).items])
    FOLDER.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        for scheme in ("light", "dark"):
            for width, (wide, high) in WIDTHS.items():
                context = browser.new_context(
                    viewport={"width": wide, "height": high}, color_scheme=scheme
                )
                if server.token is not None:
                    take(context, server.url + "/jobs", FOLDER / f"signin-{width}-{scheme}.png")
                    context.add_init_script(
                        f"sessionStorage.setItem('lockstep.token', {json.dumps(server.token)})"
                    )
                for name, path in addresses.items():
                    take(context, server.url + path, FOLDER / f"{name}-{width}-{scheme}.png")
                context.close()
        browser.close()
    return 0


def pages(jobs: list[dict[str, Any]]) -> dict[str, str]:
    """Return the address of each picture by its name.

    Pictures without a suitable job are omitted.
    """
    trained = [job for job in jobs if job["state"] == "succeeded" and job["kind"] == "train"]
    families = [
        [job["id"] for job in trained if job["name"].startswith(f"{name}-")]
        for name in beginnings(trained)
    ]
    twins = max(families, key=len, default=[])
    of = {
        state: next((job["id"] for job in jobs if job["state"] == state), None)
        for state in ("running", "failed", "queued")
    }
    longest = max(
        trained, key=lambda job: job["progress"]["step"] if job["progress"] else 0, default=None
    )
    found = {
        "home": "/",
        "jobs": "/jobs",
        "job": longest and f"/jobs/{longest['id']}",
        "running": of["running"] and f"/jobs/{of['running']}",
        "failed": of["failed"] and f"/jobs/{of['failed']}",
        "waiting": of["queued"] and f"/jobs/{of['queued']}",
        "logs": of["running"] and f"/jobs/{of['running']}?tab=logs",
        "compare": len(twins) > 1 and f"/compare?jobs={quote(json.dumps(twins[:8]))}",
        "submit": "/submit",
        "cluster": "/cluster",
        "queue": "/queue",
        "settings": "/settings",
    }
    return {name: path for name, path in found.items() if path}


def beginnings(jobs: list[dict[str, Any]]) -> set[str]:
    """Return the common name prefixes of jobs of one experiment."""
    return {job["name"].split("-")[0] for job in jobs}


def take(context: BrowserContext, url: str, file: Path) -> None:
    """One picture, once the page has been quiet for a moment."""
    page = context.new_page()
    page.goto(url)
    page.get_by_role("heading", level=1).first.wait_for()
    page.wait_for_timeout(3_000)
    page.screenshot(path=file)
    page.close()


if __name__ == "__main__":
    sys.exit(main())
