"""The dashboard over HTTP: its page at every address of a page, its files, and no other file."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from lockstep.api.app import routed
from lockstep.api.dashboard.files import DIGEST, Dashboard
from tests.harness.clients import Client

HTML = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
INDEX = b"<!doctype html><script type=module src=/assets/index-1.js></script>"
SCRIPT = b"document.title = 'jobs';\n" * 100


def lay(folder: Path, *, index: bytes = INDEX, built_ns: int = 1) -> None:
    """Write the files of a build."""
    (folder / "assets").mkdir(parents=True, exist_ok=True)
    (folder / "index.html").write_bytes(index)
    (folder / "mark.svg").write_bytes(b"<svg/>")
    (folder / "assets" / "index-1.js").write_bytes(SCRIPT)
    (folder / "assets" / "index-1.js.gz").write_bytes(gzip.compress(SCRIPT))
    (folder / "assets" / "small-2.css").write_bytes(b"a{}")
    (folder / DIGEST).write_text("d")
    os.utime(folder / DIGEST, ns=(built_ns, built_ns))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "pages"


@pytest.fixture
def http(folder: Path) -> Iterator[Client]:
    """Return the routes without storage, which the pages do not need."""
    lay(folder)
    (folder.parent / "secret.txt").write_text("for nobody")
    with serving(folder) as client:
        yield client


def serving(folder: Path) -> Client:
    app = routed()
    app.state.dashboard = Dashboard(folder)
    return Client(app)


def is_the_page(response: httpx2.Response) -> bool:
    return response.status_code == 200 and response.content == INDEX


@pytest.mark.parametrize(
    "address",
    [
        "/",
        "/index.html",
        "/jobs",
        "/jobs/0190",
        "/compare?jobs=a&jobs=b",
        "/no/such/page",
        "/v10",
        "/jobs/a.b",
    ],
)
def test_a_browser_gets_the_page_at_every_other_address(http: Client, address: str) -> None:
    response = http.get(address, headers=HTML)
    assert is_the_page(response)
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize(
    "address", ["/v1", "/v1/", "/v1/nowhere", "/v1/jobs/a/b/c", "/assets/none.js", "/metrics/x"]
)
def test_an_unknown_api_or_asset_address_is_a_problem_for_browsers_too(
    http: Client, address: str
) -> None:
    response = http.get(address, headers=HTML)
    assert response.status_code == 404
    assert response.json()["code"] == "not_found"


def test_the_apis_own_pages_are_not_replaced(http: Client) -> None:
    assert http.get("/openapi.json", headers=HTML).json()["info"]["title"] == "Lockstep"
    assert "swagger" in http.get("/docs", headers=HTML).text


@pytest.mark.parametrize("accept", ["*/*", "application/json", "image/avif,image/*", ""])
def test_a_client_that_does_not_accept_html_gets_404(http: Client, accept: str) -> None:
    response = http.get("/favicon.ico", headers={"Accept": accept})
    assert response.status_code == 404
    assert response.json()["detail"] == "no route for GET /favicon.ico"
    # The address that a user types first, with any program.
    assert is_the_page(http.get("/", headers={"Accept": accept}))


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_pages_are_only_read(http: Client, method: str) -> None:
    assert http.request(method, "/jobs", headers=HTML).status_code == 404
    refused = http.request(method, "/", headers=HTML)
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")


def test_an_unsupported_method_of_the_api_is_still_refused(http: Client) -> None:
    refused = http.delete("/v1/jobs", headers=HTML)
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD, POST")


def test_the_page_is_revalidated_and_not_sent_again(http: Client, folder: Path) -> None:
    tag = http.get("/jobs", headers=HTML).headers["etag"]
    again = http.get("/nodes", headers={**HTML, "If-None-Match": tag})
    assert (again.status_code, again.content) == (304, b"")
    lay(folder, index=b"new", built_ns=2)
    assert http.get("/nodes", headers={**HTML, "If-None-Match": tag}).content == b"new"


def test_a_file_named_by_its_content_is_kept_for_good(http: Client) -> None:
    response = http.get("/assets/index-1.js")
    assert response.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert response.headers["content-type"] == "text/javascript; charset=utf-8"
    other = http.get("/mark.svg")
    assert (other.headers["cache-control"], other.headers["content-type"]) == (
        "no-cache",
        "image/svg+xml",
    )


@pytest.mark.parametrize(
    ("accepted", "compressed"),
    [
        ("gzip", True),
        ("br, GZIP;q=0.5", True),
        ("gzip;q=0", False),
        ("br", False),
        ("identity", False),
        ("", False),
    ],
)
def test_a_file_is_sent_compressed_to_clients_that_accept_it(
    http: Client, accepted: str, compressed: bool
) -> None:
    with http.stream(
        "GET", "/assets/index-1.js", headers={"Accept-Encoding": accepted}
    ) as response:
        raw = b"".join(response.iter_raw())
    assert (response.headers.get("content-encoding") == "gzip") == compressed
    assert response.headers["vary"] == "Accept-Encoding"
    assert int(response.headers["content-length"]) == len(raw)
    assert (gzip.decompress(raw) if compressed else raw) == SCRIPT
    assert "vary" not in http.get("/assets/small-2.css").headers


@pytest.mark.parametrize(
    "address",
    [
        "/../secret.txt",
        "/assets/../../secret.txt",
        "/assets/%2e%2e/%2e%2e/secret.txt",
        "/assets/..%2f..%2fsecret.txt",
        "/assets/..%5c..%5csecret.txt",
        "//secret.txt",
        "/%2fetc/passwd",
        "/assets/%00",
        "/digest",
        "/assets/index-1.js.gz",
        "/assets/",
        "/assets",
    ],
)
def test_no_address_reaches_another_file(http: Client, address: str) -> None:
    url = httpx2.URL("http://testserver").copy_with(raw_path=address.encode())
    for headers in ({}, HTML):
        response = http.get(url, headers=headers)
        assert response.status_code == 404 or is_the_page(response)
        assert "for nobody" not in response.text


def test_the_page_may_load_only_files_of_this_origin(http: Client) -> None:
    for address in ("/", "/mark.svg"):
        headers = http.get(address).headers
        policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
        assert policy == {
            "default-src": "'self'",
            "style-src": "'self' 'unsafe-inline'",
            "img-src": "'self' data: blob:",
            "object-src": "'none'",
            "base-uri": "'none'",
            "form-action": "'none'",
            "frame-ancestors": "'none'",
        }
        assert (headers["x-content-type-options"], headers["referrer-policy"]) == (
            "nosniff",
            "no-referrer",
        )
    headers = http.get("/assets/index-1.js").headers
    assert headers["x-content-type-options"] == "nosniff"
    assert "content-security-policy" not in headers  # 0.4 KB in each of a page's fifteen files.


def test_files_are_served_while_they_are_replaced(http: Client, folder: Path) -> None:
    assert is_the_page(http.get("/"))
    folder.rename(folder.with_name("former"))
    assert is_the_page(http.get("/jobs", headers=HTML))
    assert http.get("/assets/index-1.js").content == SCRIPT


def test_without_built_pages_every_page_explains_how_to_build_them(folder: Path) -> None:
    with serving(folder) as http:
        for address in ("/", "/jobs/0190"):
            page = http.get(address, headers=HTML)
            assert (page.status_code, page.headers["content-type"]) == (
                200,
                "text/html; charset=utf-8",
            )
            assert "make pages" in page.text
        assert http.get("/assets/index-1.js", headers=HTML).status_code == 404
        lay(folder)
        assert is_the_page(http.get("/jobs/0190", headers=HTML))


def test_that_page_loads_nothing_from_elsewhere_and_names_the_commands(folder: Path) -> None:
    with serving(folder) as http:
        page = http.get("/")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    for wanted in (
        "lockstep submit",
        "lockstep logs -f",
        "/openapi.json",
        "prefers-color-scheme: dark",
    ):
        assert wanted in page.text
    for refused in ("<script", "<link", "http://", "https://", "@import", "url("):
        assert refused not in page.text


def test_pages_are_no_part_of_the_apis_description(http: Client) -> None:
    described = http.get("/openapi.json").json()["paths"]
    assert not [
        path for path in described if not path.startswith(("/v1/", "/livez", "/readyz", "/metrics"))
    ]
