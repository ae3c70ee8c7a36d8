"""``lockstep up`` with stand-in programs: ``python standin.py HOME PORT NAME[:BEHAVIOUR]…``.

Runs the real ``client.local.up.run`` with another table of programs. A stand-in records in
``HOME/diary`` its start and, after a signal to end, that it ends or continues. Behaviours:
``stubborn`` ignores SIGTERM, ``family`` leaves a child behind, ``broken`` ends at once with exit
code 3, ``refusing`` with the one of refused settings.

Not here: the assertions (``test_client_up.py``).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

SELF = str(Path(__file__).resolve())
STOP_SECONDS = float(os.environ.get("STANDIN_STOP_SECONDS", "60"))


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def note(home: Path, words: str) -> None:
    # One write of one short line with O_APPEND, because several programs write here.
    with (home / "diary").open("a") as diary:
        diary.write(words + "\n")


def program(home: Path, name: str, behaviour: str) -> None:
    def end(*_: object) -> None:
        if behaviour == "stubborn":
            note(home, f"{name} stays")
            return
        note(home, f"{name} ends")
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    if behaviour == "family":
        child = subprocess.Popen(["sleep", "600"])
        note(home, f"{name}-child {child.pid}")
    note(home, f"{name} {os.getpid()} {os.environ.get('LOCKSTEP_STOP_JOBS_ON_EXIT', '-')}")
    if behaviour == "broken":
        say("cannot work like this")
        os._exit(3)
    if behaviour == "refusing":
        say("agent: LOCKSTEP_NODE_NAME: 'A' is no name")
        os._exit(78)
    while True:
        time.sleep(60)


def up(folder: Path, port: int, table: list[str]) -> int:
    from lockstep.client.errors import ClientError
    from lockstep.client.local.home import Home
    from lockstep.client.local.settings import Service
    from lockstep.client.local.supervisor import Program
    from lockstep.client.local.up import run

    home = Home(folder)
    named = [word.partition(":") for word in table]
    programs = tuple(
        Program(
            name,
            (sys.executable, SELF, "program", str(folder), name, behaviour),
            stop_seconds=STOP_SECONDS,
            environment={"LOCKSTEP_STOP_JOBS_ON_EXIT": "on"} if name == "worker" else {},
        )
        for name, _, behaviour in named
    )
    service = Service(
        url=f"http://127.0.0.1:{port}",
        host="127.0.0.1",
        port=port,
        token_file=str(home.token_file),
        environment=dict(os.environ),
        programs=programs,
        migrate=Program("migrate", ("true",), stop_seconds=STOP_SECONDS),
    )
    wanted = {name for name, _, behaviour in named if behaviour != "broken"}

    def ready() -> bool:
        diary = (folder / "diary").read_text() if (folder / "diary").exists() else ""
        return wanted <= {line.split()[0] for line in diary.splitlines()} and len(wanted) == len(
            named
        )

    try:
        return run(home, service, tell=say, ready=ready, has_node=lambda: True)
    except ClientError as error:
        say(f"refused: {error.message} / {error.next_step}")
        return error.exit_code


if __name__ == "__main__":
    if sys.argv[1] == "program":
        program(Path(sys.argv[2]), sys.argv[3], sys.argv[4])
    else:
        sys.exit(up(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
