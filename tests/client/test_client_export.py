"""``lockstep export``: every point in files of the real formats, also from buckets."""

from __future__ import annotations

import csv
import json
import math
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from lockstep.client.files.export import every_point
from lockstep.domain.series_views import MetricsView, SeriesView
from tests.client import examples
from tests.client.server import ReplayServer
from tests.client.terminal import CommandLine
from tests.harness.builders import tensorboard

RUN = f"tiny-{examples.ID[-8:]}"


class Bucketing:
    """Return a client whose server has these points and answers in buckets above ``limit``."""

    def __init__(self, steps: list[int], limit: int):
        self.steps, self.limit = steps, limit
        self.requests = 0

    def metrics(
        self,
        _reference: str,
        *,
        names: list[str],
        from_step: int,
        to_step: int | None,
        max_points: int,
        attempts: str | None,
    ) -> MetricsView:
        assert self.limit <= max_points
        assert attempts == "visible"
        self.requests += 1
        inside = [
            step
            for step in self.steps
            if from_step <= step and (to_step is None or step <= to_step)
        ]
        size = max(1, math.ceil(len(inside) / self.limit))
        ends = [inside[min(start + size, len(inside)) - 1] for start in range(0, len(inside), size)]
        if not ends:
            return examples.metrics()
        values = [float(step) for step in ends]
        series = SeriesView(
            name=names[0], unit="", attempt=1, count=len(inside), step=ends, time=values, value=values, min=values, max=values
        )  # fmt: skip
        return examples.metrics(series)


@pytest.mark.parametrize(
    "steps", [[], [0], list(range(1, 1001)), [2**40 + n for n in range(300)], [0, 5, 5, 5, 10**9]]
)
def test_every_point_is_fetched_once_and_in_order(steps: list[int]) -> None:
    client = Bucketing(steps, 7)
    assert [point.step for point in every_point(client, "job", "loss")] == steps  # type: ignore[arg-type]  # the used part of a client
    assert client.requests <= 4 * len(steps) / 7 + 100


def test_too_many_points_of_one_step_are_cut_and_the_export_ends() -> None:
    client = Bucketing([4] * 50 + [9], 7)
    found = [point.step for point in every_point(client, "job", "system/node0/x")]  # type: ignore[arg-type]  # see above
    assert set(found) == {4, 9}


def _serve(server: ReplayServer) -> None:
    server.on("GET", "/v1/jobs/last", examples.succeeded())
    one = examples.metrics(examples.series("train/loss", [5.5, "NaN", 2.25]))
    server.on("GET", f"/v1/jobs/{examples.ID}/metrics", one)


def test_tensorboard_reads_the_export_and_a_second_one_replaces_it(
    lockstep: CommandLine, server: ReplayServer, tmp_path: Path
) -> None:
    _serve(server)
    for _ in range(2):
        said = lockstep("export", "last", "--to", "tensorboard", "runs")
        assert said.code == 0, said.err
        assert "3 points of 1 series" in said.err
    (path,) = (tmp_path / "runs" / RUN).iterdir()
    assert said.out.strip() == str(path.relative_to(tmp_path))
    head, *events = tensorboard().Loader(str(path)).Load()
    assert head.file_version == "brain.Event:2"
    read = [
        (event.step, event.wall_time, value.tag, value.simple_value)
        for event in events
        for value in event.summary.value
    ]
    assert repr(read) == repr(
        [
            (1, 1001.0, "train/loss", 5.5),
            (2, 1002.0, "train/loss", math.nan),
            (3, 1003.0, "train/loss", 2.25),
        ]
    )


def test_csv_has_a_line_for_each_point(
    lockstep: CommandLine, server: ReplayServer, tmp_path: Path
) -> None:
    _serve(server)
    assert lockstep("export", "last", "--to", "csv", "out.csv", "--names", "train/loss").code == 0
    rows = list(csv.reader((tmp_path / "out.csv").read_text().splitlines()))
    assert rows[0] == ["name", "attempt", "step", "time", "value"]
    assert rows[2] == ["train/loss", "1", "2", "1002.0", "NaN"]
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".part")] == []


