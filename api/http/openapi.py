"""Additions to the OpenAPI description that FastAPI generates.

* Schema and examples of the submit body. ``api.http.body`` reads it instead of FastAPI, for problem
  documents with error messages of Lockstep.
* The bearer token, which ``api.auth.bearer`` checks without FastAPI's security classes.
* The media type of problem documents, which FastAPI would describe as ``application/json``.
* The headers that ``api.request_middleware`` and ``api.http.problems`` add to responses, and
  an example for each response.

Not here: summaries and responses of the routes (``api.routes``), the examples
(``api.http.examples``).
"""

from __future__ import annotations

import re
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from lockstep.api.http import examples
from lockstep.api.http.problems import MEDIA_TYPE
from lockstep.domain.job_marks import JobMarks
from lockstep.domain.people_views import BODIES
from lockstep.domain.spec.job import JobSpec

REF: Final = "#/components/schemas/{model}"
_PAGE: Final = re.compile(r"Page_(\w+)_")
"""FastAPI's name of the schema of ``Page[…]``."""
SPEC_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "description": "A job spec. Unknown fields are rejected.",
        "content": {
            "application/json": {
                "schema": {"$ref": REF.format(model="JobSpec")},
                "examples": {
                    "train": {
                        "summary": "A training run with Lockstep's training loop",
                        "value": examples.TRAIN,
                    },
                    "script": {"summary": "An existing torchrun script", "value": examples.SCRIPT},
                },
            }
        },
    }
}
ARCHIVE_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "description": "Content of the code folder, as a gzip-compressed tar archive. "
        "`application/gzip` is accepted, too.",
        # The media type of bytes that generators of clients support.
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
DESCRIPTION: Final = """
Training jobs on shared GPUs. Everything under `/v1` needs `Authorization: Bearer TOKEN`.

Errors are problem documents (RFC 9457): `detail` names the wrong and the expected value, `errors`
contains a JSON pointer to each wrong value, `next_step` is the recommended action. Every response
has an `X-Request-Id`. Responses under `/v1` have the token's remaining requests in `RateLimit`.

Resources for polling have an `ETag`: send it as `If-None-Match`; an unchanged resource is answered
with 304 and no body. These tags are weak, so a change under `If-Match` is refused with 412.
"""
_TEXT: Final = {"type": "string"}
_HEADERS: Final[dict[str, dict[str, Any]]] = {
    "X-Request-Id": {
        "description": "The `X-Request-Id` of the request if it is a plain word, else a new id. Log lines "
        "about the request contain it.",
        "schema": _TEXT,
    },
    "RateLimit-Policy": {
        "description": "The quota: `q` requests in `w` seconds. Missing if the service has no limit or the "
        "request no token.",
        "schema": _TEXT,
        "example": '"requests";q=36000;w=60',
    },
    "RateLimit": {
        "description": (
            "`r` requests are left; after `t` seconds without requests the full quota is available."
        ),
        "schema": _TEXT,
        "example": '"requests";r=35999;t=1',
    },
    "Lockstep-Token-Expires": {
        "description": "End of the token, if it has one. A session has none.",
        "schema": {"type": "string", "format": "date-time"},
        "example": "2026-06-01T09:30:00Z",
    },
    "Retry-After": {
        "description": "Seconds.",
        "schema": {"type": "integer", "minimum": 1},
        "required": True,
    },
    "WWW-Authenticate": {"description": "`Bearer`.", "schema": _TEXT, "required": True},
}
_BEARER: Final = {
    "type": "http",
    "scheme": "bearer",
    "bearerFormat": "opaque",
    "description": "A token of this service; `lockstep up` creates the first one.",
}


def describe(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document of ``app``, built once."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title,
            version=app.version,
            description=DESCRIPTION,
            routes=app.routes,
            tags=app.openapi_tags,
        )
        components = document["components"]
        bodies: tuple[type[BaseModel], ...] = (JobSpec, JobMarks, *BODIES)
        for body in bodies:
            schema = body.model_json_schema(ref_template=REF)
            components["schemas"].update(schema.pop("$defs", {}))
            components["schemas"][body.__name__] = schema
        components["headers"] = _HEADERS
        components["securitySchemes"] = {"HTTPBearer": _BEARER}
        for path, operations in document["paths"].items():
            guarded = path.startswith("/v1")
            for method, operation in operations.items():
                if guarded:
                    # A route that is open without a token has its own, an empty list.
                    operation.setdefault("security", [{"HTTPBearer": []}])
                    if method != "get" and operation["security"]:
                        operation["responses"]["412"] = _condition()
                for status, response in operation["responses"].items():
                    _complete(response, status, guarded=guarded)
        app.openapi_schema = document
    return app.openapi_schema


def _condition() -> dict[str, Any]:
    """Return the answer to a change under ``If-Match`` (``api.http.conditional``)."""
    schema = {"$ref": REF.format(model="Problem")}
    return {
        "description": "The change was sent under `If-Match`. Nothing was written.",
        "content": {"application/json": {"schema": schema}},
    }


def _complete(response: dict[str, Any], status: str, *, guarded: bool) -> None:
    names = ["X-Request-Id"]
    if guarded:
        names += ["RateLimit-Policy", "RateLimit", "Lockstep-Token-Expires"]
    if status in {"429", "503", "507"}:
        names.append("Retry-After")
    if status == "401":
        names.append("WWW-Authenticate")
    headers = response.setdefault("headers", {})
    headers.update({name: {"$ref": f"#/components/headers/{name}"} for name in names})
    content = response.get("content", {})
    if status >= "400":
        # The 503 response of a health check is a health document, not a problem document.
        if content.get("application/json", {}).get("schema") == {
            "$ref": REF.format(model="Problem")
        }:
            content[MEDIA_TYPE] = content.pop("application/json")
            content[MEDIA_TYPE]["example"] = examples.PROBLEMS[int(status)].model_dump(mode="json")
    elif "application/json" in content:
        example = _example_of(content["application/json"].get("schema", {}).get("$ref", ""))
        if example is not None:
            content["application/json"]["example"] = example


def _example_of(reference: str) -> Any:
    """Return the example of an answer's schema, or None if its type has none."""
    name = reference.rpartition("/")[2]
    if page := _PAGE.fullmatch(name):
        item = _example_of(page[1])
        return None if item is None else {"items": [item]}
    answer = examples.ANSWERS.get(name)
    return None if answer is None else answer.model_dump(mode="json")
