"""Table of commands, and the conversion of exceptions to a line on stderr and an exit code.

Not here: the commands (a module each), and the meaning of exit codes (``client.errors``).
"""

from __future__ import annotations

import os
import shlex
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from cyclopts import App, CycloptsError, Group, UnusedCliTokensError

from lockstep.client.errors import ClientError, ExitCode, UsageError
from lockstep.domain.version import VERSION

_JOBS, _SERVICE = Group("Jobs", sort_key=1), Group("Service", sort_key=2)

COMMANDS: Final = (
    (
        "submit",
        "lockstep.cli.jobs.submit:submit",
        "Submit a job and follow it; Ctrl-C detaches.",
        _JOBS,
    ),
    (
        "plan",
        "lockstep.cli.jobs.submit:plan",
        "Show the batch plan of a job, and where and when it would run.",
        _JOBS,
    ),
    ("clone", "lockstep.cli.jobs.clone:clone", "Submit a job's spec again, with changes.", _JOBS),
    ("ps", "lockstep.cli.jobs.jobs:ps", "List jobs.", _JOBS),
    ("show", "lockstep.cli.jobs.show:show", "Show one job in full.", _JOBS),
    ("logs", "lockstep.cli.jobs.logs:logs", "Show the log lines of a job's ranks.", _JOBS),
    ("metrics", "lockstep.cli.jobs.metrics:metrics", "Show the metrics of a job.", _JOBS),
    (
        "export",
        "lockstep.cli.jobs.export:export",
        "Export the metrics of a job to TensorBoard, MLflow, CSV or Parquet.",
        _JOBS,
    ),
    ("ckpt", "lockstep.cli.jobs.ckpt:app", "List, fetch and check a job's checkpoints.", _JOBS),
    (
        "files",
        "lockstep.cli.jobs.files:app",
        "List, download, print and delete the files that a job keeps.",
        _JOBS,
    ),
    ("events", "lockstep.cli.jobs.show:events", "Show the events of a job, oldest first.", _JOBS),
    (
        "wait",
        "lockstep.cli.jobs.jobs:wait",
        "Wait for a job's end; the exit code gives its outcome.",
        _JOBS,
    ),
    (
        "watch",
        "lockstep.cli.jobs.watch:watch",
        "Follow a job live: progress, speed, newest metrics, last log lines.",
        _JOBS,
    ),
    ("cancel", "lockstep.cli.jobs.stopping:cancel", "Cancel jobs.", _JOBS),
    ("pause", "lockstep.cli.jobs.stopping:pause", "Pause jobs until they are resumed.", _JOBS),
    ("resume", "lockstep.cli.jobs.stopping:resume", "Queue paused jobs again.", _JOBS),
    (
        "requeue",
        "lockstep.cli.jobs.stopping:requeue",
        "Stop running jobs and queue them again.",
        _JOBS,
    ),
    (
        "priority",
        "lockstep.cli.jobs.stopping:priority",
        "Change the priority of jobs.",
        _JOBS,
    ),
    (
        "rm",
        "lockstep.cli.jobs.rm:rm",
        "Delete jobs that have ended, with their metrics, logs, files and checkpoints.",
        _JOBS,
    ),
    (
        "scaling",
        "lockstep.cli.jobs.scaling:scaling",
        "Measure how a job scales over devices, and name the bottleneck.",
        _JOBS,
    ),
    (
        "verify",
        "lockstep.cli.jobs.verify:verify",
        "Compare a job's runs over layouts, a kill and a resume.",
        _JOBS,
    ),
    (
        "nodes",
        "lockstep.cli.service.nodes:app",
        "List nodes and the jobs on their devices; drain, resume and remove nodes.",
        _SERVICE,
    ),
    ("login", "lockstep.cli.service.session:login", "Sign in to a server.", _SERVICE),
    ("logout", "lockstep.cli.service.session:logout", "End the session of a login.", _SERVICE),
    ("whoami", "lockstep.cli.service.session:whoami", "Show your name and roles.", _SERVICE),
    ("password", "lockstep.cli.service.session:password", "Change your password.", _SERVICE),
    ("session", "lockstep.cli.service.sessions:app", "List and end your sessions.", _SERVICE),
    (
        "user",
        "lockstep.cli.service.users:app",
        "Add, list, invite, change and deactivate people.",
        _SERVICE,
    ),
    (
        "project",
        "lockstep.cli.service.projects:app",
        "Make, list, change and archive projects; give and take roles in them.",
        _SERVICE,
    ),
    (
        "token",
        "lockstep.cli.service.tokens:app",
        "Make, list, rotate and revoke tokens.",
        _SERVICE,
    ),
    (
        "audit",
        "lockstep.cli.service.audit:app",
        "List and export changes and refused requests.",
        _SERVICE,
    ),
    (
        "usage",
        "lockstep.cli.service.usage:usage",
        "Show the device-hours of projects, people or days.",
        _SERVICE,
    ),
    (
        "queue",
        "lockstep.cli.service.queue:queue",
        "List the jobs that wait, in the order in which they go.",
        _JOBS,
    ),
    (
        "why",
        "lockstep.cli.service.queue:why",
        "Show why a job waits, when it starts, and what is ahead of it.",
        _JOBS,
    ),
    (
        "shares",
        "lockstep.cli.service.queue:shares",
        "Show the shares of projects, and their use of devices.",
        _SERVICE,
    ),
    ("top", "lockstep.cli.jobs.watch:top", "Show jobs and devices live.", _SERVICE),
    ("up", "lockstep.cli.service.service:up", "Start the whole service on this machine.", _SERVICE),
    ("down", "lockstep.cli.service.service:down", "Stop the service on this machine.", _SERVICE),
    (
        "migrate",
        "lockstep.cli.service.service:migrate",
        "Migrate the databases of the service on this machine.",
        _SERVICE,
    ),
    ("api", "lockstep.cli.service.programs:api", "Serve the HTTP API and the dashboard.", _SERVICE),
    ("scheduler", "lockstep.cli.service.programs:scheduler", "Run a scheduler.", _SERVICE),
    (
        "agent",
        "lockstep.cli.service.programs:agent",
        "Run the node agent of this machine.",
        _SERVICE,
    ),
    (
        "doctor",
        "lockstep.cli.service.doctor:doctor",
        "Check the server, the token, the nodes and this machine.",
        _SERVICE,
    ),
    (
        "settings",
        "lockstep.cli.service.settings:settings",
        "List the settings of the service, with their sources.",
        _SERVICE,
    ),
    ("open", "lockstep.cli.service.shell:open_", "Open the dashboard in a browser.", _SERVICE),
    (
        "config",
        "lockstep.cli.service.config:app",
        "Show or set the server address and the token.",
        _SERVICE,
    ),
    (
        "completion",
        "lockstep.cli.service.shell:completion",
        "Print or install the shell completion.",
        _SERVICE,
    ),
    (
        "drill",
        "lockstep.cli.service.drill:drill",
        "Kill one process of the service and check that no training step is lost.",
        _SERVICE,
    ),
    ("version", "lockstep.cli.service.service:version", "Print the version.", _SERVICE),
)

