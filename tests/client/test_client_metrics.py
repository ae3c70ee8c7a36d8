"""``metrics``: its formats, and the output for a running job."""

from __future__ import annotations

import csv
import json
import math

import pytest

from lockstep.client.api import Client
from lockstep.domain.life.lifecycle import JobState
from tests.client import examples
from tests.client.server import ReplayServer
from tests.client.terminal import CommandLine

JOB = f"/v1/jobs/{examples.ID}"


def test_metrics_as_table_csv_json_and_names(lockstep: CommandLine, server: ReplayServer) -> None:
    found = examples.metrics(examples.series("train/loss", [5.5, "NaN", 2.25]))
    server.on("GET", "/v1/jobs/last/metrics", found)
    row = lockstep("metrics", "last", "--names", "train/loss").out.splitlines()[1]
    assert row.split() == ["train/loss", "5.5", "2.25", "2.25", "5.5", "2.25", "loss", "3", "3"]
    assert server.asked[-1].query["names"] == ["train/loss"]
    rows = list(csv.reader(lockstep("metrics", "last", "-o", "csv").out.splitlines()))
    assert rows[0] == ["name", "attempt", "step", "time", "value"]
    assert rows[2] == ["train/loss", "1", "2", "1002.0", "NaN"]
    assert json.loads(lockstep("metrics", "last", "--json").out) == json.loads(
        found.model_dump_json()
    )
    assert lockstep("metrics", "last", "-o", "name").out == "train/loss\n"


@pytest.mark.parametrize("unit", ["loss", "bytes"])
def test_infinite_values_are_shown_in_the_table_and_the_chart(
    lockstep: CommandLine, server: ReplayServer, unit: str
) -> None:
    found = examples.series("loss", ["Infinity", 2.0, "-Infinity"]).model_copy(
        update={"unit": unit, "kind": "bytes" if unit == "bytes" else "number"}
    )
    server.on("GET", "/v1/jobs/last/metrics", examples.metrics(found))
    said = lockstep("metrics", "last")
    assert said.code == 0
    assert said.out.splitlines()[1].split()[:5] == [
        "loss",
        "Infinity",
        "-Infinity",
        "-Infinity",
        "Infinity",
    ]
    said = lockstep("metrics", "last", "-o", "chart")
    assert said.code == 0
    assert said.out.startswith("loss  -Infinity at step 3")


def test_the_client_answers_with_floats_and_the_command_with_json(
    lockstep: CommandLine, server: ReplayServer
) -> None:
    found = examples.metrics(examples.series("loss", ["NaN", "Infinity", "-Infinity", 1.5]))
    server.on("GET", "/v1/jobs/last/metrics", found)
    server.on(
        "GET",
        "/v1/jobs/last",
        examples.job(JobState.RUNNING, progress=examples.progress(3, "-Infinity")),
    )
    with Client(server.url) as client:
        series = client.metrics("last").series[0]
        job = client.job("last")
    for values in (series.value, series.min, series.max):
        assert [type(value) for value in values] == [float] * 4
        assert math.isnan(values[0])
        assert values[1:] == [math.inf, -math.inf, 1.5]
    assert job.progress is not None
    assert job.progress.latest["train/loss"] == -math.inf
    written = json.loads(lockstep("metrics", "last", "--json").out)["series"][0]["value"]
    assert written == ["NaN", "Infinity", "-Infinity", 1.5]


def test_a_series_that_is_not_there_is_named(lockstep: CommandLine, server: ReplayServer) -> None:
    server.on("GET", "/v1/jobs/last/metrics", examples.metrics())
    said = lockstep("metrics", "last", "--names", "a/b,c/d")
    assert said.out == ""
    assert "no points of a/b, c/d" in said.err


