"""``submit`` and ``plan``: from a file to a job, and to its end.

Not here: reading the file (``client.files.specfile``), the bar (``cli.jobs.follow``), the last
table (``cli.text.closing``).
"""

from __future__ import annotations

import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lockstep.cli.common import (
    Code,
    Connection,
    Detach,
    File,
    Flag,
    Output,
    Quiet,
    Settings,
    Verbose,
    Yes,
    confirmed,
    say,
)
from lockstep.cli.text import output as out
from lockstep.client.errors import OF_STATE, ClientError, ExitCode, RefusedError

if TYPE_CHECKING:
    from lockstep.client.api import Client
    from lockstep.client.archive import CodeArchive
    from lockstep.client.files.specfile import SpecFile
    from lockstep.domain.views import JobView, PlanView

RULES_SHOWN: Final = 5
NAMES_SHOWN: Final = 3
"""Excluded paths that are listed per rule without --verbose."""


def submit(
    file: File,
    /,
    *,
    code: Code = None,
    settings: Settings = None,
    dry_run: Flag = False,
    detach: Detach = False,
    logs: Flag = False,
    quiet: Quiet = False,
    yes: Yes = False,
    verbose: Verbose = False,
    output: Output = Output(),
    connection: Connection = Connection(),
) -> ExitCode:
    """Submit a job and follow it to its end. Ctrl-C detaches; the job continues.

    Exit code 0: the job succeeded (or, with -d, was accepted); 1: it failed, or was refused; 6: it
    was cancelled.

    Parameters
    ----------
    file
        The job spec, as YAML or JSON; - reads it from stdin.
    code
        Folder with the job's code; it is sent as one archive, for a dry run too: the server checks
        it. Caches and the paths of its .lockstepignore or .gitignore are left out and listed.
    settings
        Change one value of the spec: --set train.steps=100. May be given several times.
    dry_run
        Check the spec and show the plan; submit nothing.
    detach
        Return as soon as the job is accepted; its id is on stdout.
    logs
        Show the ranks' lines while following.
    quiet
        Write nothing but the job's id.
    yes
        Do not ask before submitting.
    verbose
        List every path that --code leaves out.
    """
    form = output.format
    talk = _silent if quiet else say
    with prepared(file, code, settings, connection) as (client, spec, archive):
        if archive is not None:
            send(client, archive, talk)
            tell_left_out(archive, talk, verbose=verbose)
        if dry_run:
            return _show_plan(_forecast_plan(client, spec, code), spec, form)
        answer = _plan(client, spec)
        for line in plan_lines(answer, spec.source):
            talk(line)
        asks = not (yes or quiet or file == "-") and sys.stdin.isatty() and sys.stderr.isatty()
        if asks and not confirmed("submit?", otherwise=True):
            say("nothing was submitted")
            return ExitCode.OK
        return accepted(client, _submit(client, spec), form, detach=detach, logs=logs, quiet=quiet)


def accepted(
    client: Client, job: JobView, form: str, *, detach: bool, logs: bool, quiet: bool
) -> ExitCode:
    """Print an accepted job's id, or follow the job to its end."""
    talk = _silent if quiet else say
    if form != "json" and (detach or quiet or form == "name"):
        print(job.id, flush=True)
    if detach:
        if form == "json":
            out.print_json(job)
        talk(f"accepted {job.name}; " + _ways_back(job))
        return ExitCode.OK
    talk(f"submitted {job.name} ({job.id}); Ctrl-C detaches")
    talk(f"its page: {client.transport.url}/jobs/{job.id}")
    ended = _follow(client, job, logs=logs, quiet=quiet)
    if form == "json":
        out.print_json(ended)
    elif form != "name" and not quiet:
        from lockstep.cli.text.closing import print_closing

        print_closing(client, ended, client.transport.url)
    return OF_STATE[ended.state]


def plan(
    file: File,
    /,
    *,
    code: Code = None,
    settings: Settings = None,
    verbose: Verbose = False,
    output: Output = Output(),
    connection: Connection = Connection(),
) -> ExitCode:
    """Check a spec, and show its batch plan and when and where it would run. Nothing is submitted.

    Parameters
    ----------
    file
        The job spec, as YAML or JSON; - reads it from stdin.
    code
        Folder with the job's code, sent as for submit: the server checks it.
    settings
        Change one value of the spec: --set train.steps=100. May be given several times.
    verbose
        List every path that --code leaves out.
    """
    with prepared(file, code, settings, connection) as (client, spec, archive):
        if archive is not None:
            send(client, archive, _silent)
            tell_left_out(archive, say, verbose=verbose)
        return _show_plan(_forecast_plan(client, spec, code), spec, output.format)


@contextmanager
def prepared(
    file: str, code: Path | None, settings: list[str] | None, connection: Connection
) -> Iterator[tuple[Client, SpecFile, CodeArchive | None]]:
    """The checked spec with its code packed, and a client; nothing has been sent."""
    from lockstep.client.archive import pack
    from lockstep.client.files import specfile

    with ExitStack() as stack:
        spec = specfile.read(file, settings or [], sys.stdin)
        archive = None
        if code is not None:
            temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="lockstep-code-"))
            archive = pack(code, Path(temporary) / "code.tar.gz")
            spec.put(["code"], {"upload": archive.sha256}, f"--code {code}")
        spec.check()
        yield stack.enter_context(connection.client()), spec, archive


