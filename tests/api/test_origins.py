"""Without authentication, only the service's own pages can change data or read answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.api.conftest import SCRIPT, problem
from tests.harness.processes import Program

EVIL = "http://evil.example"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """The api as a process, with the address that a browser uses."""
    made = Program(
        tmp_path_factory.mktemp("open"),
        LOCKSTEP_AUTH="off",
        LOCKSTEP_ALLOWED_HOSTS="Lab.example, gpu-box",
    )
    made.start()
    yield made
    made.end()


def submit(program: Program, **headers: str) -> httpx2.Response:
    with httpx2.Client(base_url=program.url, trust_env=False) as http:
        return http.post("/v1/jobs", json=SCRIPT, headers=headers)


def jobs(program: Program) -> int:
    with httpx2.Client(base_url=program.url, trust_env=False) as http:
        return len(http.get("/v1/jobs").json()["items"])


def authority(program: Program) -> str:
    return program.url.removeprefix("http://")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": EVIL},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:3000"},
        {"Origin": "http://localhost.evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:3000"},
        {"Sec-Fetch-Site": "cross-site", "Origin": EVIL},
    ],
    ids=str,
)
def test_a_page_of_another_site_changes_nothing(program: Program, headers: dict[str, str]) -> None:
    before = jobs(program)
    found = problem(submit(program, **headers), 403, "forbidden")
    assert found["detail"].startswith("the request was sent by a web page of ")
    assert found["detail"].endswith(
        "only pages of this service may send changes; nothing was written"
    )
    assert jobs(program) == before
    with httpx2.Client(base_url=program.url, trust_env=False, headers=headers) as http:
        assert http.post("/v1/jobs/last/cancel").status_code == 403
        assert http.delete("/v1/jobs/last").status_code == 403


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8470", "127.0.0.1.evil.example", "", "[", "0x7f.1"]
)
def test_a_name_that_only_resolves_to_this_machine_is_not_served(
    program: Program, host: str
) -> None:
    with httpx2.Client(base_url=program.url, trust_env=False, headers={"Host": host}) as http:
        for path in ("/v1/jobs", "/", "/openapi.json", "/metrics"):
            answer = http.get(path)
            found = problem(answer, 403, "forbidden")
            assert found["detail"].startswith(
                f"the Host header is {host!r}; without authentication, expected localhost"
            )


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Host": "localhost:1234"},
        {"Host": "[::1]:1234"},
        {"Host": "LAB.example"},
        {"Host": "gpu-box:80", "Origin": "http://gpu-box:80"},
        {"Origin": "https://lab.example", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://localhost:5173", "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
    ],
    ids=str,
)
def test_programs_and_the_services_own_pages_are_served(
    program: Program, headers: dict[str, str]
) -> None:
    assert submit(program, **headers).status_code == 201
    with httpx2.Client(base_url=program.url, trust_env=False, headers=headers) as http:
        assert http.get("/v1/jobs").status_code == 200


def test_the_dashboards_own_requests_are_served(program: Program) -> None:
    own = {"Host": authority(program), "Origin": program.url, "Sec-Fetch-Site": "same-origin"}
    assert submit(program, **own).status_code == 201
    assert submit(program, Host=authority(program), Origin=program.url).status_code == 201


def test_a_page_of_another_site_may_link_to_the_dashboard(program: Program) -> None:
    with httpx2.Client(base_url=program.url, trust_env=False) as http:
        linked = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
        assert http.get("/", headers=linked).status_code == 200


def test_a_body_without_a_media_type_is_refused(program: Program) -> None:
    with httpx2.Client(base_url=program.url, trust_env=False) as http:
        bodies: list[Any] = [b'{"name": "a"}', iter([b"{", b"}"])]
        for body in bodies:
            found = problem(http.post("/v1/jobs", content=body), 415, "media_type")
            assert (
                found["detail"]
                == "the body has no Content-Type; expected application/json; nothing was written"
            )
            assert found["next_step"] == "send Content-Type: application/json"
        problem(http.put(f"/v1/uploads/{'0' * 64}", content=b"x"), 415, "media_type")


def test_with_authentication_any_host_and_origin_are_served(tmp_path: Path) -> None:
    made = Program(tmp_path)
    made.start()
    try:
        token = {"Authorization": f"Bearer {(tmp_path / 'token').read_text().strip()}"}
        assert submit(made, Host="proxied.example", Origin=EVIL, **token).status_code == 201
    finally:
        made.end()
