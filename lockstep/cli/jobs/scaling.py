"""``scaling``: the same batch on several numbers of devices, and its bottleneck.

Submits one short job after the other, reads the parts of their steps' time, and prints a table and
a sentence.

Not here: efficiency and advice (``domain.training.scaling``).
"""

from __future__ import annotations

import copy
import sys
from typing import TYPE_CHECKING, Any, Final

from lockstep.cli.common import Code, Connection, File, Flag, Output, Settings, say
from lockstep.cli.text import output as out
from lockstep.client import short_jobs
from lockstep.client.errors import ExitCode, UsageError
from lockstep.domain.training import short_run

if TYPE_CHECKING:
    from lockstep.client.api import Client
    from lockstep.client.files.specfile import SpecFile
    from lockstep.domain.series_views import MetricsView
    from lockstep.domain.spec.strategy import Strategy
    from lockstep.domain.training.scaling import Row, ScalingRun

WARM_UP_STEPS: Final = 5
"""Left out of the medians: the first steps fill caches."""
BUCKETS_MB: Final = (1.0, 10.0, 25.0, 50.0)
_PARTS: Final = ("data", "forward", "backward", "communication", "optimizer", "other")


def scaling(
    file: File,
    /,
    *,
    gpus: str = "1,2",
    steps: int = 30,
    buckets: Flag = False,
    code: Code = None,
    settings: Settings = None,
    wait_seconds: float = 1800.0,
    output: Output = Output(),
    connection: Connection = Connection(),
) -> ExitCode:
    """Run a job's batch on several numbers of devices, and report how well it scales and why.

    Each run is a short job with the same batch, one after the other. If one fails, the earlier ones
    are shown.

    Parameters
    ----------
    file
        The job spec, as YAML or JSON; - reads it from stdin.
    gpus
        Numbers of devices, separated by commas.
    steps
        Optimizer steps to measure in each run, after 5 for warm-up.
    buckets
        On the largest number, also try gradient buckets of 1, 10, 25 and 50 MB.
    code
        Folder with the job's code.
    settings
        Change one value of the spec: --set train.loader.workers=2. May be given several times.
    wait_seconds
        Time limit of one run, including its time in the queue, after which it is cancelled.
    """
    from lockstep.cli.jobs.submit import prepared, send, tell_left_out

    numbers = _numbers(gpus)
    form = output.format
    with prepared(file, code, settings, connection) as (client, spec, archive):
        train = spec.check().train
        if train is None:
            raise UsageError(
                "scaling needs a job of kind: train; the engine does not control the loop of a "
                "script"
            )
        if buckets:
            _require_buckets(spec)
        if archive is not None:
            send(client, archive, say)
            tell_left_out(archive, say, verbose=False)
        runs: list[ScalingRun] = []
        swept: list[ScalingRun] = []
        try:
            for number in numbers:
                run = _run(
                    client, spec.document, number, None, steps=steps, wait_seconds=wait_seconds
                )
                runs.append(run)
            if buckets:
                swept.append(runs[-1])
                # torch's default once more, last: two equal runs show the error of the measurement.
                for size in (*BUCKETS_MB, None):
                    run = _run(
                        client,
                        spec.document,
                        numbers[-1],
                        size,
                        steps=steps,
                        wait_seconds=wait_seconds,
                    )
                    swept.append(run)
        finally:
            # Before the error of a run that was refused, failed or took too long: those before it
            # took minutes.
            if runs:
                _print(form, runs, swept, train.strategy)
    return ExitCode.OK


