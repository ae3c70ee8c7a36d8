"""A script that writes nothing while its devices are idle is reported once, with its stacks, and
continues."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from lockstep.domain.life import attempt as files
from lockstep.domain.life.outcomes import Reason
from lockstep.domain.training import metrics
from lockstep.engine.launcher.stall.device_use import DeviceUse
from lockstep.engine.launcher.stall.silence import SilenceDetector, SilenceEvent
from tests.harness.attempts import Attempt, script_spec
from tests.harness.processes import until

GONE = 2**22 + 1
"""A pid without a process."""


class Script:
    """Script under a detector with a limit of 600 s, whose output and devices a test sets."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.written = 0
        self.busy = False
        self.now = 0.0
        self.detector = SilenceDetector(
            folder,
            600.0,
            node="node-a",
            output_bytes=lambda: self.written,
            is_busy=lambda: self.busy,
            poll_seconds=1.0,
        )

    def pass_seconds(self, seconds: int, each: float = 1.0) -> list[SilenceEvent]:
        reported = []
        for _ in range(seconds):
            self.now += each
            reported.append(self.detector.poll({0: GONE, 1: GONE}, self.now))
            asking = self.detector._asking
            if asking is not None:
                asking.join()
        return [event for event in reported if event is not None]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)


def test_a_silence_is_reported_once_and_its_end_too(script: Script) -> None:
    assert script.pass_seconds(600) == []
    (event,) = script.pass_seconds(3600)
    assert event.kind == "silent"
    assert event.data["message"] == (
        "No output and no metric for 10 minutes, and the devices are idle: rank 0 has no stacks, "
        "because it runs no Python with Lockstep's handler; rank 1 has no stacks, because it runs "
        "no Python with Lockstep's handler."
    )
    assert (event.data["node"], event.data["ranks"]) == ("node-a", [0, 1])
    script.written += 1
    (event,) = script.pass_seconds(10)
    assert event.kind == "output_again"
    assert event.data["message"] == "The script writes again after 70 minutes of silence."


def test_after_a_silence_that_ended_by_itself_the_limit_doubles(script: Script) -> None:
    script.pass_seconds(700)
    script.written += 1
    assert [event.kind for event in script.pass_seconds(1200)] == ["output_again"]
    assert [event.kind for event in script.pass_seconds(60)] == ["silent"]


def test_busy_devices_end_a_silence(script: Script) -> None:
    script.busy = True
    assert script.pass_seconds(2000) == []
    script.busy = False
    assert [event.kind for event in script.pass_seconds(700)] == ["silent"]
    script.busy = True
    (event,) = script.pass_seconds(60)
    assert event.data["message"].startswith("The script's devices are in use again, without output")


@pytest.mark.parametrize("name", [files.METRICS, f"{files.TENSORBOARD}/run/events.out.tfevents.1"])
def test_a_script_that_writes_metrics_alone_is_not_silent(script: Script, name: str) -> None:
    path = script.folder / name
    path.parent.mkdir(parents=True)
    for _ in range(4):
        with path.open("a") as file:
            file.write("{}\n")
        assert script.pass_seconds(500) == []


def test_a_machine_that_slept_does_not_make_a_script_silent(script: Script) -> None:
    assert script.pass_seconds(10, each=3600.0) == []


def test_gpus_count_as_idle_by_the_samples_of_the_agent(tmp_path: Path) -> None:
    spool = tmp_path / files.SYSTEM
    spool.parent.mkdir()
    use = DeviceUse(tmp_path, device_kind="cuda")

    def sample(percent: float, age_seconds: float) -> None:
        values = {"system/rank0/gpu_utilization_percent": percent, "system/rank0/rss_bytes": 9.0}
        record = metrics.StepValues(1, time.time() - age_seconds, values)
        with spool.open("a") as file:
            file.write(metrics.encode(record) + "\n")

    sample(95.0, 300)
    sample(0.0, 5)
    assert not use.is_busy()
    sample(40.0, 1)
    assert use.is_busy()


def _silent(attempt: Attempt, kind: str = "silent") -> dict[str, Any]:
    """Return the first event of a kind, once it is in the spool."""

    def found() -> list[dict[str, Any]]:
        path = attempt.folder / files.EVENTS
        lines = path.read_text().splitlines() if path.exists() else []
        return [each["data"] for each in map(json.loads, lines) if each["kind"] == kind]

    return until(found, seconds=60, what=f"an event {kind}")[0]


