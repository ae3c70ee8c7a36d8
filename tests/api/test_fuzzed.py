"""Fuzzing of the API: schemathesis reads the API's description and sends random requests.

Its checks: no server error; statuses, headers, media types and bodies as described; the description
decides on acceptance and refusal; no access without a token; unknown methods are refused with a
list of the allowed ones.

Not here: the message for one invalid input (``test_bad_input``), and the completeness of the
description (``test_description``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
import structlog
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import Status, events, from_schema
from schemathesis.transport import SerializationContext

from lockstep.domain.life.outcomes import Reason
from tests.api.conftest import TOKEN, Api
from tests.api.test_reading import record, upload_logs, upload_metrics
from tests.storage import scenes

BEYOND_A_SCHEMA = (
    *("submitJob", "planJob", "requeueJob", "listJobs", "getUsage"),
    *("putUpload", "getJobLogs", "followJobLogs", "getSeries", "getJobLive"),
    *("listJobFiles", "deleteJobFiles", "listSeries"),
)
"""Operations with rules between values, or about the content of a file, which a description cannot
state.

They may refuse an input that the description allows with 422.
"""
ACCEPTED = ["2xx", "3xx", "404", "409", "422"]
WITH_A_SECRET = ("signIn", "acceptInvitation", "changePassword")
"""Operations that refuse what cannot be guessed, and delay the next attempt."""
ENDS_ITS_TOKEN = ("revokeToken", "rotateToken")
"""Operations left out: the list of tokens has the one that each request sends."""
ANY_VALUE = ("cloneJob",)
"""Operations that accept any JSON value.

Numbers of a hundred digits are refused with 400, because no job uses them.
"""
DESCRIPTION_SECONDS = 300
"""Limit of the description's answer: ten seconds, the default, pass on a loaded machine."""


@schemathesis.serializer("application/octet-stream")
def _as_it_is(_context: SerializationContext, value: Any) -> Any:
    return {"data": value if isinstance(value, bytes) else str(value).encode(errors="replace")}


def settings(*phases: str, examples: int = 1) -> SchemathesisConfig:
    """Return some phases, with this number of examples per operation.

    Every run has the same examples.
    """
    every = ("examples", "coverage", "fuzzing", "stateful")
    return SchemathesisConfig.from_dict(
        {
            "seed": 1,
            "continue-on-failure": True,
            "max-stream-events": 1,
            "headers": {"Authorization": f"Bearer {TOKEN}"},
            "generation": {
                "max-examples": examples,
                "deterministic": True,
                "database": "none",
                "no-shrink": True,
            },
            "phases": {name: {"enabled": name in phases} for name in every},
            "operations": [
                {
                    "include-operation-id": list(operations),
                    "checks": {"positive_data_acceptance": {"expected-statuses": statuses}},
                }
                for operations, statuses in (
                    (ANY_VALUE, [*ACCEPTED, "400"]),
                    (WITH_A_SECRET, [*ACCEPTED, "401", "429"]),
                    (BEYOND_A_SCHEMA, ACCEPTED),
                )
            ],
        }
    )


def populate(api: Api) -> None:
    """Create a job that has ended with all its data, a running one, a queued one, and a node.

    The node has the name of the examples.
    """
    ended = scenes.run(api.database)
    upload_metrics(api, ended, record(1), record(2, float("nan")))
    upload_logs(api, ended, (0, "stdout", "größe"), (1, "stderr", "two"))
    scenes.end(api.database, ended, Reason.USER_ERROR, rank=1, exception="ValueError: no")
    scenes.start(api.database, scenes.submit(api.database), devices=(2, 3))
    api.register("gpu-a")
    api.job_id()


def failures(api: Api, config: SchemathesisConfig, *without: str) -> Iterator[str]:
    """Return the findings of schemathesis, one line each, and errors that stopped it."""
    schema = schemathesis.openapi.from_asgi(
        "/openapi.json", api.http.app, config=config, timeout=DESCRIPTION_SECONDS
    )
    schema = schema.exclude(operation_id=[*without, *ENDS_ITS_TOKEN])
    sent = 0
    for told in from_schema(schema).execute():
        if isinstance(told, events.NonFatalError | events.FatalError):
            yield (
                f"it could not look: "
                f"{getattr(told, 'value', None) or getattr(told, 'exception', told)}"
            )
        if not isinstance(told, events.ScenarioFinished):
            continue
        sent += len(told.recorder.interactions)
        for case_id, checks in told.recorder.checks.items():
            case, answer = (
                told.recorder.cases[case_id].value,
                told.recorder.interactions[case_id].response,
            )
            for check in checks:
                if check.status is not Status.SUCCESS:
                    what = (
                        str(check.failure_info.failure).partition("\n")[0]
                        if check.failure_info
                        else ""
                    )
                    asked = (
                        f"{case.method} {case.formatted_path} {case.query} {str(case.body)[:300]}"
                    )
                    yield (
                        f"{check.name}: {what}: {asked} -> "
                        f"{answer and (answer.status_code, answer.content[:300])}"
                    )
    assert sent > 100, "it has sent next to nothing"


def findings(api: Api, config: SchemathesisConfig, *without: str) -> list[str]:
    """Return all findings, with the defects that occurred after the status was sent."""
    populate(api)
    with structlog.testing.capture_logs() as lines:
        found = list(failures(api, config, *without))
    return found + [str(line) for line in lines if line["log_level"] == "error"]


def test_no_request_that_comes_to_mind_is_answered_other_than_described(api: Api) -> None:
    assert not findings(api, settings("examples", "fuzzing", "stateful", examples=3))


@pytest.mark.drill
def test_no_request_at_the_edge_of_the_description_is_answered_otherwise(api: Api) -> None:
    # Specs have thousands of edge cases, and their own tests.
    assert not findings(api, settings("coverage"), "submitJob", "planJob")


@pytest.mark.drill
@pytest.mark.timeout(1_800)
def test_every_answer_to_a_random_request_is_as_described(api: Api) -> None:
    assert not findings(api, settings("examples", "fuzzing", "stateful", examples=60))