def _numbers(text: str) -> list[int]:
    try:
        numbers = [int(word) for word in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1 or len(set(numbers)) < len(numbers):
        raise UsageError(f"--gpus: expected numbers of devices such as 1,2,4, got {text!r}")
    return sorted(numbers)


def _require_buckets(spec: SpecFile) -> None:
    """Refuse a sweep that the spec would refuse, before the first run."""
    swept = copy.deepcopy(spec)
    swept.put(["train", "strategy", "bucket_cap_mb"], BUCKETS_MB[0], "--buckets")
    swept.check()


def short_document(
    document: dict[str, Any], gpus: int, bucket_cap_mb: float | None, steps: int
) -> dict[str, Any]:
    """The spec of one run.

    The same batch on ``gpus`` devices, for a few steps, with nothing beside the steps.
    """
    short = short_run.short_document(
        document, purpose="scaling", suffix=f"on-{gpus}", gpus=gpus, steps=WARM_UP_STEPS + steps
    )
    strategy = short["train"].setdefault("strategy", {})
    if strategy.get("compression") == "powersgd":
        strategy["powersgd_start_step"] = (
            0  # Every measured step is compressed, as nearly all of a long run are.
        )
    if bucket_cap_mb is not None:
        strategy["bucket_cap_mb"] = bucket_cap_mb
    return short


def _run(
    client: Client,
    document: dict[str, Any],
    gpus: int,
    bucket_cap_mb: float | None,
    *,
    steps: int,
    wait_seconds: float,
) -> ScalingRun:
    from lockstep.domain.training import scaling as analysis

    job = client.submit(short_document(document, gpus, bucket_cap_mb, steps))
    what = f"{gpus} device{'s' if gpus > 1 else ''}"
    say(
        f"{what}{f', buckets of {bucket_cap_mb:g} MB' if bucket_cap_mb else ''}: {job.name} "
        f"({job.id})"
    )
    ended = short_jobs.ended(client, job, wait_seconds)
    if ended.state != "succeeded":
        raise short_jobs.failure(ended, f"on {what}", next_step=f"lockstep logs {job.id}")
    names = [f"time/{part}_seconds" for part in _PARTS]
    found = client.metrics(job.id, names=names, from_step=WARM_UP_STEPS + 1)
    return analysis.measured(
        gpus,
        _steps(found),
        batch_size=document["train"]["batch"]["size"],
        bucket_cap_mb=bucket_cap_mb,
    )


def _steps(found: MetricsView) -> list[dict[str, float]]:
    """Seconds by part of each step."""
    steps: dict[int, dict[str, float]] = {}
    for series in found.series:
        part = series.name.removeprefix("time/").removesuffix("_seconds")
        for step, value in zip(series.step, series.value, strict=True):
            steps.setdefault(int(step), {})[part] = float(value)
    return [steps[step] for step in sorted(steps)]


def _print(form: str, runs: list[ScalingRun], swept: list[ScalingRun], strategy: Strategy) -> None:
    """All that was found; of half a sweep no best size."""
    from lockstep.domain.training import scaling as analysis

    rows = analysis.compared(runs)
    sentence = analysis.advice(rows, strategy, swept=bool(swept))
    if form == "json":
        _print_json(rows, swept, sentence)
    else:
        _print_rows(rows)
        print(sentence)
        if swept[1:]:
            _print_buckets(swept)
        if len(swept) > len(BUCKETS_MB) + 1:  # with the repeated run
            print(analysis.best_bucket(swept))
    sys.stdout.flush()


def _print_rows(rows: list[Row]) -> None:
    columns = (
        "gpus",
        "step",
        "samples/s",
        "speedup",
        "efficiency",
        "data",
        "communication",
        "optimizer",
    )
    out.print_table(
        columns,
        [
            (
                str(row.measured.world_size),
                f"{row.measured.step_seconds * 1000:.1f} ms",
                f"{row.measured.samples_per_second:,.0f}",
                f"{row.speedup:.2f}x",
                f"{row.efficiency:.0%}",
                *(
                    f"{row.measured.share(part):.0%}"
                    for part in ("data", "communication", "optimizer")
                ),
            )
            for row in rows
        ],
        right=columns,
    )


def _print_buckets(runs: list[ScalingRun]) -> None:
    columns = ("buckets", "step", "communication")
    out.print_table(
        columns,
        [
            (
                "torch's own" if run.bucket_cap_mb is None else f"{run.bucket_cap_mb:g} MB",
                f"{run.step_seconds * 1000:.1f} ms",
                f"{run.share('communication'):.0%}",
            )
            for run in runs
        ],
        right=columns,
    )


def _print_json(rows: list[Row], swept: list[ScalingRun], sentence: str) -> None:
    import json

    document = {
        "runs": [
            {**row.measured._asdict(), "speedup": row.speedup, "efficiency": row.efficiency}
            for row in rows
        ],
        "buckets": [run._asdict() for run in swept],
        "advice": sentence,
    }
    print(json.dumps(document, indent=2))
