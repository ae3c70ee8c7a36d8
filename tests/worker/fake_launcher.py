"""Fake of ``python -m lockstep.engine.launcher FOLDER`` that obeys the folder's contract.

It runs no ranks. The job determines its actions: the first word of a script's command is Python
source, which runs with the functions below. So each test defines in its job the behaviour of the
launcher, the ranks and their children, without torch and within milliseconds.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

folder = Path(sys.argv[1])


def _write(name: str, document: object) -> None:
    temporary = folder / f".{Path(name).name}.tmp"
    temporary.write_text(json.dumps(document))
    temporary.replace(folder / name)


def ranks() -> None:
    """Report that all ranks were started."""
    _write("ranks.json", {"ranks": [{"rank": 0, "pid": os.getpid()}]})


def log(text: str, segment: int = 0, rank: int = 0) -> None:
    record = {"time": time.time(), "rank": rank, "stream": "stdout", "text": text}
    with (folder / f"logs/{segment:06d}.jsonl").open("a") as file:
        file.write(json.dumps(record) + "\n")


def metric(line: object) -> None:
    """Write one spool line: an object, or unchanged text."""
    with (folder / "spool/metrics.jsonl").open("a") as file:
        file.write((line if isinstance(line, str) else json.dumps(line)) + "\n")


def event(kind: str, **data: object) -> None:
    with (folder / "spool/events.jsonl").open("a") as file:
        file.write(json.dumps({"kind": kind, "time": time.time(), "data": data}) + "\n")


def checkpoint(step: int, final: bool = False) -> None:
    target = folder / f"checkpoints/step-{step:08d}"
    target.mkdir(parents=True)
    (target / "weights").write_text(f"weights of {step}")
    content = (target / "weights").read_bytes()
    file = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (target / "manifest.json").write_text(
        json.dumps({"format": 1, "step": step, "files": {"weights": file}})
    )
    digest = hashlib.sha256((target / "manifest.json").read_bytes()).hexdigest()
    event("checkpoint", step=step, folder=target.name, bytes=10, sha256=digest, final=final)


def finish(reason: str = "succeeded", message: str = "") -> None:
    _write(
        "result.json",
        {"outcome": {"reason": reason, "message": message or reason}, "ended_at": time.time()},
    )
    os._exit(0)


def asked_to_stop() -> dict | None:
    return json.loads((folder / "stop").read_text()) if (folder / "stop").exists() else None


def fenced() -> bool:
    deadline = json.loads((folder / "fence").read_text())["deadline_boottime"]
    return time.clock_gettime(time.CLOCK_BOOTTIME) > deadline


def until_told(each=lambda turn: None) -> None:
    """Run until a stop or the fence, and call ``each`` with an increasing number."""
    turn = 0
    while True:
        if stop := asked_to_stop():
            finish(stop["reason"], "stopped on request")
        if fenced():
            finish("cut_off", "fenced")
        each(turn)
        turn += 1
        time.sleep(0.01)


def stubborn_child() -> int:
    """Start a process in a session of its own that ignores SIGTERM."""
    source = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); "
        "time.sleep(600)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", source], stdout=subprocess.PIPE, start_new_session=True
    )
    child.stdout.readline()
    (folder / "child").write_text(str(child.pid))
    return child.pid


def main() -> None:
    stat = Path("/proc/self/stat").read_text()
    _write(
        "launcher.json",
        {
            "pid": os.getpid(),
            "start_ticks": int(stat.rpartition(")")[2].split()[19]),
            "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        },
    )
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    assignment = json.loads((folder / "assignment.json").read_text())
    assert (folder / "fence").exists(), "the first fence is written before the launcher is started"
    exec(assignment["spec"]["script"]["command"][0], globals())


if __name__ == "__main__":
    main()