EPILOGUE: Final = """\
JOB is an id, a unique prefix or suffix of an id, a name (the newest job of that name), or "last".
Exit codes: 0 ok, 1 the job failed, or its spec or the request was refused, 2 usage, 3 not found, \
4 not allowed, 5 server not reachable, 6 cancelled, 124 timed out, 130 interrupted.
Server address, first match: --url, LOCKSTEP_URL, lockstep.toml, the user's config, \
`lockstep up` on this machine."""


def make_app(called: str = "") -> App:
    """Return the command line. A command's module is loaded when the command is called.

    The help of the ``called`` command is its docstring, which is longer than its line in the list.
    """
    app = App(
        name="lockstep",
        help="Train models on shared GPUs with an exact effective batch.",
        help_epilogue=EPILOGUE,
        help_format="plaintext",
        version=VERSION,
        suppress_keyboard_interrupt=False,
    )
    for number, (name, target, help_line, group) in enumerate(COMMANDS):
        line = None if name == called else help_line
        # A group of commands is an app with its own epilogue.
        own = {} if target.endswith(":app") else {"help_epilogue": ""}
        app.command(target, name=name, help=line, group=group, sort_key=number, **own)
    return app


def load(words: Sequence[str]) -> None:
    """Import the module of the called command."""
    for name, target, *_ in COMMANDS:
        if [name] == words[:1]:
            import_module(target.partition(":")[0])


