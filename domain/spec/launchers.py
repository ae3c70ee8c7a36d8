"""Refusal of a script whose command is itself a launcher such as ``torchrun``.

The service starts the ranks. A launcher in each of them would start its own group there: ``torchrun
--nproc-per-node 2`` on two devices made four processes in two groups, which trained apart. Where
only one process is started, the launcher runs as it was written.

A launcher behind a shell (``bash run.sh``) is not seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

from lockstep.domain.errors import FieldError
from lockstep.domain.spec.job import JobSpec

PROGRAMS: Final = frozenset(
    {"torchrun", "accelerate", "deepspeed", "horovodrun", "mpirun", "mpiexec", "srun"}
)
MODULES: Final = frozenset(
    {
        "torch.distributed.run",
        "torch.distributed.launch",
        "accelerate.commands.launch",
        "accelerate.commands.accelerate_cli",
        "deepspeed.launcher.runner",
    }
)
"""As ``python -m`` runs them."""
MODULE_OPTIONS: Final = ("-m", "--module")
"""Options of torchrun for a module instead of a file, which the node's Python runs."""
_RUNNERS: Final = frozenset({"uv", "poetry", "pdm", "pixi", "hatch"})
"""Programs whose ``run`` takes a command."""


def launcher_refusals(spec: JobSpec) -> Iterator[FieldError]:
    """The error about a launcher that would be started more than once, if there is one."""
    if spec.script is None or spec.world_size() == 1:
        return
    command = spec.script.command
    found = launcher_in(command)
    if found is None:
        return
    name, arguments = found
    several = (spec.resources.nodes or 1) > 1
    message = (
        f"{name} would be started {spec.world_size()} times, and would start its own ranks each "
        "time: Lockstep starts the ranks itself, with torchrun's variables (RANK, WORLD_SIZE, "
        "MASTER_ADDR, ...)"
    )
    once = (
        ""
        if several
        else f"; or set script.nproc_per_node: 1, which starts {name} once, with all devices"
    )
    yield FieldError(
        "/script/command",
        message,
        command[0],
        f"write command: [{', '.join(_without_launcher(arguments))}]; resources.gpus is the "
        f"number of ranks{once}",
    )


def launcher_in(command: list[str]) -> tuple[str, list[str]] | None:
    """The launcher that a command starts, and the words after it.

    None where it starts another program.
    """
    words = _without_runner(command)
    if not words:
        return None
    if words[0] in MODULE_OPTIONS and words[1:2] and words[1] in MODULES:
        return words[1], words[2:]
    program = PurePosixPath(words[0]).name
    if program in PROGRAMS:
        return program, words[1:]
    if program.startswith("python"):
        options = words[1:]
        while options and options[0].startswith("-") and options[0] != "-m":
            options = options[1:]
        if options[:1] == ["-m"] and options[1:2] and options[1] in MODULES:
            return options[1], options[2:]
    return None


def _without_runner(command: list[str]) -> list[str]:
    """The command without ``env NAME=VALUE`` and ``uv run`` before it."""
    words = command
    if PurePosixPath(words[0]).name == "env":
        words = words[1:]
        while words and "=" in words[0]:
            words = words[1:]
    if len(words) > 2 and PurePosixPath(words[0]).name in _RUNNERS and words[1] == "run":
        words = words[2:]
    return words


def _without_launcher(arguments: list[str]) -> list[str]:
    """Return the command of the ranks, without the launcher's options if they are known."""
    for number, word in enumerate(arguments):
        if word.endswith(".py"):
            return arguments[number:]
        if word in MODULE_OPTIONS and number + 1 < len(arguments):
            return ["python", "-m", *arguments[number + 1 :]]
    return ["the script", "its arguments"]
