"""Run all tests several times beside busy loops, and report each run in one line.

    python tests/under_load.py [--loops 2] [--runs 5] [COMMAND ...]

``make test-under-load`` runs it. The default of ``COMMAND`` is ``make test``. The exit code is 1 if
a run failed. The output of such a run is kept in a file, which its line names.

Not here: the speed of the tests. The seconds of a run are printed and compared with nothing.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NoReturn

ROOT: Final = Path(__file__).parent.parent
BUSY: Final = """
import os, sys
while os.getppid() == int(sys.argv[1]):
    for _turn in range(1_000_000):
        pass
"""
"""A loop ends by itself after the death of this program."""
END_SECONDS: Final = 30.0
"""Time that an interrupted command gets to clean up."""
FAILED: Final = re.compile(
    r"^(?:FAILED|ERROR) ([^\s\[]+(?:\[.*?\])?)(?: - .*)?$|^\s*FAIL\s+(.+?)\s*$", re.MULTILINE
)
"""A failed test in the summary of pytest, or of vitest."""
COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")


def failed_tests(output: str) -> list[str]:
    """Return the names of failed tests in the output of a run, each once, in their order."""
    found = (python or page for python, page in FAILED.findall(COLOUR.sub("", output)))
    return list(dict.fromkeys(found))


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Keep ``count`` processes busy, each with a loop that takes all available time of one core."""
    loops: list[subprocess.Popen[bytes]] = []
    try:
        for _loop in range(count):
            loops.append(subprocess.Popen([sys.executable, "-c", BUSY, str(os.getpid())]))  # noqa: PERF401 -- each is ended even if the next does not start
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def run_once(command: Sequence[str], log: Path) -> int:
    """Run ``command`` in a process group of its own, with its output in ``log``; return its exit
    code."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        return process.wait()
    except BaseException:
        os.killpg(process.pid, signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise


def repeat(command: Sequence[str], *, runs: int, loops: int, logs: Path) -> bool:
    """Run ``command`` ``runs`` times beside ``loops`` busy loops; return True if all passed."""
    passed = 0
    with busy_loops(loops):
        for number in range(1, runs + 1):
            log = logs / f"run-{number}.log"
            began = time.monotonic()
            code = run_once(command, log)
            seconds = time.monotonic() - began
            if code == 0:
                passed += 1
                log.unlink()
                say(f"run {number} of {runs}: passed in {seconds:.0f} s")
            else:
                names = (
                    ", ".join(failed_tests(log.read_text(errors="replace")))
                    or "no failed test is named"
                )
                say(
                    f"run {number} of {runs}: FAILED with exit code {code} in {seconds:.0f} s: "
                    f"{names} (output: {log})"
                )
    say(f"{passed} of {runs} runs passed beside {loops} busy loops")
    return passed == runs


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and run; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--loops", type=int, default=2, help="busy loops beside the tests (default: %(default)s)"
    )
    parser.add_argument(
        "--runs", type=int, default=5, help="runs of all tests (default: %(default)s)"
    )
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, help="what to run (default: make test)"
    )
    chosen = parser.parse_args(arguments)

    def interrupt(number: int, _frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    logs = Path(tempfile.mkdtemp(prefix="lockstep-under-load-"))
    good = repeat(
        chosen.command or ["make", "test"], runs=chosen.runs, loops=chosen.loops, logs=logs
    )
    with suppress(OSError):
        logs.rmdir()  # holds only the output of runs that failed
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
