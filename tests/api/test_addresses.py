"""Addresses: HEAD, invalid text, repeated parameters, and excessive length."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from fastapi.routing import APIRoute

from tests.api.conftest import SCRIPT, Api, problem
from tests.api.test_reading import upload_logs
from tests.harness.processes import Program
from tests.storage import scenes

VARYING = {"x-request-id", "ratelimit", "date", "transfer-encoding"}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    made = Program(tmp_path_factory.mktemp("addresses"))
    made.start()
    yield made
    made.end()


def said(program: Program, request: bytes) -> tuple[bytes, bytes]:
    """Return head and body of the answer to these bytes."""
    address = urlsplit(program.url)
    with socket.create_connection((address.hostname, address.port), timeout=30) as connection:
        connection.sendall(request)
        with connection.makefile("rb") as answer:
            head, _, body = answer.read().partition(b"\r\n\r\n")
    return head, body


def test_head_is_answered_as_get_is_without_the_body(api: Api) -> None:
    job = scenes.run(api.database)
    upload_logs(api, job, (0, "stdout", "line\n" * 2000))
    parts = ("", "/spec", "/events", "/logs", "/logs/download", "/metrics", "/attempts", "/none")
    addresses = ["/livez", "/readyz", "/metrics", "/openapi.json", "/docs", "/", "/v1/jobs"]
    for address in (*addresses, *(f"/v1/jobs/last{part}" for part in parts)):
        head, got = api.http.head(address), api.http.get(address)
        assert (head.status_code, head.content) == (got.status_code, b""), address
        expected = {k: v for k, v in got.headers.items() if k not in VARYING}
        if address != "/metrics":  # numbers whose length may differ
            assert {k: v for k, v in head.headers.items() if k not in VARYING} == expected
    tag = api.http.head("/v1/jobs/last").headers["etag"]
    assert api.http.head("/v1/jobs/last", headers={"If-None-Match": tag}).status_code == 304
    assert 'method="HEAD",route="/v1/jobs/{reference}"' in api.http.get("/metrics").text


def test_head_of_an_endless_stream_is_answered_at_once_and_frees_it(program: Program) -> None:
    head_of = f"Host: x\r\nAuthorization: Bearer {program.token}\r\n"
    with program.client() as http:
        http.post("/v1/jobs", json=SCRIPT)
        for _ in range(300):  # more than the number of streams
            answer = http.head("/v1/jobs/last/logs/stream", timeout=10)
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith("text/event-stream")
    line = "HEAD /v1/jobs/last HTTP/1.1\r\n"
    head, body = said(program, f"{line}{head_of}Connection: close\r\n\r\n".encode())
    assert head.startswith(b"HTTP/1.1 200")
    assert b"\r\ncontent-length: " in head
    assert body == b""


def test_allow_lists_the_methods_that_an_address_has_and_no_other(unchanged_api: Api) -> None:
    app = unchanged_api.http.app
    paths = {route.path for route in app.routes if isinstance(route, APIRoute)}  # type: ignore[attr-defined]
    every = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
    for path in sorted(paths | {"/", "/docs", "/openapi.json"}):
        address = path.replace("{reference}", "none").replace("{sha256}", "0" * 64)
        answers = {method: unchanged_api.http.request(method, address) for method in every}
        refused = {method for method in every if answers[method].status_code == 405}
        assert refused, path
        for method in refused:
            allowed = answers[method].headers["allow"].split(", ")
            assert set(allowed) == set(every) - refused, (method, path)


def test_the_address_of_the_plan_is_not_that_of_a_job(unchanged_api: Api) -> None:
    for method in ("GET", "DELETE", "PUT"):
        refused = unchanged_api.http.request(method, "/v1/jobs/plan")
        assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
    assert unchanged_api.http.post("/v1/jobs/plan", json=SCRIPT).status_code == 200


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    ("address", "pointer", "says"),
    [
        ("/v1/jobs/%00", "/path", "contains a NUL character"),
        ("/v1/jobs/a%FFb/events", "/path", "is not UTF-8: byte 0xff"),
        ("/v1/jobs/%ED%A0%80", "/path", "is not UTF-8: byte 0xed"),
        ("/v1/jobs?search=%00", "/query/search", "contains a NUL character"),
        ("/v1/jobs?limit=1&search=a%C3", "/query/search", "is not UTF-8: byte 0xc3"),
        ("/v1/jobs?lab%00el=1", "/query/lab\0el", "contains a NUL character"),
        ("/v1/queue?a%FF=1", "/query/a\ufffd", "is not UTF-8: byte 0xff"),
    ],
)
def test_an_address_that_is_no_text_is_refused(
    unchanged_api: Api, method: str, address: str, pointer: str, says: str
) -> None:
    answer = unchanged_api.http.request(method, address)
    assert answer.status_code == 422
    if method == "GET":
        found = problem(answer, 422, "invalid")
        assert (found["errors"][0]["pointer"], found["errors"][0]["message"]) == (pointer, says)
        assert "UTF-8" in found["next_step"]


def test_text_of_every_alphabet_is_none_of_these(unchanged_api: Api) -> None:
    for text in ("größe", "\ufffd", "火", "a+b", "%25"):
        assert unchanged_api.http.get("/v1/jobs", params={"search": text}).status_code == 200


def test_a_parameter_with_one_value_is_given_once(unchanged_api: Api) -> None:
    for address, name in (
        ("/v1/jobs?limit=1&limit=2", "limit"),
        ("/v1/jobs?search=a&state=queued&search=a", "search"),
        ("/v1/jobs/last/logs?rank=0&rank=1", "rank"),
        ("/v1/jobs/last/checkpoints/best?attempt=1&attempt=1", "attempt"),
    ):
        found = problem(unchanged_api.http.get(address), 422, "invalid")
        assert found["errors"][0]["pointer"] == f"/query/{name}"
        assert "expected one value, got 2: " in found["detail"]
        assert found["next_step"] == f"send {name} once"
    found = problem(unchanged_api.http.post("/v1/jobs/x/cancel?now=1&now=0"), 422, "invalid")
    assert found["detail"] == "query parameter now: expected one value, got 2: '1', '0'"
    for address in ("/v1/jobs?state=queued&state=running", "/v1/queue?other=1&other=2"):
        assert unchanged_api.http.get(address).status_code == 200


def test_a_body_is_refused_where_none_is_read(unchanged_api: Api) -> None:
    for method, address, advice in (
        ("POST", "/v1/jobs/x/cancel", "send now in the query of the address"),
        ("POST", "/v1/jobs/x/resume", "send it without a body"),
        ("DELETE", "/v1/jobs/x", "send it without a body"),
        ("DELETE", "/v1/session", "send it without a body"),
    ):
        answer = unchanged_api.http.request(method, address, json={"now": True})
        found = problem(answer, 422, "invalid")
        assert found["detail"] == "body: this request takes no body"
        assert (found["errors"][0]["pointer"], found["next_step"]) == ("/body", advice)
        chunked = unchanged_api.http.request(method, address, content=iter([b"{}"]))
        problem(chunked, 422, "invalid")


@pytest.mark.parametrize("address", ["/v1/jobs", "/v1/jobs/plan", "/v1/jobs/none/clone"])
def test_a_body_in_another_charset_is_refused(unchanged_api: Api, address: str) -> None:
    def send(charset: str) -> int:
        kind = {"Content-Type": f"application/json; charset={charset}"}
        answer = unchanged_api.http.post(address, content="{", headers=kind)
        if answer.status_code == 415:
            assert f"declared as '{charset}'" in problem(answer, 415, "media_type")["detail"]
            assert "Content-Type: application/json" in answer.json()["next_step"]
        return answer.status_code

    assert [send(name) for name in ("latin-1", "utf-16", "us-ascii")] == [415] * 3
    assert [send(name) for name in ("utf-8", '"UTF-8"', "utf8")] == [400] * 3


@pytest.mark.parametrize("size", [66_000, 300_000, 3_000_000])
def test_an_address_that_is_too_long_gets_a_problem_document(program: Program, size: int) -> None:
    head, body = said(
        program, b"GET /v1/jobs?search=%b HTTP/1.1\r\nHost: x\r\n\r\n" % (b"a" * size)
    )
    assert head.startswith(b"HTTP/1.1 414 ")
    assert b"content-type: application/problem+json" in head
    found = json.loads(body)
    assert (found["status"], found["code"]) == (414, "address_too_long")
    assert "longer than 65535 bytes" in found["detail"]
    with program.client() as http:
        problem(http.get(f"/v1/jobs?search={'a' * 60_000}"), 422, "invalid")


@pytest.mark.parametrize(
    "request_bytes",
    [b"GET / HTTX/1.1\r\n\r\n", b"\x16\x03\x01\x02", b"GET /v1/j\xff HTTP/1.1\r\n\r\n"],
)
def test_an_invalid_request_gets_a_problem_document(program: Program, request_bytes: bytes) -> None:
    head, body = said(program, request_bytes)
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"content-type: application/problem+json" in head
    assert b"connection: close" in head
    assert json.loads(body)["code"] == "malformed"
