"""Invalid input: each refusal names field, value, expectation and next step; no row is written."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from lockstep.api.http.problems import FORMS
from lockstep.domain import limits
from tests.api.conftest import SCRIPT, TRAIN, Api, problem
from tests.harness.builders import code, digest, link, member, packed

JSON = {"Content-Type": "application/json"}
ARCHIVE = {"Content-Type": "application/gzip"}


@pytest.fixture
def api(unchanged_api: Api) -> Iterator[Api]:
    """Check that no row is written, which allows all tests here to use one database."""
    api = unchanged_api
    api.register(devices=4)
    before = api.rows(), api.uploads()
    yield api
    assert (api.rows(), api.uploads()) == before
    assert not api.notifications.sent


def changed(path: str, value: Any) -> dict[str, Any]:
    spec = copy.deepcopy(TRAIN)
    *parents, name = path.split(".")
    inner = spec
    for parent in parents:
        inner = inner[parent]
    inner[name] = value
    return spec


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        pytest.param(
            changed("train.optimiser", {"lr": 1}),
            {
                "pointer": "/train/optimiser",
                "message": "unknown field; expected one of activation_checkpointing, batch, checkpoint,",
                "next_step": "did you mean optimizer?",
            },
            id="unknown field",
        ),
        pytest.param(
            {**changed("train.batch", {"size": 3, "micro_size": 1}), "resources": {"gpus": 4}},
            {
                "pointer": "/train/batch/size",
                "message": "a batch of 3 cannot be split over 4 ranks: expected at least one sample per rank",
                "value": 3,
                "next_step": "request at most 3 gpus, or a batch of at least 4",
            },
            id="batch smaller than world size",
        ),
        pytest.param(
            changed("train.steps", -5),
            {
                "pointer": "/train/steps",
                "message": "expected at least 1, got -5",
                "value": -5,
                "next_step": "use 1 or more",
            },
            id="negative steps",
        ),
        pytest.param(
            changed("train.task", "casual_lm"),
            {
                "pointer": "/train/task",
                "message": "expected a built-in task (causal_lm, hf_causal_lm, image_classification) or path/to/file.py:ClassName, "
                "got 'casual_lm'",
                "value": "casual_lm",
                "next_step": "did you mean causal_lm?",
            },
            id="unknown task",
        ),
        pytest.param(
            changed("resources.gpus", 5),
            {
                "pointer": "/resources/gpus",
                "message": "5 devices are requested, and all registered nodes together have 4, so the "
                "job could never start",
                "value": 5,
                "next_step": "request at most 4, or register more nodes first",
            },
            id="more devices than there ever were",
        ),
        pytest.param(
            {**SCRIPT, "code": {"upload": "ab" * 32}},
            {
                "pointer": "/code/upload",
                "message": "no archive with this digest was uploaded",
                "value": "ab" * 32,
                "next_step": "upload it with PUT /v1/uploads/{sha256}, or submit with: lockstep submit --code DIR",
            },
            id="code that was never uploaded",
        ),
    ],
)
@pytest.mark.parametrize("address", ["/v1/jobs", "/v1/jobs/plan"])
def test_a_wrong_value_is_named_with_the_expectation(
    api: Api, address: str, spec: dict[str, Any], error: dict[str, Any]
) -> None:
    found = problem(
        api.http.post(address, json=spec, headers={"Idempotency-Key": "k"}), 422, "invalid"
    )
    (first,) = found["errors"]
    assert first["pointer"] == error["pointer"]
    assert error["message"] in first["message"]
    assert error["next_step"] in first["next_step"]
    assert first["value"] == error.get("value", first["value"])
    assert first["pointer"].lstrip("/").replace("/", ".") in found["detail"]
    assert first["message"] in found["detail"]


def test_several_wrong_values_are_all_named(api: Api) -> None:
    spec = {**changed("train.steps", 0), "prioritty": 3, "name": "Not A Name"}
    found = problem(api.submit(spec), 422, "invalid")
    assert {error["pointer"] for error in found["errors"]} == {
        "/train/steps",
        "/prioritty",
        "/name",
    }


def test_unknown_features_are_refused_by_name_and_never_ignored(api: Api) -> None:
    found = problem(api.submit(changed("secrets", ["TOKEN"])), 422, "not_yet")
    assert found["errors"][0]["pointer"] == "/secrets"
    assert found["errors"][0]["value"] == "['TOKEN']"


def test_a_body_that_is_not_json_is_refused_with_its_position(api: Api) -> None:
    found = problem(
        api.http.post("/v1/jobs", content=b'{"name": first}', headers=JSON), 400, "malformed"
    )
    assert (
        found["detail"]
        == "the body is not JSON: expecting value at line 1, column 10; nothing was written"
    )
    assert found["next_step"].startswith("send the spec as JSON, such as {")


def test_json_that_is_no_object_is_refused(api: Api) -> None:
    found = problem(api.http.post("/v1/jobs", content=b"[1]", headers=JSON), 422, "invalid")
    assert (
        "expected a job spec: an object with fields such as name and kind, got a list"
        in found["detail"]
    )


def test_another_media_type_is_refused(api: Api) -> None:
    for given in ("application/x-www-form-urlencoded", "application/yaml"):
        sent = api.http.post("/v1/jobs", content=b"name: a", headers={"Content-Type": given})
        found = problem(sent, 415, "media_type")
        assert (
            found["detail"]
            == f"the body is '{given}'; expected application/json; nothing was written"
        )
        assert found["next_step"] == "send Content-Type: application/json"


def test_a_body_over_the_limit_is_refused_with_or_without_content_length(api: Api) -> None:
    most = limits.SPEC_BYTES_MAX
    body = b'{"name": "' + b"x" * most + b'"}'
    said = problem(api.http.post("/v1/jobs", content=body, headers=JSON), 413, "too_large")
    assert (
        said["detail"]
        == f"a job spec is at most {most} bytes, got {len(body)} bytes; nothing was written"
    )

    def chunks() -> Iterator[bytes]:
        for start in range(0, len(body), 10_000):
            yield body[start : start + 10_000]

    chunked = problem(api.http.post("/v1/jobs", content=chunks(), headers=JSON), 413, "too_large")
    assert (
        chunked["detail"]
        == f"a job spec is at most {most} bytes, got more than {most} bytes; nothing was written"
    )
    assert (
        chunked["next_step"]
        == "move the data to files or to the code folder, and give their paths in the spec"
    )


def test_a_wrong_token_and_a_missing_one_are_distinguished(api: Api) -> None:
    wrong = api.http.post(
        "/v1/jobs", json=SCRIPT, headers={"Authorization": "Bearer lockstep_wrong"}
    )
    missing = api.http.post("/v1/jobs", json=SCRIPT, headers={"Authorization": ""})
    scheme = api.http.post("/v1/jobs", json=SCRIPT, headers={"Authorization": "Basic YTpi"})
    assert problem(wrong, 401, "unauthenticated")["detail"] == (
        "the bearer token is unknown to this service; nothing was written"
    )
    assert problem(missing, 401, "unauthenticated")["detail"] == (
        "missing bearer token, got no Authorization header; nothing was written"
    )
    assert "the scheme 'Basic'" in problem(scheme, 401, "unauthenticated")["detail"]
    for response in (wrong, missing, scheme):
        assert response.headers["www-authenticate"] == 'Bearer realm="lockstep"'
        assert "LOCKSTEP_TOKEN_FILE" in response.json()["next_step"]
        assert "lockstep_wrong" not in response.text


def test_an_archive_with_a_way_out_is_refused_and_not_kept(api: Api) -> None:
    for bad, says in (
        (
            member("../evil.py"),
            "member '../evil.py' is outside the archive's folder; nothing was kept",
        ),
        (
            link("out", "/etc"),
            "member 'out' links to '/etc', outside the archive's folder; nothing was kept",
        ),
    ):
        archive = packed(member("train.py"), bad)
        found = problem(
            api.http.put(f"/v1/uploads/{digest(archive)}", content=archive, headers=ARCHIVE),
            422,
            "invalid",
        )
        assert found["detail"] == says
        assert found["errors"][0]["value"] == bad[0].name
        assert found["next_step"] == "send the folder with: lockstep submit --code DIR"


def test_an_archive_under_another_digest_is_refused(api: Api) -> None:
    archive = code()
    found = problem(
        api.http.put(f"/v1/uploads/{'0' * 64}", content=archive, headers=ARCHIVE), 422, "invalid"
    )
    assert f"the body's SHA-256 is {digest(archive)}; expected {'0' * 64}" in found["detail"]


def test_an_archive_over_the_limit_is_refused(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "UPLOAD_BYTES_MAX", 1_000)
    found = problem(
        api.http.put(f"/v1/uploads/{'0' * 64}", content=b"x" * 1_001, headers=ARCHIVE),
        413,
        "too_large",
    )
    assert (
        found["detail"]
        == "a code archive is at most 1000 bytes, got 1001 bytes; nothing was written"
    )


def test_a_digest_that_is_none_is_refused(api: Api) -> None:
    found = problem(
        api.http.put("/v1/uploads/latest", content=code(), headers=ARCHIVE), 422, "invalid"
    )
    assert found["errors"][0]["pointer"] == "/path/sha256"
    assert found["errors"][0]["value"] == "latest"


@pytest.mark.parametrize(
    ("address", "pointer", "says"),
    [
        ("/v1/jobs?limit=501", "/query/limit", "expected at most 500, got '501'"),
        ("/v1/jobs?limit=many", "/query/limit", "expected a whole number, got 'many'"),
        ("/v1/jobs?sate=running", "/query/sate", "unknown parameter"),
        ("/v1/jobs?state=sleeping", "/query/state/0", "expected queued, starting, running"),
        ("/v1/jobs?label=team", "/query/label", "expected key=value, got 'team'"),
        ("/v1/jobs/last/logs?tail=5&cursor=x", "/query", "give only one of them"),
        (
            "/v1/jobs/last/metrics?max_points=0",
            "/query/max_points",
            "expected at least 1, got '0'",
        ),
    ],
)
def test_a_wrong_parameter_is_named(api: Api, address: str, pointer: str, says: str) -> None:
    found = problem(api.http.get(address), 422, "invalid")
    assert found["errors"][0]["pointer"] == pointer
    assert says in found["errors"][0]["message"]
    assert found["next_step"]


def test_each_pattern_of_a_parameter_has_a_description(api: Api) -> None:
    paths = api.http.get("/openapi.json").json()["paths"]
    parameters = [
        operation.get("parameters", []) for path in paths.values() for operation in path.values()
    ]
    patterns = set(re.findall(r'"pattern": "(.*?)"[,}]', json.dumps(parameters)))
    assert {json.loads(f'"{pattern}"') for pattern in patterns} <= FORMS.keys()


def test_an_unknown_address_or_method_is_a_problem_too(api: Api) -> None:
    assert (
        problem(api.http.get("/v1/job"), 404, "not_found")["detail"] == "no route for GET /v1/job"
    )
    found = api.http.delete("/v1/jobs")
    assert (
        "method not allowed: DELETE /v1/jobs; expected" in problem(found, 405, "method")["detail"]
    )
    assert found.headers["allow"]


def test_an_unknown_job_is_not_found(api: Api) -> None:
    found = problem(api.http.get("/v1/jobs/nothing-like-it"), 404, "not_found")
    assert "there is no job 'nothing-like-it'" in found["detail"]


def test_an_unknown_method_is_refused_with_the_allowed_ones(
    unchanged_api: Api,
) -> None:
    for address, known in (
        ("/v1/jobs", "GET, HEAD, POST"),
        (f"/v1/uploads/{'0' * 64}", "GET, HEAD, PUT"),
        ("/v1/nodes", "GET, HEAD"),
    ):
        refused = unchanged_api.http.delete(address)
        assert refused.headers["allow"] == known
        assert known in problem(refused, 405, "method")["detail"]