def run(words: Sequence[str]) -> int:
    """Run one command line and answer with its exit code."""
    debug = "--debug" in words
    _open_streams()
    try:
        _check_words(words)
        result = make_app(words[0] if words else "")(
            words, exit_on_error=False, print_error=False, result_action="return_value"
        )
        sys.stdout.flush()
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        return ExitCode.OK  # The reader (`| head`) has gone, which is its right.
    except SystemExit as leaving:
        # rich prints the help, and turns the absent reader into an exit of its own.
        if not isinstance(leaving.__context__, BrokenPipeError):
            raise
        return ExitCode.OK
    except Exception as error:  # noqa: BLE001 - the boundary: a defect, too, becomes one line for the user
        if debug and not isinstance(error, CycloptsError):
            traceback.print_exc()
        return _failed(error, debug=debug)
    finally:
        _drop_unwritable()
    return int(result) if isinstance(result, int) else ExitCode.OK


def _failed(error: Exception, *, debug: bool) -> int:
    """Print an error and its remedy; return the exit code."""
    if isinstance(error, CycloptsError):
        unused = error.unused_tokens if isinstance(error, UnusedCliTokensError) else None
        _complain(
            f"unexpected argument: {shlex.join(unused)}" if unused else str(error),
            "lockstep --help lists the commands, lockstep COMMAND --help its options",
        )
        return ExitCode.USAGE
    if isinstance(error, ClientError):
        _complain(error.message, error.next_step)
        return error.exit_code
    if isinstance(error, OSError):
        # A full disk under stdout, an unreadable file: of the user's machine, not of the program.
        named = f"{error.filename}: " if error.filename else ""
        _complain(
            f"{named}{(error.strerror or str(error)).lower()}",
            "check the file, its permissions and the disk's free space",
        )
    elif not debug:
        _complain(
            f"defect in lockstep: {type(error).__name__}: {error}",
            "run the command again with --debug for the traceback",
        )
    return ExitCode.FAILED


def _drop_unwritable() -> None:
    """Discard output that cannot be written.

    The interpreter would try once more at its end, print an error of its own and exit with 120.
    """
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_streams() -> None:
    """Make output possible that the terminal's encoding lacks, and with a closed stdout."""
    for name in ("stdin", "stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123 - until the end
        elif name != "stdin" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _check_words(words: Sequence[str]) -> None:
    """Refuse arguments that are not UTF-8: Python has their bytes as surrogates."""
    for number, word in enumerate(words, start=1):
        try:
            word.encode()
        except UnicodeEncodeError:
            raise UsageError(
                f"argument {number} is not UTF-8 text: {os.fsencode(word)!r}",
                next_step="write it in UTF-8; rename a file whose name is in another encoding",
            ) from None
    _check_order(words)


def _check_order(words: Sequence[str]) -> None:
    """Refuse an option before the command, which every option belongs to."""
    names = {name for name, *_ in COMMANDS}
    place = next((number for number, word in enumerate(words) if word in names), 0)
    if place and words[0].startswith("-") and words[0] not in ("--help", "-h", "--version"):
        has_token = any(word.startswith("--token") for word in words[:place])
        moved = ["--token", "..."] if has_token else words[:place]
        ordered = shlex.join([*words[place:], *moved])
        raise UsageError(
            f"the option {words[0].partition('=')[0]} is before the command",
            next_step=f"write it after the command: lockstep {ordered}",
        )


def _complain(message: str, next_step: str) -> None:
    first, *more = message.splitlines() or [""]
    print(f"lockstep: {first}", file=sys.stderr)
    for line in more:
        print(f"          {line}", file=sys.stderr)
    if next_step:
        print(f"          {next_step}", file=sys.stderr)
