"""A real browser, a service without authentication, and a page of another origin.

The page tries to submit a job.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx2
import pytest
from playwright.sync_api import Browser, Page

from tests.api.conftest import SCRIPT
from tests.harness.processes import Program

SEND = """async ([url, body, type, mode]) => {
  const sent = { method: "POST", mode, body: new Blob([body], type ? { type } : {}) };
  return await fetch(url, sent).then((answer) => answer.status, (error) => String(error));
}"""


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<title>another site</title>")

    def log_message(self, *_arguments: object) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    made = Program(tmp_path_factory.mktemp("open"), LOCKSTEP_AUTH="off")
    made.start()
    yield made
    made.end()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context()
    yield context.new_page()
    context.close()


def jobs(program: Program) -> int:
    with httpx2.Client(base_url=program.url, trust_env=False) as http:
        return len(http.get("/v1/jobs").json()["items"])


def test_a_page_of_another_site_submits_nothing(program: Program, page: Page) -> None:
    before = jobs(program)
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for host in ("127.0.0.1", "localhost"):
            page.goto(f"http://{host}:{server.server_port}/")
            for media_type in ("", "text/plain", "application/json"):
                for mode in ("no-cors", "cors"):
                    page.evaluate(
                        SEND, [f"{program.url}/v1/jobs", json.dumps(SCRIPT), media_type, mode]
                    )
            page.evaluate(SEND, [f"{program.url}/v1/jobs/last/cancel", "", "", "no-cors"])
        server.shutdown()
    assert jobs(program) == before


def test_a_page_of_the_service_submits_a_job(program: Program, page: Page) -> None:
    before = jobs(program)
    page.goto(program.url)
    sent = [f"{program.url}/v1/jobs", json.dumps(SCRIPT), "application/json", "cors"]
    assert page.evaluate(SEND, sent) == 201
    assert jobs(program) == before + 1
