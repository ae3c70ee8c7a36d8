"""Attacks on a shared service of real processes: two apis, scheduler and node on one database.

Each test is a row of the security acceptance of people and projects; each runs on both databases.

Not here: each route for each kind of caller (``tests.api.test_access``).
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx2
import psutil
import psycopg
import pytest

from tests.harness import forks
from tests.harness.databases import Urls
from tests.harness.plane import running_plane, script
from tests.harness.processes import ROOT, Program, until
from tests.harness.site import FOREIGN, Site, filled, forms, words_of

pytestmark = pytest.mark.e2e
OPEN: Final = {"post /v1/session", "post /v1/session/code", "post /v1/invitation"}
PUBLIC: Final = {"/livez", "/readyz", "/metrics", "/openapi.json", "/docs", "/"}
ATTACKERS: Final = 40
ELSEWHERE_SECONDS, STREAM_SECONDS, MARGIN_SECONDS = 10.0, 15.0, 10.0
"""The last one is for a busy machine."""


@pytest.fixture(scope="module")
def site(module_urls: Urls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    with running_plane(folder, module_urls, scale=0.3, devices=1) as plane:
        made = Site(plane)
        yield made
        made.close()


def test_row_1_without_a_credential_only_the_public_list_is_answered(site: Site) -> None:
    for headers in (
        {},
        {"Authorization": "Bearer unknown"},
        {"Authorization": f"Basic {site.here.token}"},
        {"Cookie": f"lockstep={site.here.token}"},
        {"X-Forwarded-User": "admin", "X-HTTP-Method-Override": "GET"},
    ):
        statuses = {
            operation: site.ask(*filled(operation, site.own, "nlp"), by=None, **headers).status_code
            for operation in site.operations()
        }
        answered = {operation for operation, status in statuses.items() if status != 401}
        public = {each for each in answered if not each.split()[1].startswith("/v1")}
        assert answered - public == OPEN
        assert {each.split()[1] for each in public} <= PUBLIC
    for path in (
        "//v1/jobs",
        "/v1/jobs/",
        "/V1/jobs",
        "/v1;a/jobs",
        "/v1/../v1/jobs",
        "/v1%2fjobs",
    ):
        answer = site.ask("GET", f"{path}?token={site.here.token}", by=None)
        assert site.own not in answer.text
    assert not any(FOREIGN in site.ask("GET", path, by=None).text for path in PUBLIC)


def test_row_2_a_program_with_an_undeclared_route_does_not_start(tmp_path: Path) -> None:
    source = (
        "from lockstep.api import app; from lockstep.api.routes import health; import runpy\n"
        "health.router.add_api_route('/v1/undeclared', lambda: None)\n"
        "runpy.run_module('lockstep.api', run_name='__main__')"
    )
    program = Program(tmp_path)
    words = [sys.executable, "-c", source]
    done = forks.run(words, forks.SERVICE, env=program.environment, cwd=ROOT, timeout=60)
    assert done.returncode != 0
    assert "the route GET /v1/undeclared declares 0 rights" in done.stderr


def test_row_3_a_foreign_id_is_answered_as_a_random_one(site: Site) -> None:
    about = [each for each in site.operations() if "{reference}" in each or "{project}" in each]
    assert len(about) > 15
    for operation in about:
        unknown = str(uuid4()), "made-up"
        bodies = {
            "put /v1/projects/{project}/members": {"role": "viewer"},
            "patch /v1/projects/": {"title": "x"},
            "patch /v1/jobs": {},
            "clone": {},
        }
        body = next((value for part, value in bodies.items() if part in operation), None)
        one, other = (
            site.ask(*filled(operation, *names), body, by=site.lea)
            for names in ((site.foreign, FOREIGN), unknown)
        )
        assert one.status_code == 404, operation
        assert words_of(one, site.foreign, FOREIGN) == words_of(other, *unknown), operation


def test_row_4_nothing_foreign_is_in_an_answer(site: Site) -> None:
    tag = site.ask("GET", "/v1/jobs").headers["ETag"]
    same = {"Idempotency-Key": "one"}
    spec = script("finish()", name="again", project="nlp")
    theirs = {**spec, "name": f"{FOREIGN}-again", "project": FOREIGN}
    answers = [
        *(site.ask("POST", "/v1/jobs", spec, by=by, **same) for by in (site.lea, site.paul)),
        site.ask("POST", "/v1/jobs/plan", script("finish()", project="nlp"), by=site.lea),
        site.ask("GET", "/v1/jobs", by=site.lea, **{"If-None-Match": tag}),
        *(
            site.ask("GET", path, by=site.lea)
            for path in (
                *("/v1/jobs?search=ze", "/v1/jobs?owner=*&project=*"),
                "/v1/jobs?node=node-under-test",
                *("/v1/jobs/last", "/v1/jobs/last/events", f"/v1/jobs/{site.own}", "/v1/queue"),
                *("/v1/nodes", "/v1/projects", "/v1/tokens", "/v1/session", "/v1/sessions"),
            )
        ),
    ]
    assert site.ask("POST", "/v1/jobs", theirs, by=site.ben, **same).status_code == 201
    for answer in answers:
        assert answer.is_success, answer.text
        assert answer.status_code != 304
        for word in (FOREIGN, site.foreign, site.foreign_next):
            assert word not in answer.text
    repeated = answers[0].json()["id"], answers[1].json()["id"]
    assert repeated[0] != repeated[1]
    for job in repeated:
        assert site.ask("POST", f"/v1/jobs/{job}/cancel").is_success
    words = [
        words_of(site.ask("POST", "/v1/jobs", {**spec, "project": name}, by=site.lea), name)
        for name in (FOREIGN, "made-up")
    ]
    assert words[0] == words[1]


def test_row_4_neither_figures_nor_reasons_name_a_foreign_project(site: Site) -> None:
    # Behind the foreign job that waits: nlp has as many devices before it, for less weight.
    assert site.ask("PATCH", f"/v1/projects/{FOREIGN}", {"weight": 9.0}).is_success
    last = site.job(site.lea, script("finish()", name="behind", project="nlp"))
    why = f"/v1/jobs/{last}/why"
    until(lambda: site.foreign_next in site.ask("GET", why).text, 60, "a foreign job ahead")
    for path in (
        *("/v1/shares", "/v1/queue", why),
        *(f"/v1/usage?by={by}" for by in ("project", "person", "day")),
        *(f"/v1/usage?by=person&project={FOREIGN}", f"/v1/queue?project={FOREIGN}"),
    ):
        names = {FOREIGN, site.foreign, site.foreign_next, '"ben"'}
        whole = site.ask("GET", path).text
        assert "by=day" in path or any(name in whole for name in names), whole
        for by in (site.lea, site.vera, site.paul):
            answer = site.ask("GET", path, by=by)
            assert answer.status_code == 200, answer.text
            assert not [name for name in names if name in answer.text], path
            unknown = site.ask("GET", path.replace(FOREIGN, "made-up"), by=by).json()
            assert FOREIGN not in path or unknown["rows" if "usage" in path else "items"] == []
    assert site.ask("POST", f"/v1/jobs/{last}/cancel").is_success


def test_row_5_a_role_or_a_scope_that_is_too_low_writes_nothing(site: Site) -> None:
    _, narrow = site.token(site.lea, scopes=["jobs:read"])
    before = site.written()
    cancel, spec = f"/v1/jobs/{site.own}/cancel", script("finish()", project="nlp")
    asked: list[tuple[str, str, str, str, Any]] = [
        ("vera", site.vera, "POST", "/v1/jobs", spec),
        ("vera", site.vera, "POST", cancel, None),
        ("vera", site.vera, "DELETE", f"/v1/jobs/{site.own}", None),
        ("lea", narrow, "POST", cancel, None),
        ("lea", narrow, "POST", "/v1/tokens", {}),
        ("lea", site.lea, "PUT", "/v1/projects/nlp/members/lea", {"role": "admin"}),
        ("lea", site.lea, "GET", "/v1/audit", None),
        ("olga", site.olga, "POST", "/v1/jobs", spec),
        ("olga", site.olga, "PATCH", "/v1/users/olga", {"role": "admin"}),
    ]
    for _, by, method, path, body in asked:
        assert site.ask(method, path, body, by=by).status_code == 403, path
    assert site.written() == before
    for name in ("vera", "lea", "olga"):
        targets = [row["target"] for row in reversed(site.denied(name))]
        assert targets == [f"{each[2]} {each[3]}" for each in asked if each[0] == name]


def _answers(site: Site, status: int, by: str, path: str, at: Program) -> bool:
    return site.ask("GET", path, by=by, at=at).status_code == status


def test_rows_6_and_7_what_is_taken_ends_here_at_once_and_elsewhere_within_seconds(
    site: Site,
) -> None:
    for name in ("bot", "left"):
        site.made("/v1/users", {"name": name, "service": True})
        member = f"/v1/projects/nlp/members/{name}"
        assert site.ask("PUT", member, {"role": "admin"}).is_success
    revoked_id, revoked = site.token(site.lea)
    expired_id, expired = site.token(site.lea)
    off, signed_out = site.person("dora", "nlp", "member"), site.sign_in("lea")
    (_, demoted), (_, left) = (site.token(owner=name) for name in ("bot", "left"))
    project, title = "/v1/projects/nlp", {"title": "x"}
    refused: dict[str, Callable[[Program], bool]] = {
        name: partial(_answers, site, status, by, project)
        for name, by, status in (
            ("revoked", revoked, 401),
            ("expired", expired, 401),
            ("off", off, 401),
            ("signed out", signed_out, 401),
            ("left", left, 404),
        )
    }
    refused["demoted"] = lambda at: (
        site.ask("PATCH", project, title, by=demoted, at=at).status_code == 403
    )
    apis = site.here, site.elsewhere
    assert not any(ask(at) for ask in refused.values() for at in apis)
    ends: dict[str, float] = {}

    def follow(name: str, by: str, at: Program) -> None:
        path = f"{at.url}/v1/jobs/{site.own}/logs/stream"
        headers = {"Authorization": f"Bearer {by}"}
        with httpx2.stream("GET", path, headers=headers, timeout=60) as stream:
            assert stream.status_code == 200
            for _ in stream.iter_lines():
                ends.setdefault(f"open {name} {at.url}", time.monotonic())
        ends[f"{name} {at.url}"] = time.monotonic()

    with ThreadPoolExecutor(10) as pool:
        followers = [
            pool.submit(follow, *each, at)
            for each in (
                *(("revoked", revoked), ("off", off), ("left", left)),
                *(("expired", expired), ("signed out", signed_out)),
            )
            for at in apis
        ]
        until(lambda: len(ends) == len(followers), 30, "open streams")
        ends.clear()
        taken_at = time.monotonic()
        site.sql(f"UPDATE tokens SET expires_at = 1 WHERE id = '{expired_id}'")
        for method, path, body, by in (
            ("DELETE", f"/v1/tokens/{revoked_id}", None, site.lea),
            ("PATCH", "/v1/users/dora", {"active": False}, ""),
            ("DELETE", "/v1/session", None, signed_out),
            ("PUT", "/v1/projects/nlp/members/bot", {"role": "viewer"}, ""),
            ("DELETE", "/v1/projects/nlp/members/left", None, ""),
        ):
            assert site.ask(method, path, body, by=by).is_success, path
        assert {name: ask(site.here) for name, ask in refused.items()} == dict.fromkeys(
            refused, True
        )
        until(
            lambda: all(ask(site.elsewhere) for ask in refused.values()),
            ELSEWHERE_SECONDS + MARGIN_SECONDS,
            "refusals elsewhere",
        )
        for each in followers:
            each.result()
    late = {
        each: at - taken_at
        for each, at in ends.items()
        if at - taken_at > STREAM_SECONDS + MARGIN_SECONDS
    }
    assert late == {}


OWN_PAGE: Final = {"Sec-Fetch-Site": "same-origin"}


def test_rows_9_and_11_pages_of_others_change_and_read_nothing_without_sign_in(site: Site) -> None:
    spec = json.dumps(script("finish()", project="nlp"))
    pages = (
        {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"},
        {"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:1"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "null"},
        {"Host": "evil.example", **OWN_PAGE},
        {"Host": "127.0.0.1.evil.example", "Origin": "http://127.0.0.1.evil.example"},
    )
    types = (
        *("application/json", "text/plain", "application/x-www-form-urlencoded"),
        *("multipart/form-data; boundary=x", ""),
    )
    before = site.written()
    with httpx2.Client(base_url=site.open.url) as http:
        for page in pages:
            for media_type in types:
                headers = page | ({"Content-Type": media_type} if media_type else {})
                for path in (
                    "/v1/jobs",
                    f"/v1/jobs/{site.own}/cancel",
                    "/v1/tokens",
                    "/v1/session",
                ):
                    answer = http.post(path, content=spec, headers=headers)
                    assert answer.status_code == 403, (page, media_type, path)
            if "Host" in page:
                for path in ("/v1/jobs", "/openapi.json", "/"):
                    assert http.get(path, headers={"Host": page["Host"]}).status_code == 403
        assert http.post("/v1/jobs/plan", content=spec).status_code == 415
        assert http.get("/v1/jobs").json()["total"] > 0
    assert site.written() == before


def test_row_12_a_planted_or_old_session_is_not_adopted(site: Site) -> None:
    planted = site.lea[:4] + site.lea[4:-6][::-1] + site.lea[-6:]
    body = {"name": "lea", "password": site.passwords["lea"]}
    answer = site.ask("POST", "/v1/session", body, by=planted, Cookie=f"lockstep={planted}")
    new = answer.json()["token"]
    site.secrets.append(new)
    assert "Set-Cookie" not in answer.headers
    assert new not in {planted, site.lea}
    assert site.ask("DELETE", "/v1/session", by=new).status_code == 204
    for at in (site.here, site.elsewhere):
        for old in (planted, new):
            assert site.ask("GET", "/v1/session", by=old, at=at).status_code == 401
        assert site.ask("GET", "/v1/session", by=site.lea, at=at).status_code == 200
    code = site.ask("POST", "/v1/sign-in-codes", by=site.lea).json()["code"]
    used = [
        site.ask("POST", "/v1/session/code", {"code": code}, by=None, at=at)
        for at in (site.elsewhere, site.here)
    ]
    assert [each.status_code for each in used] == [200, 401]
    site.secrets += [code, used[0].json()["token"]]


def test_row_13_many_wrong_passwords_cost_two_hashes_at_once_and_lock_no_one_out(
    site: Site,
) -> None:
    assert site.here.process is not None
    process = psutil.Process(site.here.process.pid)
    site.sign_in("vera")
    before = process.memory_info().rss
    peak, guesses = [before], list[httpx2.Response]()

    def guess(number: int) -> None:
        name = "vera" if number % 20 == 0 else f"unknown-{number}"
        body = {"name": name, "password": f"guess number {number}"}
        address = f"127.0.1.{number % 5 + 1}"
        guesses.append(site.ask("POST", "/v1/session", body, by=None, address=address))
        peak.append(process.memory_info().rss)

    with ThreadPoolExecutor(24) as pool:
        attack = [pool.submit(guess, number) for number in range(400)]
        until(lambda: len(guesses) > 24, 60, "the attack")
        assert _sign_in_status(site, "vera", "127.0.2.1") == 200
        for each in attack:
            each.result()
    # A hash takes 19 MiB while it is computed: one for each of 24 senders is 456 MiB.
    assert max(peak) - before < 5 * 19 * 2**20
    statuses = Counter(each.status_code for each in guesses)
    # On a loaded machine nearly all wait for a hash, and few are wrong.
    assert {401, 503} <= set(statuses) <= {401, 429, 503}
    assert 0 < statuses[401] <= 5 * 20  # 20 of each address in a minute
    for number in range(8):  # Each wrong one doubles the delay of the next.
        guess(20 * number)
    assert 429 in {each.status_code for each in guesses[-8:]}
    details = {each.json()["detail"] for each in guesses if each.status_code == 401}
    assert details == {"the name or the password is wrong; nothing was written"}


def test_row_13_guesses_from_many_addresses_keep_no_known_person_out(site: Site) -> None:
    is_over = threading.Event()
    guesses = Counter[tuple[int, int]]()

    def guess(number: int) -> None:
        address, name = f"127.0.3.{number + 1}", f"unknown-{number}"
        while not is_over.is_set():
            body = {"name": name, "password": "a wrong password"}
            answer = site.ask("POST", "/v1/session", body, address=address)
            guesses[number, answer.status_code] += 1
            is_over.wait(0.3)  # All of them still ask for more than is hashed.

    def is_known() -> bool:
        """Return whether each address has a wrong password; a refused guess leaves none."""
        return all(guesses[number, 401] for number in range(ATTACKERS))

    with ThreadPoolExecutor(ATTACKERS) as pool:
        attack = [pool.submit(guess, each) for each in range(ATTACKERS)]
        try:
            until(is_known, 60, "a wrong password from each address of the attack")
            # Lea has signed in from this address. Two new addresses of Vera have no wrong password.
            for _ in range(5):
                site.sign_in("lea")
            statuses = [_sign_in_status(site, "vera", f"127.0.5.{number}") for number in (1, 2)]
        finally:
            is_over.set()
        for each in attack:
            each.result()
    assert statuses == [200, 200]
    assert any(status == 503 for _, status in guesses)


def _sign_in_status(site: Site, name: str, address: str) -> int:
    body = {"name": name, "password": site.passwords[name]}
    answer = site.ask("POST", "/v1/session", body, by=None, address=address)
    if answer.is_success:
        site.secrets.append(answer.json()["token"])
    return answer.status_code


@pytest.mark.parametrize("statement", ["UPDATE audit SET actor = 'eve'", "DELETE FROM audit"])
def test_row_19_the_audit_is_neither_changed_nor_deleted(site: Site, statement: str) -> None:
    before = site.ask("GET", "/v1/audit?limit=500").json()
    with pytest.raises((sqlite3.Error, psycopg.Error), match="neither changed nor deleted"):
        site.sql(statement)
    assert site.ask("GET", "/v1/audit?limit=500").json() == before


def test_row_20_an_admin_of_a_project_gives_neither_service_roles_nor_limits(site: Site) -> None:
    wide = {"scopes": ["service:admin", "nodes:write", "projects:write"]}
    _, widest = site.token(site.paul, **wide)
    for by in (site.paul, widest):
        for method, path, body in (
            ("PATCH", "/v1/users/paul", {"role": "admin"}),
            ("POST", "/v1/users", {"name": "eve", "role": "admin"}),
            ("POST", "/v1/users/admin/invite", None),
            ("POST", "/v1/tokens", {"owner": "admin"}),
            ("PATCH", "/v1/projects/nlp", {"limits": {"queued_max": 9}}),
            ("POST", "/v1/projects", {"name": "mine"}),
            ("POST", "/v1/nodes/node-under-test/drain", None),
        ):
            assert site.ask(method, path, body, by=by).status_code == 403, path
        member = f"/v1/projects/{FOREIGN}/members/paul"
        assert site.ask("PUT", member, {"role": "admin"}, by=by).status_code == 404
    for body in ({"role": None}, {"active": False}):
        assert site.ask("PATCH", "/v1/users/admin", body).status_code == 409


def test_row_8_no_file_and_no_log_holds_an_issued_secret(site: Site) -> None:
    # People paste a secret where an id is expected.
    secret = site.lea
    for method, path in (
        ("DELETE", f"/v1/tokens/{secret}"),
        ("POST", f"/v1/jobs/{secret}/cancel"),
        ("GET", f"/v1/jobs?search={secret}"),
        ("POST", f"/v1/nodes/{secret}/drain"),
    ):
        assert not site.ask(method, f"{path}#{secret}", by=secret).is_server_error
    plane = site.plane
    folders = [plane.folder, plane.broker.folder]
    if plane.urls[0].startswith("postgresql"):
        url = plane.urls[0].replace("+psycopg", "")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CHECKPOINT")
            row = connection.execute("SHOW data_directory").fetchone()
        assert row is not None
        folders.append(Path(row[0]).parent)
    else:
        folders.append(Path(plane.urls[0].removeprefix("sqlite:///")).parent)
    files: dict[str, bytes] = {}
    for path in (path for folder in folders for path in folder.rglob("*")):
        with suppress(FileNotFoundError):
            is_token = path == plane.folder / "token"
            # The cluster has the files of other tests, too.
            if path.is_file() and not is_token and path.stat().st_mtime >= site.began_at:
                files[str(path)] = path.read_bytes()
    for program in (site.here, site.elsewhere, site.open):
        files[program.url] = "\n".join(map(json.dumps, program.lines)).encode()
    digest = hashlib.sha256(site.lea.encode()).hexdigest().encode()
    assert any(digest in content for content in files.values())
    assert any("assignment.json" in name for name in files)
    assert len(site.secrets) > 15
    found = {
        (name, secret[:6], form[:9])
        for secret in site.secrets
        for form in forms(secret)
        for name, content in files.items()
        if form in content
    }
    assert found == set()
