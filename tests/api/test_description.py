"""Completeness of the API's description: names, answers, refusals, headers, valid examples."""

from __future__ import annotations

import re
from typing import Any, Final

import pytest
from jsonschema_rs import validator_for
from openapi_spec_validator import OpenAPIV31SpecValidator

from lockstep.api.http import examples
from tests.api.conftest import Api

_PAGE: Final = re.compile(r"Page_(\w+)_")
OPERATIONS = {
    *(
        "listUsers",
        "addUser",
        "changeUser",
        "listTokens",
        "createToken",
        "rotateToken",
        "revokeToken",
    ),
    *("listProjects", "addProject", "getProject", "changeProject", "setMember", "removeMember"),
    *(
        "submitJob",
        "planJob",
        "listJobs",
        "listQueue",
        "getJob",
        "markJob",
        "cancelJob",
        "pauseJob",
        "resumeJob",
        "requeueJob",
        "cloneJob",
    ),
    *(
        "getJobMetrics",
        "listJobSeries",
        "getSeries",
        "listSeries",
        "listJobEvents",
        "listJobCheckpoints",
        "getJobCheckpoint",
        "getJobCheckpointFile",
    ),
    *("listJobFiles", "getJobFile", "deleteJobFiles"),
    *("getJobLogs", "downloadJobLogs", "followJobLogs", "putUpload", "getUpload"),
    *("listNodes", "drainNode", "resumeNode", "removeNode", "livez", "readyz", "scrapeMetrics"),
    *("signIn", "signOut", "getSession", "listSessions", "endSession"),
    *("changePassword", "acceptInvitation", "listAudit", "exportAudit", "getUsage"),
    *("getShares", "getWhy", "getJobLive", "getHome"),
}
"""Names from which clients are generated. A name in this list never disappears."""


@pytest.fixture(scope="module")
def document(unchanged_api: Api) -> dict[str, Any]:
    found: dict[str, Any] = unchanged_api.http.get("/openapi.json").json()
    return found


def operations(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    every = [operation for methods in document["paths"].values() for operation in methods.values()]
    found = {operation["operationId"]: operation for operation in every}
    assert len(found) == len(every), "two operations of one name"
    return found


def test_it_is_valid_openapi_3_1(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1.")
    assert [error.message for error in OpenAPIV31SpecValidator(document).iter_errors()] == []


def test_no_operation_changes_its_name(document: dict[str, Any]) -> None:
    assert set(operations(document)) >= OPERATIONS


def test_every_operation_and_every_answer_has_a_description(
    document: dict[str, Any],
) -> None:
    for name, operation in operations(document).items():
        assert operation["summary"], name
        for status, answer in operation["responses"].items():
            assert answer["description"] not in {"", "Successful Response"} or status in {
                "200",
                "201",
            }, (name, status)


def test_writes_name_a_full_disk_and_bodies_their_limit(document: dict[str, Any]) -> None:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            refusals = set(operation["responses"])
            if method != "get" and not path.endswith("/plan"):
                assert "507" in refusals, path
            # An open route has an empty list.
            if method != "get" and operation["security"]:
                assert "412" in refusals, path
            if "requestBody" in operation:
                assert {"413", "415"} <= refusals, path
            if "{" in path and operation["operationId"] != "putUpload":
                assert "404" in refusals, path


def test_every_answer_names_the_headers_that_it_carries(
    unchanged_api: Api, document: dict[str, Any]
) -> None:
    api = unchanged_api
    for path, methods in document["paths"].items():
        if "get" not in methods:
            continue
        address = path.format(
            reference="none",
            sha256="0" * 64,
            which="last",
            name="manifest.json",
            project="none",
            path="out/model.pt",
        )
        for token in ({}, {"Authorization": "Bearer not-a-token-of-anybody"}):
            answer = api.http.get(address, headers=token)
            said = set(methods["get"]["responses"][str(answer.status_code)].get("headers", {}))
            for header in (
                "x-request-id",
                "ratelimit",
                "ratelimit-policy",
                "retry-after",
                "www-authenticate",
                "etag",
            ):
                named = header in {name.lower() for name in said}
                assert named >= (header in answer.headers), (address, answer.status_code, header)


def test_each_example_is_of_the_kind_it_stands_for(document: dict[str, Any]) -> None:
    seen = set()
    for name, operation in operations(document).items():
        for status, answer in operation["responses"].items():
            for content in answer.get("content", {}).values():
                if "example" not in content:
                    continue
                answered = content["schema"]["$ref"].rpartition("/")[2]
                seen.add(_PAGE.sub(r"\1", answered) if status < "400" else int(status))
                schema = {**content["schema"], "components": document["components"]}
                errors = [
                    error.message for error in validator_for(schema).iter_errors(content["example"])
                ]
                assert not errors, (name, status)
    assert seen == {*examples.ANSWERS, *examples.PROBLEMS}
