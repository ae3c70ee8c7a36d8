"""One attempt on one node, from the assignment to the result.

1. Write the process's identity (``launcher.json``) at once: from here on an agent can adopt the
attempt.
2. Become the subreaper of everything that will be started; drop the service's environment.
3. Fork the ranks that can be forked, which wait; only then open the log and the watch.
4. Start the ranks, unless a stop or the fence came first, and stay with them until each has ended.
5. Read the rest of their pipes, kill every process that is left, read again.
6. Decide the outcome, and only then write ``result.json``: its presence means that no process of
the attempt is left.

Nothing is restarted here. The launcher exits with 0 when it has written a result, whatever the
result.

Not here: the single parts (see the package).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import NoReturn

from lockstep.domain import limits
from lockstep.domain.life import attempt
from lockstep.domain.life.attempt import AssignmentFile, EngineEvent, ResultFile, StopFile
from lockstep.domain.life.outcomes import Outcome, Reason
from lockstep.engine.launcher import environment, evidence, outcome
from lockstep.engine.launcher.bounds import Bounds
from lockstep.engine.launcher.facts import Exit, Facts
from lockstep.engine.launcher.files import last_step, read_model
from lockstep.engine.launcher.output.segments import Segments
from lockstep.engine.launcher.output.streams import Streams
from lockstep.engine.launcher.stall.silence import SilenceEvent
from lockstep.engine.launcher.start import forking, processes, stub
from lockstep.engine.launcher.start.gang import Gang, PeersUnreachableError, RankProcess
from lockstep.engine.launcher.start.ranks import RankLauncher
from lockstep.engine.launcher.watch import GangWatch
from lockstep.engine.runtime import heartbeat
from lockstep.system.processes import become_subreaper, keep_files_private
from lockstep.system.redaction import Redactor, secrets_of
from lockstep.system.untrusted import MODEL_BYTES_MAX, Untrusted

_REMOVAL_SECONDS = 0.5
"""For each folder of the launcher at its end: ranks may have filled it."""
_NAMED_MAX = 5
STUB = Path(__file__).parent / "start" / "stub.py"


def main(arguments: list[str]) -> NoReturn:
    """Run the attempt in the folder named on the command line, and exit."""
    parser = argparse.ArgumentParser(
        prog="python -m lockstep.engine.launcher",
        description="Run the ranks of one attempt on this node.",
    )
    parser.add_argument("folder", type=Path, help="folder of the attempt, with its assignment.json")
    folder = parser.parse_args(arguments).folder.resolve()
    run_attempt(folder, Bounds())


def run_attempt(folder: Path, bounds: Bounds, launcher: RankLauncher | None = None) -> NoReturn:
    """Run the attempt in ``folder`` and exit.

    ``launcher`` replaces the one that starts the ranks.
    """
    mask = keep_files_private()
    files = Untrusted(folder)
    files.write(attempt.LAUNCHER, processes.identity().model_dump_json().encode())
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    processes.enter_group(os.environ.get(attempt.GROUP_VARIABLE))
    become_subreaper()
    mask = int(os.environ.get(attempt.UMASK_VARIABLE, f"{mask:o}"), 8)
    environment.scrub(os.environ)
    try:
        text = files.read(attempt.ASSIGNMENT, most=MODEL_BYTES_MAX)
        assignment = AssignmentFile.model_validate_json(text or b"")
    except (OSError, ValueError) as error:
        _exit_with(
            files,
            Outcome.of(Reason.LAUNCH_FAILED, f"{attempt.ASSIGNMENT} cannot be read: {error}"),
        )
    forked = forking.nursery_for(assignment, folder) if launcher is None else []
    _Attempt(assignment, folder, bounds, mask).run(launcher or RankLauncher(bounds, forked))


class _Attempt:
    """The parts of one attempt, and the order in which they begin and end."""

    def __init__(self, assignment: AssignmentFile, folder: Path, bounds: Bounds, mask: int):
        self._mask = mask
        self._assignment = assignment
        self._folder = folder
        self._bounds = bounds
        self._files = Untrusted(folder)
        self._launch_folder = folder / attempt.LAUNCH
        self._memory_kills_before = processes.out_of_memory_kills()
        self._concluding = threading.Lock()
        self._pids: dict[int, int] = {}
        for name in (
            attempt.LAUNCH,
            attempt.ERRORS,
            attempt.STACKS,
            str(PurePosixPath(attempt.METRICS).parent),
        ):
            self._files.make_folder(name)
        self._segments = Segments(folder, bounds)
        # The node's variables for every job are included, such as a proxy's address with its
        # password.
        self._redactor = Redactor(secrets_of({**os.environ, **assignment.spec.env}))
        self._streams = Streams(
            self._launch_folder, self._segments, bounds, warn=self._warn, redactor=self._redactor
        )
        self._watch = GangWatch(
            assignment,
            folder,
            bounds,
            log_line=self._segments.log_line,
            warn=self._warn,
            report=self._report_silence,
            output_bytes=lambda: self._streams.bytes_read,
            may_follow=lambda exit_: evidence.may_follow(exit_.code, self._evidence_of(exit_)),
            on_stuck=self._conclude,
        )

    def run(self, launcher: RankLauncher) -> NoReturn:
        """Run phases 4 to 6 of the module docstring."""
        # Empty handlers instead of SIG_IGN: an ignored signal stays ignored after a rank's exec.
        for number in (signal.SIGHUP, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self._watch.request_stop())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        failed: Outcome | None = None
        try:
            self._watch.start()
            self._start_and_wait(launcher)
            if self._assignment.spec.kind == "script":
                self._watch.let_programs_end()
        except Exception as error:  # noqa: BLE001 - the agent needs a result after any error
            _print_trace()
            failed = self._not_started(error)
        self._conclude(failed)

    def _not_started(self, error: Exception) -> Outcome:
        return Outcome.of(
            Reason.NETWORK if isinstance(error, PeersUnreachableError) else Reason.LAUNCH_FAILED,
            f"starting the ranks failed: {type(error).__name__}: {error}",
            node=self._assignment.node_name,
            traceback=traceback.format_exc()[-limits.TRACEBACK_CHARS_MAX :],
        )

    def _start_and_wait(self, launcher: RankLauncher) -> None:
        assignment, folder = self._assignment, self._folder
        command = environment.command_of(assignment, folder)
        launch = {
            "launcher_pid": os.getpid(),
            "argv": command.argv,
            "script": command.script,
            "cwd": str(environment.working_folder(folder)),
            "errors": str(folder / attempt.ERRORS),
            "umask": self._mask,
        }
        self._files.write(f"{attempt.LAUNCH}/command.json", json.dumps(launch).encode())
        if self._watch.must_not_start():
            return
        launcher.run(
            Gang(
                run_id=f"{assignment.job_id}-{assignment.attempt_number}",
                node_rank=assignment.node_rank,
                node_count=assignment.node_count,
                ranks_here=assignment.ranks_here,
                world_size=assignment.world_size,
                rendezvous_host=assignment.rendezvous_host,
                rendezvous_port=assignment.rendezvous_port,
                argv=(sys.executable, "-I", "-S", str(STUB), str(self._launch_folder)),
                launch_folder=self._launch_folder,
                prepare=self._prepare_rank,
                error_file=lambda rank: folder / evidence.elastic_error_file(rank),
                ended=lambda: self._watch.facts.cause is not None,
                log_line=self._segments.log_line,
                stopping=lambda: self._watch.facts.cause == "stop",
                settle=self._watch.settle,
            ),
            self._on_started,
        )

    def _prepare_rank(self, rank: int) -> Mapping[str, str]:
        self._streams.open(rank)
        cores = len(os.sched_getaffinity(0))
        environ = environment.rank_environment(
            self._assignment, self._folder, cores=cores, rank=rank
        )
        return stub.held_back(environ)

    def _on_started(self, ranks: Mapping[int, RankProcess]) -> None:
        self._watch.begin(ranks)
        self._streams.start()
        self._pids = {rank: process.pid for rank, process in sorted(ranks.items())}
        document = {"ranks": [{"rank": rank, "pid": pid} for rank, pid in self._pids.items()]}
        self._files.write(attempt.RANKS, json.dumps(document).encode())

    def _warn(self, message: str) -> None:
        self._segments.log_line(f"Warning: {message}.")
        self._add_event(EngineEvent(kind="warning", time=time.time(), data={"message": message}))

    def _name_left_running(self, names: list[str]) -> None:
        """Report programs that the ranks have left in the background."""
        if not names:
            return
        named = ", ".join(sorted(names)[:_NAMED_MAX])
        more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
        self._warn(
            f"programs that the script left running were killed {self._bounds.linger_seconds:g} s "
            f"after its end: {named}{more}; let it wait for them (wait in a shell)"
        )

    def _report_silence(self, event: SilenceEvent) -> None:
        self._segments.log_line(event.data["message"])
        for rank, excerpt in event.excerpts.items():
            self._segments.log_line(excerpt, rank=rank)
        self._add_event(EngineEvent(kind=event.kind, time=time.time(), data=event.data))

    def _add_event(self, event: EngineEvent) -> None:
        """Append one whole line to the spool that rank 0 writes too."""
        with contextlib.suppress(OSError):
            line = event.model_dump_json().encode() + b"\n"
            self._files.append(attempt.EVENTS, line, most=limits.SPOOL_LENGTH_MAX)

    def _conclude(self, failed: Outcome | None = None) -> NoReturn:
        """End remaining processes, decide, write the result, exit.

        The first calling thread does this; others wait.

        ``failed`` is the outcome if ranks could not be started; observations of the watch take
        precedence.
        """
        with self._concluding:
            try:
                self._finish(failed)
            except Exception:  # noqa: BLE001 - for example a full disk under the result
                _print_trace()
            # The agent creates an outcome for an end without a result, but would wait forever for a
            # launcher that never ends: its watch has ended, or it hangs in torch's destructors.
            os._exit(1)

    def _finish(self, failed: Outcome | None) -> NoReturn:
        facts = self._watch.finish()
        self._streams.stop()
        lingers_until = time.monotonic() + self._bounds.linger_seconds
        self._streams.drain(self._bounds.linger_seconds)
        if facts.cause is None and self._assignment.spec.kind == "script":
            self._name_left_running(processes.running_at(lingers_until))
        processes.sweep()
        self._streams.drain(self._bounds.drain_seconds)
        self._streams.close()
        outcome = failed if failed is not None and facts.cause is None else self._outcome(facts)
        texts = {name: self._redactor.clean(value) for name, value in outcome if type(value) is str}
        outcome = outcome.model_copy(update=texts)
        if outcome.reason is not Reason.SUCCEEDED:
            self._segments.log_line(f"Ended: {outcome.reason}: {outcome.message}")
        self._segments.close()
        temporaries = [attempt.LAUNCH, attempt.HEARTBEATS]
        if self._assignment.spec.kind == "script":  # the log has them
            temporaries.append(attempt.STACKS)
        for temporary in temporaries:
            # The agent removes the rest with the folder.
            with contextlib.suppress(OSError):
                self._files.remove(temporary, seconds=_REMOVAL_SECONDS)
        _exit_with(self._files, outcome)

    def _outcome(self, facts: Facts) -> Outcome:
        try:
            return self._decide(facts)
        except Exception as error:  # noqa: BLE001 - it reads files of jobs, and a result is needed
            _print_trace()
            message = (
                f"the launcher could not determine how the ranks ended: {type(error).__name__}: "
                f"{error}"
            )
            return Outcome.of(Reason.LAUNCH_FAILED, message, node=self._assignment.node_name)

    def _decide(self, facts: Facts) -> Outcome:
        if facts.stop is None:
            facts.stop = read_model(self._files, attempt.STOP, StopFile)
        found = {exit_.rank: self._evidence_of(exit_) for exit_ in facts.exits if exit_.code != 0}
        return outcome.decide(
            facts,
            found,
            self._assignment,
            last_step=_last_step(self._folder, facts.ranks),
            steps=_steps(self._assignment, self._folder, facts.ranks),
            memory_kills=processes.out_of_memory_kills() - self._memory_kills_before,
            last_lines=self._streams.last_lines(),
        )

    def _evidence_of(self, exit_: Exit) -> evidence.Evidence:
        rank, pid = exit_.rank, self._pids.get(exit_.rank)
        found = []
        # Behind `2>&1 | tee` all that tells the end is on stdout.
        for tail in (self._streams.tail(rank), self._streams.tail_of_stdout(rank)):
            raised = evidence.may_have_raised(exit_.code, tail, torn_down=exit_.torn_down)
            found.append(evidence.gather(self._files, rank, tail, raised=raised, pid=pid))
        return next((each for each in found if each.explains), found[0])


def _last_step(folder: Path, ranks: tuple[int, ...]) -> int | None:
    """Return the last completed step, the larger of heartbeats and spool.

    The spool may not have every step. If rank 0 is on this node, only its heartbeat counts, because
    it reports and saves: another rank may have the gradient of a step that rank 0 did not complete.
    """
    mark_count = [
        reading
        for reading in (heartbeat.read(folder, rank) for rank in ranks[: 1 if 0 in ranks else None])
        if reading is not None
    ]
    return (
        max([*(reading.step for reading in mark_count), last_step(Untrusted(folder)) or 0]) or None
    )


def _steps(assignment: AssignmentFile, folder: Path, ranks: tuple[int, ...]) -> int | None:
    """Return the steps of the whole run, from the heartbeats or from the plan."""
    mark_count = [
        reading
        for reading in (heartbeat.read(folder, rank) for rank in ranks)
        if reading is not None
    ]
    return max((reading.steps for reading in mark_count), default=0) or (
        assignment.plan.steps if assignment.plan else None
    )


def _exit_with(files: Untrusted, outcome: Outcome) -> NoReturn:
    """Write the result and exit at once, without torch's threads and destructors."""
    result = ResultFile(outcome=outcome, ended_at=time.time())
    files.write(attempt.RESULT, result.model_dump_json().encode())
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _print_trace() -> None:
    """Print the caught exception, unless the disk under ``launcher.log`` is full."""
    with contextlib.suppress(OSError):
        traceback.print_exc()