def _start(attempt: Attempt, source: str, ranks: int = 1, seconds: float | None = 1.0) -> Attempt:
    attempt.script(source)
    spec = script_spec(("train.py",), ranks=ranks, env=None)
    spec["script"]["silence_seconds"] = seconds
    return attempt.assign(spec, ranks=ranks).start()


WAITS = """
import pathlib, time

def wait_for(name):
    while not pathlib.Path(name).exists():
        time.sleep(0.2)

print("started")
wait_for("data")
print("read")
wait_for("end")
"""


def test_a_waiting_script_is_reported_with_stacks_and_continues(
    attempt: Attempt,
) -> None:
    _start(attempt, WAITS, ranks=2)
    reported = _silent(attempt)
    assert reported["ranks"] == [0, 1]
    assert "rank 0 is at train.py line 6 in wait_for; rank 1 is at train.py" in reported["message"]
    assert reported["message"].endswith(" The log has the stacks.")
    assert "main thread, innermost frame first:\n    File " in reported["stacks"]
    assert any("in wait_for" in line for line in attempt.lines(1, "launcher"))
    (attempt.folder / "code" / "data").touch()
    assert "The script writes again after" in _silent(attempt, "output_again")["message"]
    (attempt.folder / "code" / "end").touch()
    assert attempt.outcome().reason is Reason.SUCCEEDED


def test_a_stopped_script_is_reported_as_stopped(attempt: Attempt) -> None:
    _start(attempt, WAITS)
    attempt.saw("started")
    os.kill(attempt.ranks()[0], signal.SIGSTOP)
    assert "the process of rank 0 was stopped by a signal" in _silent(attempt)["message"]
    os.kill(attempt.ranks()[0], signal.SIGCONT)


@pytest.mark.parametrize(
    "source",
    [
        "import time\nfor n in range(40):\n    print(n, end='\\r', flush=True)\n    time.sleep(0.1)",
        "import os, time\nfor n in range(40):\n    time.sleep(0.1)\n    os.environ['RANK'] == '1' and"
        " print(n)",
        "import time\nend = time.time() + 4\nwhile time.time() < end: pass",
    ],
    ids=["a bar", "rank 1 alone", "a busy processor"],
)
def test_a_script_that_shows_any_life_is_not_silent(attempt: Attempt, source: str) -> None:
    _start(attempt, source, ranks=2)
    assert attempt.outcome().reason is Reason.SUCCEEDED
    assert not (attempt.folder / files.EVENTS).exists()


def test_stacks_are_not_written_into_a_reused_descriptor(
    attempt: Attempt,
) -> None:
    """As after a daemon has closed its descriptors. This script also ends while it is silent."""
    source = "import os, time\nos.closerange(3, 99)\nopened = open('state', 'w')\ntime.sleep(5)"
    _start(attempt, source)
    assert attempt.outcome().reason is Reason.SUCCEEDED
    assert "rank 0 has no stacks" in _silent(attempt)["message"]
    assert (attempt.folder / "code" / "state").read_text() == ""
    assert '"output_again"' not in (attempt.folder / files.EVENTS).read_text()


def test_without_a_limit_nothing_is_reported(attempt: Attempt) -> None:
    _start(attempt, "import time\ntime.sleep(4)", seconds=None)
    assert attempt.outcome().reason is Reason.SUCCEEDED
    assert not (attempt.folder / files.EVENTS).exists()


def test_stacks_of_python_behind_a_shell_are_reported(
    attempt: Attempt,
) -> None:
    attempt.script(WAITS)
    spec = script_spec(("bash", "-c", "python3 train.py; sleep 600"), ranks=1, env=None)
    spec["script"]["silence_seconds"] = 1.0
    attempt.assign(spec, ranks=1).start()
    reported = _silent(attempt)
    assert "rank 0 is at train.py line 6 in wait_for" in reported["message"]
    for name in ("data", "end"):
        (attempt.folder / "code" / name).touch()
    until(
        lambda: (attempt.folder / files.EVENTS).read_text().count('"silent"') == 2,
        seconds=60,
        what="sleep",
    )
    last = json.loads((attempt.folder / files.EVENTS).read_text().splitlines()[-1])["data"]
    assert last["message"].endswith(
        "rank 0 has no stacks, because it runs no Python with Lockstep's handler."
    )
    assert "no response" in last["stacks"]
