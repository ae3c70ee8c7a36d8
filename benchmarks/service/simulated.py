"""A service whose jobs have no ranks.

Everything is real except the launcher, which reports a run and ends.

    python -m benchmarks.service.simulated up              lockstep up, with the agent below
    python -m benchmarks.service.simulated agent           the node agent, which starts simulated launchers
    python benchmarks/service/simulated.py warm N          forks launchers, as the engine's warm process does
    python -I -S benchmarks/service/simulated.py FOLDER    one launcher: keeps the folder's contract, trains nothing

So a job has its whole life (submitted, placed, claimed, launched, uploaded, settled, released) at
the speed of the service and not of torch. The launcher is still a process of its own, forked like a
real one, with a metric and a line of its log.

Not here: the meaning of the files (``domain.life.attempt``).
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import NoReturn


def launch(folder: str) -> None:
    """Run as the launcher of an attempt's folder.

    Standard library alone, because there are a thousand processes.
    """

    def write(name: str, document: object) -> None:
        temporary = f"{folder}/.{name}.tmp"
        with open(temporary, "w") as file:  # noqa: PTH123 - an import of pathlib takes too long
            json.dump(document, file)
        os.replace(temporary, f"{folder}/{name}")  # noqa: PTH105 - as above

    def append(name: str, document: object) -> None:
        with open(f"{folder}/{name}", "a") as file:  # noqa: PTH123 - as above
            file.write(json.dumps(document) + "\n")

    def read(path: str) -> str:
        with open(path) as file:  # noqa: PTH123 - as above
            return file.read()

    boot_id = read("/proc/sys/kernel/random/boot_id").strip()
    start_ticks = int(read("/proc/self/stat").rpartition(")")[2].split()[19])
    write("launcher.json", {"pid": os.getpid(), "start_ticks": start_ticks, "boot_id": boot_id})
    write("ranks.json", {"ranks": [{"rank": 0, "pid": os.getpid()}]})
    append(
        "logs/000000.jsonl",
        {"time": time.time(), "rank": 0, "stream": "stdout", "text": "simulated"},
    )
    append("spool/metrics.jsonl", {"step": 1, "time": time.time(), "values": {"train/loss": 1.0}})
    outcome = {"reason": "succeeded", "message": "simulated"}
    write("result.json", {"outcome": outcome, "ended_at": time.time()})


def agent() -> None:
    """Run as the node agent."""
    from lockstep.system import logs
    from lockstep.worker import service
    from lockstep.worker.settings import AgentSettings

    settings = AgentSettings()
    logs.configure(settings.log_format, sys.stderr)
    service.run(
        settings,
        launcher_command=[sys.executable, "-I", "-S", __file__],
        warm_command=[sys.executable, __file__, "warm"],
    )


def warm(descriptor: str) -> None:
    """Run as the warm process: the engine's own, whose launchers are the one above."""
    from lockstep.engine.launcher import fork_server

    def run_attempt(folder: object, _bounds: object) -> NoReturn:
        launch(str(folder))
        os._exit(0)

    fork_server.forking.preload = lambda _modules: None
    fork_server.run_attempt = run_attempt
    fork_server.main([descriptor])


def up() -> int:
    """Run as ``lockstep up``, with the agent above as the worker."""
    from dataclasses import replace
    from pathlib import Path

    from lockstep.client.local import settings
    from lockstep.client.local import up as local
    from lockstep.client.local.home import Home

    home = Home(Path(os.environ["LOCKSTEP_HOME"]))
    service = settings.service(home, settings.Options(), os.environ)
    programs = tuple(
        replace(
            program,
            argv=(sys.executable, "-m", "benchmarks.service.simulated", "agent"),
            environment={
                **program.environment,
                "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
            },
        )
        if program.name == "worker"
        else program
        for program in service.programs
    )
    return local.run(home, replace(service, programs=programs), tell=print)


if __name__ == "__main__":
    if sys.argv[1] == "up":
        sys.exit(up())
    if sys.argv[1] == "agent":
        agent()
    elif sys.argv[1] == "warm":
        warm(sys.argv[2])
    else:
        launch(sys.argv[1])
