"""The script that runs all tests beside busy loops, with commands that take no time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from tests import under_load
from tests.harness.processes import until

SCRIPT = Path(under_load.__file__)
SUMMARY = """
\x1b[31mFAILED\x1b[0m tests/a/test_b.py::test_c[x - y] - AssertionError: 1 - 2
FAILED tests/a/test_b.py::test_d
ERROR tests/a/test_e.py - ImportError
 FAIL  src/charts/scale.test.ts > ticks > are round
 FAIL  src/charts/scale.test.ts > ticks > are round
1 failed, 3 passed
"""
LOOPS = """
import os, psutil
script = psutil.Process(os.getppid())
print(*(child.pid for child in script.children() if child.pid != os.getpid()), file=open("{}", "w"))
"""


def run(*arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def test_failed_tests_of_pytest_and_vitest_are_named_once() -> None:
    assert under_load.failed_tests(SUMMARY) == [
        "tests/a/test_b.py::test_c[x - y]",
        "tests/a/test_b.py::test_d",
        "tests/a/test_e.py",
        "src/charts/scale.test.ts > ticks > are round",
    ]


def test_loops_run_beside_the_command_and_end_with_it(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    done = run("--loops", "2", "--runs", "1", sys.executable, "-c", LOOPS.format(pids))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0].startswith("run 1 of 1: passed in ")
    assert done.stdout.splitlines()[1:] == ["1 of 1 runs passed beside 2 busy loops"]
    loops = [int(pid) for pid in pids.read_text().split()]
    assert len(loops) == 2
    assert not any(map(psutil.pid_exists, loops))


def test_a_run_that_fails_is_named_and_the_others_are_made(tmp_path: Path) -> None:
    second = tmp_path / "second"
    shell = (
        f"if [ -e {second} ]; then echo 'FAILED tests/t.py::test_x - no'; exit 3; fi; touch "
        f"{second}"
    )
    done = run("--loops", "0", "--runs", "3", "sh", "-c", shell)
    first, *failed, last = done.stdout.splitlines()
    assert done.returncode == 1
    assert first.startswith("run 1 of 3: passed in ")
    assert len(failed) == 2
    for line in failed:
        assert "FAILED with exit code 3" in line
        assert "tests/t.py::test_x" in line
        log = Path(line.partition("(output: ")[2].rstrip(")"))
        assert log.read_text() == "FAILED tests/t.py::test_x - no\n"
        log.unlink()
    log.parent.rmdir()
    assert last == "1 of 3 runs passed beside 0 busy loops"


def test_an_interrupted_run_leaves_no_process(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    shell = f"touch {ready}; sleep 600"
    with subprocess.Popen(
        [sys.executable, str(SCRIPT), "--loops", "1", "sh", "-c", shell],
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as script:
        try:
            until(ready.exists, 60, "the command")
            started = psutil.Process(script.pid).children(recursive=True)
            assert len(started) >= 2
            script.send_signal(signal.SIGTERM)
            assert script.wait(60) == 128 + signal.SIGTERM
        finally:
            script.kill()
    assert psutil.wait_procs(started, timeout=60)[1] == []
