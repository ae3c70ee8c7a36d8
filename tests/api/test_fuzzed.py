"""What no caller may bring about, whatever it sends: schemathesis reads the API's description and
tries.

Its checks: no server error; statuses, headers, media types and bodies as described; what the
description allows is accepted and what it forbids refused; no way in without a token; unknown
methods refused, with those that are known.

Not here: what one bad input is told (``test_bad_input``), and whether the description is complete
(``test_description``).
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
from tests.api.test_reading import record, ship_logs, ship_metrics
from tests.storage import scenes

BEYOND_A_SCHEMA = ("submitJob", "planJob", "putUpload", "getJobLogs", "followJobLogs", "getSeries")
"""Have rules between values, or about what a file holds, which no description can state: there,
what the description allows may be refused with 422."""
ACCEPTED = ["2xx", "3xx", "404", "409", "422"]
ANY_VALUE = ("cloneJob",)
"""Take any JSON value, numbers of a hundred digits included, which no job has a use for: refused
with 400."""


@schemathesis.serializer("application/octet-stream")
def _as_it_is(_context: SerializationContext, value: Any) -> Any:
    return {"data": value if isinstance(value, bytes) else str(value).encode(errors="replace")}


def settings(*phases: str, examples: int = 1) -> SchemathesisConfig:
    """Some phases, with so many examples of an operation; the same ones in every run."""
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
                    (BEYOND_A_SCHEMA, ACCEPTED),
                )
            ],
        }
    )


def populate(api: Api) -> None:
    """A job that has ended and left everything behind, a running one, a queued one; a node of the
    examples' name."""
    ended = scenes.run(api.database)
    ship_metrics(api, ended, record(1), record(2, float("nan")))
    ship_logs(api, ended, (0, "stdout", "größe"), (1, "stderr", "two"))
    scenes.end(api.database, ended, Reason.USER_ERROR, rank=1, exception="ValueError: no")
    scenes.start(api.database, scenes.submit(api.database), devices=(2, 3))
    api.register("gpu-a")
    api.job_id()


def failures(api: Api, config: SchemathesisConfig, *without: str) -> Iterator[str]:
    """What schemathesis finds wrong, one line each; and what kept it from looking."""
    schema = schemathesis.openapi.from_asgi("/openapi.json", api.http.app, config=config)
    if without:
        schema = schema.exclude(operation_id=list(without))
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
    """All that is wrong, with the defects that came too late to be seen in an answer: after its
    status was sent."""
    populate(api)
    with structlog.testing.capture_logs() as lines:
        found = list(failures(api, config, *without))
    return found + [str(line) for line in lines if line["log_level"] == "error"]


def test_no_request_that_comes_to_mind_is_answered_other_than_described(api: Api) -> None:
    assert not findings(api, settings("examples", "fuzzing", "stateful", examples=3))


@pytest.mark.drill
def test_no_request_at_the_edge_of_the_description_is_answered_otherwise(api: Api) -> None:
    # Specs have thousands of edges, and tests of their own.
    assert not findings(api, settings("coverage"), "submitJob", "planJob")


@pytest.mark.drill
def test_no_request_is_answered_other_than_described_however_many_are_tried(api: Api) -> None:
    assert not findings(api, settings("examples", "fuzzing", "stateful", examples=60))