def send(client: Client, archive: CodeArchive, talk: Callable[[str], None]) -> None:
    sent = client.upload_archive(archive)
    known = "" if sent.created else ", already there"
    talk(
        f"code: {archive.files} file{'s' if archive.files != 1 else ''}, "
        f"{out.size(archive.size_bytes)}{known}"
    )


def tell_left_out(archive: CodeArchive, talk: Callable[[str], None], *, verbose: bool) -> None:
    """List the excluded paths, one line per rule; without ``verbose`` only the first names."""
    if archive.pointers:
        named = archive.pointers if verbose else archive.pointers[:NAMES_SHOWN]
        rest = len(archive.pointers) - len(named)
        more = f" and {rest} more" if rest else ""
        talk(
            f"sent as pointers, without their content: {', '.join(named)}{more}; "
            "run `git lfs pull` and submit again"
        )
    by_rule: dict[str, list[str]] = {}
    for path, rule in archive.left_out:
        by_rule.setdefault(rule, []).append(path)
    rules = sorted(by_rule.items(), key=lambda item: (-len(item[1]), item[0]))
    for rule, paths in rules if verbose else rules[:RULES_SHOWN]:
        shown = paths if verbose else paths[:NAMES_SHOWN]
        more = f" and {len(paths) - len(shown)} more" if len(paths) > len(shown) else ""
        talk(f"left out, {rule}: {', '.join(shown)}{more}")
    if not verbose:
        if len(rules) > RULES_SHOWN:
            paths_left = sum(len(paths) for _, paths in rules[RULES_SHOWN:])
            talk(f"left out, {len(rules) - RULES_SHOWN} more rules: {paths_left} paths")
        if len(rules) > RULES_SHOWN or any(len(paths) > NAMES_SHOWN for _, paths in rules):
            talk("--verbose lists all paths that are left out")


def _plan(client: Client, spec: SpecFile) -> PlanView:
    try:
        return client.plan(spec.document)
    except RefusedError as refused:
        raise _placed(refused, spec) from None


def _forecast_plan(client: Client, spec: SpecFile, code: Path | None) -> PlanView:
    """The plan with its memory forecast, which may take some seconds."""
    from lockstep.client import forecasts

    return forecasts.with_code(forecasts.awaited(lambda: _plan(client, spec), tell=say), code)


def _submit(client: Client, spec: SpecFile) -> JobView:
    key = uuid.uuid4().hex
    try:
        return client.submit(spec.document, idempotency_key=key)
    except RefusedError as refused:
        raise _placed(refused, spec) from None
    except KeyboardInterrupt:
        say("interrupted while submitting: lockstep ps shows whether the job was accepted")
        raise


def _placed(refused: RefusedError, spec: SpecFile) -> ClientError:
    """A refusal with the file and line of each wrong value, where the server named one."""
    return spec.refused(refused.problem.errors) if refused.problem.errors else refused


def _show_plan(answer: PlanView, spec: SpecFile, form: str) -> ExitCode:
    if form == "json":
        out.print_json(answer)
    else:
        for line in plan_lines(answer, spec.source):
            print(line)
    return ExitCode.OK


def plan_lines(answer: PlanView, source: str) -> Iterator[str]:
    """The plan in words."""
    spec = answer.spec
    yield f"{source}: {spec.get('name', '')}, {out.activity(spec)}"
    # A spec without a project goes to the only one of its sender.
    if (project := spec.get("project", "default")) != "default":
        yield f"  for    project {project}"
    if answer.sentence:
        yield f"  batch  {answer.sentence}"
    if answer.placement:
        yield f"  where  {', '.join(answer.placement)}, now"
    elif answer.queue is not None:
        yield f"  waits  {out.turn(answer.queue)}"
    if answer.limit is not None:
        yield f"  limit  {out.time_limit(answer.limit)}"
    if answer.memory is not None:
        yield f"  memory {answer.memory.sentence()}"
        if device := answer.memory.device_sentence():
            yield f"  of     {device}"
    for sentence in answer.retries.sentences if answer.retries else ():
        yield f"  retry  {sentence}"
    for warning in answer.warnings:
        yield f"  note   {warning}"


def _follow(client: Client, job: JobView, *, logs: bool, quiet: bool) -> JobView:
    """Follow the job to its end; Ctrl-C detaches and prints the command to follow it again."""
    from lockstep.cli.jobs.follow import Follower, progress_view

    try:
        if quiet:
            return client.wait(job.id)
        with progress_view() as view:
            return client.wait(job.id, each=Follower(view, client, logs=logs).look)
    except KeyboardInterrupt:
        if not quiet:
            say(f"detached: {job.name} continues; " + _ways_back(job))
        raise


def _ways_back(job: JobView) -> str:
    short = out.short_id(job.id)
    return f"lockstep wait {short} · lockstep logs -f {short} · lockstep cancel {short}"


def _silent(line: str) -> None:
    """Print nothing: -q."""