def test_csv_has_the_points_of_a_series_that_needs_several_answers(
    lockstep: CommandLine, server: ReplayServer
) -> None:
    in_buckets = examples.series("loss", [2.0, 4.0]).model_copy(update={"count": 4})
    server.on(
        "GET",
        "/v1/jobs/last/metrics",
        examples.metrics(in_buckets),  # the list of series
        examples.metrics(in_buckets),
        examples.metrics(examples.series("loss", [1.5])),
        examples.metrics(examples.series("loss", [2.5, 3.5])),
    )
    rows = list(csv.reader(lockstep("metrics", "last", "--csv").out.splitlines()))
    assert [row[4] for row in rows] == ["value", "1.5", "2.5", "3.5"]
    steps = [(asked.query["from_step"], asked.query.get("to_step")) for asked in server.asked[1:]]
    assert steps == [(["0"], None), (["0"], ["1"]), (["2"], None)]
    rows = list(
        csv.reader(lockstep("metrics", "last", "--csv", "--max-points", "2").out.splitlines())
    )
    assert server.asked[-1].query["max_points"] == ["2"]
    assert len(rows) == 3


@pytest.mark.parametrize("form", ["csv", "json"])
def test_points_are_written_as_they_come_until_the_job_has_ended(
    lockstep: CommandLine, server: ReplayServer, form: str
) -> None:
    going = examples.job(JobState.RUNNING)
    server.on("GET", "/v1/jobs/last", going)
    server.on("GET", JOB, going, examples.succeeded())
    answers = [
        examples.metrics(examples.series("loss", [1.5, "NaN"])),
        examples.metrics().model_copy(update={"cursor": "BBBB", "complete": False}),
        examples.metrics(examples.series("loss", [2.5])).model_copy(
            update={"cursor": "CCCC", "complete": False}
        ),
    ]
    server.on("GET", f"{JOB}/metrics", *answers)
    said = lockstep("metrics", "last", "-f", "-o", form, "--names", "loss")
    assert (said.code, said.err) == (0, "")
    values: list[object] = (
        [json.loads(line)["value"] for line in said.out.splitlines()]
        if form == "json"
        else [row[4] for row in csv.reader(said.out.splitlines())]
    )
    assert list(map(str, values)) == [*(["value"] if form == "csv" else []), "1.5", "NaN", "2.5"]
    asked = [each.query for each in server.requests("GET", f"{JOB}/metrics")]
    assert [query.get("since") for query in asked] == [None, ["AAAA"], ["BBBB"]]
    assert {(*query["names"], *query["attempts"]) for query in asked} == {("loss", "all")}


def test_a_complete_answer_repeats_no_point_that_was_written(
    lockstep: CommandLine, server: ReplayServer
) -> None:
    """The service was restarted, or a backup restored, between two answers."""
    going = examples.job(JobState.RUNNING)
    server.on("GET", "/v1/jobs/last", going)
    server.on("GET", JOB, going, going, examples.succeeded())
    partly = {"complete": False}
    answers = [
        examples.metrics(examples.series("loss", [1.5, 2.5])),
        examples.metrics(examples.series("loss", [3.5])).model_copy(update=partly),
        examples.metrics(examples.series("loss", [1.5])),
        examples.metrics(
            examples.series("loss", [1.5, 2.5, 3.5, 4.5]), examples.series("acc", [0.5])
        ),
    ]
    server.on("GET", f"{JOB}/metrics", *answers)
    said = lockstep("metrics", "last", "-f")
    values = [row[4] for row in csv.reader(said.out.splitlines())]
    assert (said.code, values[1:]) == (0, ["1.5", "2.5", "3.5", "4.5", "0.5"])


def test_points_that_stand_for_others_are_not_passed_off_as_all(
    lockstep: CommandLine, server: ReplayServer
) -> None:
    server.on("GET", "/v1/jobs/last", examples.succeeded())
    in_buckets = examples.series("loss", [2.0, 4.0]).model_copy(update={"count": 40_000})
    server.on("GET", f"{JOB}/metrics", examples.metrics(in_buckets))
    said = lockstep("metrics", "last", "--follow")
    assert "40000 points of loss are shown as 2; lockstep export writes all of them" in said.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--from-step", "3"], "cannot be combined with --from-step"),
        (
            ["--max-points", "3", "--attempts", "all"],
            "cannot be combined with --max-points or --attempts",
        ),
        (["-o", "chart"], "writes CSV or JSON, not -o chart"),
    ],
)
def test_formats_that_cannot_be_followed_are_refused(
    lockstep: CommandLine, server: ReplayServer, words: list[str], says: str
) -> None:
    said = lockstep("metrics", "last", "-f", *words)
    assert said.code == 2
    assert says in said.err
    assert not server.asked
