"""A shared service of real processes with two private projects, their people and their jobs.

Two apis, a scheduler and a node have one database; a third api has no sign-in. One device: a job of
the foreign project runs, and all others wait.
"""

from __future__ import annotations

import base64
import json
import sqlite3
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, Final
from urllib.parse import quote
from uuid import uuid4

import httpx2
import psycopg

from tests.harness.plane import Plane, script
from tests.harness.processes import Program, until

FOREIGN: Final = "zebra"
"""In the name of the foreign project and of each of its jobs."""
_NO_TLS: Final = ssl.create_default_context()
"""Made once: each takes 20 ms."""


class Site:
    """A service with two private projects, their people and jobs. Each issued secret is noted."""

    def __init__(self, plane: Plane) -> None:
        self.plane, self.began_at = plane, time.time()
        self.here, self.elsewhere, self.open = plane.api, plane.new_api(), plane.new_api()
        self.open.environment["LOCKSTEP_AUTH"] = "off"
        with ThreadPoolExecutor() as pool:
            list(pool.map(Program.start, (self.elsewhere, self.open)))
        self.secrets = [plane.api.token]
        self._http: dict[str, httpx2.Client] = _Clients()
        self.passwords: dict[str, str] = {}
        for project in ("nlp", FOREIGN):
            self.made("/v1/projects", {"name": project})
        self.lea, self.ben, self.vera, self.paul, self.olga = (
            self.person(name, project, role)
            for name, project, role in (
                ("lea", "nlp", "member"),
                ("ben", FOREIGN, "member"),
                ("vera", "nlp", "viewer"),
                ("paul", "nlp", "admin"),
                ("olga", "", ""),
            )
        )
        assert self.ask("PATCH", "/v1/users/olga", {"role": "operator"}).is_success
        source = "ranks(); until_told()"
        self.foreign, self.foreign_next = (
            self.job(self.ben, script(source, name=f"{FOREIGN}-{name}", project=FOREIGN))
            for name in ("runs", "waits")
        )
        until(lambda: plane.states()[self.foreign] == "running", 60, "a running foreign job")
        self.own = self.job(self.lea, script(source, name="own", project="nlp"))
        until(
            lambda: self.ask("GET", f"/v1/jobs/{self.own}").json()["queue"], 60, "the own job waits"
        )

    def close(self) -> None:
        for program in (self.elsewhere, self.open):
            program.end()
        for client in self._http.values():
            client.close()

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        by: str | None = "",
        at: Program | None = None,
        address: str = "127.0.0.1",
        **headers: str,
    ) -> httpx2.Response:
        """Send a request, by the admin unless another token, or None, is given."""
        if by is not None:
            headers["Authorization"] = f"Bearer {by or self.here.token}"
        url = f"{(at or self.here).url}{path}"
        return self._http[address].request(method, url, json=body, headers=headers)

    def made(self, path: str, body: Any, *, by: str = "") -> dict[str, Any]:
        answer = self.ask("POST", path, body, by=by)
        assert answer.is_success, answer.text
        found: dict[str, Any] = answer.json()
        self.secrets += [found[key] for key in ("code", "token", "secret") if _is_text(found, key)]
        return found

    def person(self, name: str, project: str = "", role: str = "") -> str:
        """Add a person with a password and a role; return the token of a session."""
        self.made("/v1/users", {"name": name})
        code = self.made(f"/v1/users/{name}/invite", None)["code"]
        if project:
            member = f"/v1/projects/{project}/members/{name}"
            assert self.ask("PUT", member, {"role": role}).is_success
        self.passwords[name] = f"pä ss/wörd + {uuid4()}"
        self.secrets.append(self.passwords[name])
        body = {"code": code, "password": self.passwords[name]}
        token: str = self.made("/v1/invitation", body)["token"]
        return token

    def sign_in(self, name: str) -> str:
        body = {"name": name, "password": self.passwords[name]}
        token: str = self.made("/v1/session", body)["token"]
        return token

    def token(self, by: str = "", **body: Any) -> tuple[str, str]:
        """Make a token; return its id and its secret."""
        found = self.made("/v1/tokens", body, by=by)
        return found["token"]["id"], found["secret"]

    def job(self, by: str, spec: dict[str, Any]) -> str:
        job_id: str = self.made("/v1/jobs", spec, by=by)["id"]
        return job_id

    def denied(self, actor: str) -> list[dict[str, Any]]:
        rows = self.ask("GET", f"/v1/audit?actor={actor}&limit=500").json()["items"]
        return [row for row in rows if row["outcome"] == "denied"]

    def written(self) -> list[Any]:
        """Return what requests can change, without what the scheduler and each request note."""
        fields = ("id", "name", "state", "intent", "role", "members", "limits", "revoked_at")
        paths = ("/v1/jobs?limit=500", "/v1/projects", "/v1/users", "/v1/tokens")
        items = [row for path in paths for row in self.ask("GET", path).json()["items"]]
        return [[row.get(field) for field in fields] for row in items]

    def sql(self, statement: str) -> None:
        """Run a statement as a person with access to the database."""
        url = self.plane.urls[0]
        if url.startswith("sqlite"):
            with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30)) as connection:
                connection.execute(statement)
                connection.commit()
        else:
            with psycopg.connect(url.replace("+psycopg", "")) as connection:
                connection.execute(statement)  # type: ignore[call-overload]

    def operations(self) -> list[str]:
        """Return each operation as ``get /v1/jobs``, from the service's own description."""
        paths = self.ask("GET", "/openapi.json").json()["paths"]
        return [f"{verb} {path}" for path, verbs in paths.items() for verb in verbs]


class _Clients(dict[str, httpx2.Client]):
    """A client for each address of this machine: another one is another sender."""

    def __missing__(self, address: str) -> httpx2.Client:
        transport = httpx2.HTTPTransport(local_address=address, verify=_NO_TLS)
        return self.setdefault(address, httpx2.Client(transport=transport, timeout=60))


def _is_text(found: dict[str, Any], key: str) -> bool:
    return isinstance(found.get(key), str)


def filled(operation: str, job: str, project: str) -> tuple[str, str]:
    """Return the method and the address of an operation about this job and this project."""
    method, path = operation.split()
    values = {"{reference}": job, "{project}": project, "{sha256}": "0" * 64, "{id}": "0" * 16}
    values |= {"{name}": "n", "{which}": "last", "{token_id}": str(uuid4())}
    for name, value in values.items():
        path = path.replace(name, value)
    # What it deletes is asked for before the job is looked up.
    needs_match = method == "delete" and path.endswith("/files")
    return method.upper(), f"{path}?match=x" if needs_match else path


def words_of(answer: httpx2.Response, *names: str) -> tuple[int, str]:
    found = answer.json()
    del found["instance"]
    text = json.dumps(found)
    for name in names:
        text = text.replace(name, "NAME")
    return answer.status_code, text


def forms(secret: str) -> Iterator[bytes]:
    """Yield a secret as it is, in JSON, in a URL, and in base64 at each offset."""
    yield secret.encode()
    yield json.dumps(secret)[1:-1].encode()
    yield quote(secret).encode()
    yield quote(secret, safe="").encode()
    for offset, first in enumerate((0, 2, 3)):
        text = b"\0" * offset + secret.encode()
        yield base64.b64encode(text)[first : len(text) * 8 // 6]