def test_each_point_has_the_attempt_that_wrote_it(
    lockstep: CommandLine, server: ReplayServer, tmp_path: Path
) -> None:
    _serve(server)
    later = examples.series("train/loss", [3.0], attempt=2).model_copy(update={"step": [3]})
    visible = examples.metrics(examples.series("train/loss", [5.5, 4.5]), later)
    server.on("GET", f"/v1/jobs/{examples.ID}/metrics", visible)
    assert lockstep("export", "last", "--to", "csv", "out.csv").code == 0
    _, *rows = csv.reader((tmp_path / "out.csv").read_text().splitlines())
    assert [row[1:3] for row in rows] == [["1", "1"], ["1", "2"], ["2", "3"]]
    assert server.asked[-1].query["attempts"] == ["visible"]


def test_missing_jobs_and_unwritable_folders_are_reported(
    lockstep: CommandLine, server: ReplayServer, tmp_path: Path
) -> None:
    _serve(server)
    said = lockstep("export", "last", "--to", "csv", "out.csv", "--names", "train/los")
    assert (said.code, "no points of train/los" in said.err) == (1, True)
    (tmp_path / "file").write_text("")
    said = lockstep("export", "last", "--to", "tensorboard", "file/runs")
    assert (said.code, "cannot be written" in said.err) == (1, True)


def test_parquet_holds_every_point_in_typed_columns(
    lockstep: CommandLine, server: ReplayServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="NOT RUN: pyarrow is not installed")
    monkeypatch.setattr(
        "lockstep.client.files.export.PARQUET_ROWS", 2
    )  # so that three points are two groups
    _serve(server)
    said = lockstep("export", "last", "--to", "parquet", str(tmp_path / "out.parquet"))
    assert (said.code, said.out) == (0, f"{tmp_path}/out.parquet\n")
    lockstep("export", "last", "--to", "csv", str(tmp_path / "out.csv"))
    with (tmp_path / "out.csv").open(newline="") as file:
        expected = [
            (
                row["name"],
                int(row["attempt"]),
                int(row["step"]),
                float(row["time"]),
                repr(float(row["value"])),
            )
            for row in csv.DictReader(file)
        ]
    table = parquet.read_table(tmp_path / "out.parquet")
    assert [str(field.type) for field in table.schema] == [
        "string",
        "int32",
        "int64",
        "double",
        "double",
    ]
    rows = table.to_pylist()
    assert [
        (row["name"], row["attempt"], row["step"], row["time"], repr(row["value"])) for row in rows
    ] == expected
    assert len(expected) == 3
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("missing", "to", "target"),
    [
        ("mlflow.exceptions", "mlflow", "http://127.0.0.1:1"),
        ("pyarrow", "parquet", "out.parquet"),
    ],
)
def test_without_a_library_the_way_to_it_is_named(
    lockstep: CommandLine,
    server: ReplayServer,
    monkeypatch: pytest.MonkeyPatch,
    missing: str,
    to: str,
    target: str,
) -> None:
    _serve(server)
    monkeypatch.setitem(sys.modules, missing, None)
    said = lockstep("export", "last", "--to", to, target)
    assert (said.code, f"pip install 'lockstep-jobs[{to}]'" in said.err) == (1, True)


READ_BACK = """
import json, os, sys
from lockstep.cli.app import run
from mlflow.tracking import MlflowClient

for _ in range(2):
    assert run(["export", "last", "--to", "mlflow", sys.argv[1]]) == 0
client = MlflowClient(tracking_uri=sys.argv[1])
(found,) = client.search_runs([client.get_experiment_by_name("default").experiment_id])
history = client.get_metric_history(found.info.run_id, "train/loss")
points = [(point.step, repr(point.value), point.timestamp) for point in history]
print(json.dumps([found.info.status, found.data.tags["lockstep.job_id"], found.data.params["train.batch.size"], points]))
"""


def test_mlflow_reads_the_export_and_a_second_one_replaces_it(
    server: ReplayServer, tmp_path: Path
) -> None:
    # In a process of its own: MLflow's imports warn, and it continues in threads.
    if find_spec("mlflow") is None:
        pytest.skip("NOT RUN: mlflow is not installed")
    _serve(server)
    done = subprocess.run(
        [sys.executable, "-c", READ_BACK, f"file://{tmp_path}/mlruns"],
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "LOCKSTEP_URL": server.url,
            "LOCKSTEP_HOME": str(tmp_path / "home"),
            "MLFLOW_ALLOW_FILE_STORE": "true",
            "MLFLOW_DISABLE_TELEMETRY": "true",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    points = [[1, "5.5", 1001000], [2, "nan", 1002000], [3, "2.25", 1003000]]
    assert json.loads(done.stdout.splitlines()[-1]) == ["FINISHED", examples.ID, "64", points]
