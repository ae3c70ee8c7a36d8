"""Outcome of the attempt on this node, as a pure function of the observations.

A failure in a gang spreads: one rank dies, its peers fail in their next collective, the launcher
sends SIGTERM to the rest. The outcome must name the first. A failure is *secondary*, and never the
outcome while there is another, if the rank reports that it lost a peer, or if a signal ended it
during the tear-down and it left no evidence. Of the others the earliest counts, by the time in its
error file if it has one: a rank that raised first may well have exited last. Of secondary failures
a crash comes first, because a rank that crashes may be found dead after the peers that lost it.

Not here: the consequence of an outcome for the job (``domain.life.retrying``).
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any, NamedTuple

from lockstep.domain.life.attempt import ENDED_WITH_GANG, AssignmentFile
from lockstep.domain.life.outcomes import RULES, Outcome, Reason, with_advice_of_cause
from lockstep.engine.launcher import ports
from lockstep.engine.launcher.evidence import THREAD_OUTLIVED, Evidence, disagreement
from lockstep.engine.launcher.facts import Exit, Facts
from lockstep.engine.launcher.signals import fault_of, signal_in, signal_name, signal_of_child
from lockstep.engine.launcher.stall.stalls import StallReport
from lockstep.engine.launcher.start.stub import EXIT_CANNOT_RUN

_START_ADVICE = (
    "Correct the variables of env that the loader and Python read at their start, such as "
    "LD_LIBRARY_PATH and PYTHONHOME, or install the library that is missing."
)


class _Failure(NamedTuple):
    exit: Exit
    found: Evidence
    lost_peer: bool
    secondary: bool
    signal: int | None
    """Signal that ended the rank, or the last command of its script."""

    @property
    def time(self) -> float:
        return self.found.time or self.exit.time


def decide(
    facts: Facts,
    evidence: Mapping[int, Evidence],
    assignment: AssignmentFile,
    *,
    last_step: int | None,
    steps: int | None,
    memory_kills: int = 0,
    last_lines: Mapping[int, str] | None = None,
) -> Outcome:
    """Return the outcome of the attempt on this node.

    Parameters
    ----------
    facts : Facts
        Observations of the watch. At least one rank was started, unless a stop or the fence came
        first.
    evidence : mapping
        Evidence of each failed rank, by rank.
    assignment : AssignmentFile
    last_step : int or None
        Last step in the metrics spool.
    steps : int or None
        Steps of the whole run, if known: a stop after the last one changes nothing.
    memory_kills : int
        Processes that the kernel killed for lack of memory during the attempt.
    last_lines : mapping, optional
        The last lines that each rank wrote, by rank.
    """
    outcome = _decide(
        facts, evidence, assignment, last_step=last_step, steps=steps, memory_kills=memory_kills
    )
    if outcome.reason is Reason.SUCCEEDED or outcome.rank is None:
        return outcome
    shown = outcome.model_copy(update={"log_excerpt": (last_lines or {}).get(outcome.rank)})
    return with_advice_of_cause(shown)


def _decide(
    facts: Facts,
    evidence: Mapping[int, Evidence],
    assignment: AssignmentFile,
    *,
    last_step: int | None,
    steps: int | None,
    memory_kills: int,
) -> Outcome:
    common: dict[str, Any] = {"node": assignment.node_name, "last_step": last_step}
    if facts.cause == "fence":
        return Outcome.of(
            Reason.CUT_OFF,
            "the node's lease was not renewed in time, so its ranks were killed",
            **common,
        )
    # Ranks of the engine see the stop by themselves, and may have left well before the watch has
    # seen it.
    left_by_themselves = (
        facts.cause is None and facts.stop is not None and assignment.spec.kind == "train"
    )
    if facts.cause == "stop" or left_by_themselves:
        return _stopped(facts, steps, common, _failed_meanwhile(facts, evidence, assignment))
    if facts.cause == "exit_stall":
        return _not_followed(facts, assignment, common)
    if facts.stalled is not None:
        return _stalled(facts.stalled, assignment, common)
    if facts.cause is None:
        return Outcome.of(Reason.SUCCEEDED, _all_ended(facts), **common)
    failures = _failures(facts, evidence, assignment)
    if facts.gang_failed and all(failure.secondary for failure in failures):
        return Outcome.of(Reason.NETWORK, ENDED_WITH_GANG, **common)
    first = _first(failures, assignment)
    return _of_first_failure(facts, first, assignment, memory_kills, common)


def _of_first_failure(
    facts: Facts,
    first: _Failure,
    assignment: AssignmentFile,
    memory_kills: int,
    common: dict[str, Any],
) -> Outcome:
    """Return the outcome of an attempt in which this rank failed first.

    The cause may be another rank that left too early.
    """
    if first.exit.early:
        return _left_early(first.exit.rank, common)
    left = next((exit_ for exit_ in facts.exits if exit_.code == 0 and not exit_.torn_down), None)
    aborted = first.signal == signal.SIGABRT and not first.found.explains
    if aborted and (left is not None or THREAD_OUTLIVED in (first.found.traceback or "")):
        return _aborted_at_the_end(first, common)
    if first.lost_peer and left is not None:
        message = (
            f"rank {left.rank} exited with code 0 before the others had finished, so rank "
            f"{first.exit.rank} failed"
        )
        details = {"rank": left.rank, "exit_code": 0, **_evidence_fields(first.found), **common}
        return Outcome.of(Reason.USER_ERROR, message, **details)
    return _failed(first, assignment, memory_kills, common)


def _failed_meanwhile(
    facts: Facts, evidence: Mapping[int, Evidence], assignment: AssignmentFile
) -> tuple[int, Evidence] | None:
    """Return a rank of a script that raised during a stop, such as by a save that failed."""
    if assignment.spec.kind == "script":
        for exit_ in facts.exits:
            found = evidence.get(exit_.rank, Evidence())
            if exit_.code == 1 and found.explains and not found.blames_peer:
                return exit_.rank, found
    return None


def _stopped(
    facts: Facts,
    steps: int | None,
    common: dict[str, Any],
    failed: tuple[int, Evidence] | None,
) -> Outcome:
    assert facts.stop is not None, "a stop is the cause only if one was requested"
    ended_well = (
        bool(facts.ranks) and not facts.running() and not any(exit_.failed for exit_ in facts.exits)
    )
    last_step: int | None = common["last_step"]
    if ended_well and steps is not None and last_step is not None and last_step >= steps:
        return Outcome.of(Reason.SUCCEEDED, _all_ended(facts), **common)
    how = _how_stopped(facts, last_step, ended_well=ended_well)
    if failed is not None:
        rank, found = failed
        how += f", but rank {rank} failed: {found.brief}"
        common = {**common, **_evidence_fields(found)}
    return Outcome.of(
        Reason(facts.stop.reason), f"stopped on request ({facts.stop.reason}); {how}", **common
    )


def _how_stopped(facts: Facts, last_step: int | None, *, ended_well: bool) -> str:
    if not facts.ranks:
        return "the ranks had not been started"
    if not facts.left_behind or ended_well:
        return (
            "the ranks were killed after the grace period"
            if facts.grace_over
            else "the ranks ended in time"
        )
    how = "rank 0 exited before a step was complete"
    if last_step:
        how = "rank 0 saved the last completed step and exited"
    if len(facts.ranks) > 1:
        how += ", and the ranks in the next step were killed"
    return how


def _stalled(stalled: StallReport, assignment: AssignmentFile, common: dict[str, Any]) -> Outcome:
    details = {"traceback": stalled.excerpt() or None, **common}
    train = assignment.spec.train
    if stalled.culprits:
        details["rank"] = stalled.culprits[0].rank
    elif train is not None and not train.debug:
        details["advice"] = (
            "Run it once with train.debug: true, which reports ranks that enter different "
            "collectives."
        )
    return Outcome.of(Reason.STALL, stalled.sentence(), **details)


def _left_early(rank: int, common: dict[str, Any]) -> Outcome:
    message = f"rank {rank} exited with code 0 before the end of the run"
    advice = (
        "Find the call of exit() in the task or in a library: a task must return, and the engine "
        "ends the rank."
    )
    return Outcome.of(Reason.USER_ERROR, message, rank=rank, exit_code=0, advice=advice, **common)


def _aborted_at_the_end(first: _Failure, common: dict[str, Any]) -> Outcome:
    """Return an outcome without retry, because a retry would repeat finished work.

    Torch aborted while the interpreter was shutting down.
    """
    message = (
        f"rank {first.exit.rank} aborted (SIGABRT) at its end, after or shortly before its last "
        f"step"
    )
    # torch 2.13: DDP's constructor imports torch.distributed.nn, where ten functions take the group
    # as a default.
    advice = (
        "Release torch's process group and its threads: import torch.distributed.nn before "
        "init_process_group(), and at the end of the script delete the DDP model and call "
        "torch.distributed.destroy_process_group()."
    )
    details = {
        "rank": first.exit.rank,
        "signal": "SIGABRT",
        "advice": advice,
        **_evidence_fields(first.found),
        **common,
    }
    return Outcome.of(Reason.USER_ERROR, message, **details)


def _not_followed(facts: Facts, assignment: AssignmentFile, common: dict[str, Any]) -> Outcome:
    left = facts.exits[0]
    late = next((exit_.rank for exit_ in facts.exits if exit_.torn_down), left.rank)
    message = (
        f"rank {left.rank} exited with code 0, and rank {late} was still running "
        f"{assignment.exit_stall_seconds:g} s later, so it was killed"
    )
    return Outcome.of(Reason.EXIT_STALL, message, rank=late, **common)


def _failures(
    facts: Facts, evidence: Mapping[int, Evidence], assignment: AssignmentFile
) -> list[_Failure]:
    failures = []
    for exit_ in facts.exits:
        if not exit_.failed:
            continue
        found = evidence.get(exit_.rank, Evidence())
        lost_peer = found.blames_peer and assignment.world_size > 1
        number = signal_in(exit_.code, wrapped=assignment.spec.kind == "script")
        silent = exit_.torn_down and number is not None and not found.explains
        failures.append(_Failure(exit_, found, lost_peer, lost_peer or silent, number))
    return failures


def _first(failures: list[_Failure], assignment: AssignmentFile) -> _Failure:
    asked = [each for each in failures if _asks_for_retry(each, assignment)]
    if asked:
        # The code is the wish of the job's own code, also where a shell counts from 128.
        return asked[0]._replace(signal=None, lost_peer=False)
    own = signal.Signals[f"SIG{assignment.spec.stop_signal}"]
    sent = {None, signal.SIGTERM, signal.SIGKILL, own}

    def order(failure: _Failure) -> tuple[bool, bool, float]:
        crashed = failure.secondary and not failure.lost_peer and failure.signal not in sent
        return failure.secondary, not crashed, failure.time

    return min(failures, key=order)


def _asks_for_retry(failure: _Failure, assignment: AssignmentFile) -> bool:
    exit_, reason = failure.exit, failure.found.reason
    is_own = reason in (None, Reason.USER_ERROR) and not exit_.torn_down
    codes = assignment.spec.retry.on_exit
    return is_own and failure.found.counted_code(exit_.code, codes) in codes


def _failed(
    first: _Failure, assignment: AssignmentFile, memory_kills: int, common: dict[str, Any]
) -> Outcome:
    rank, found = first.exit.rank, first.found
    code = found.counted_code(first.exit.code, assignment.spec.retry.on_exit)
    details = {"rank": rank, **_evidence_fields(found), **common}
    if common["last_step"] is None:
        details["last_step"] = found.step or None
    # If a rank raised and was still exiting when the launcher ended it, the signal is the
    # launcher's and adds no information.
    on_its_way_out = first.exit.torn_down and found.explains
    if code >= 0:
        details["exit_code"] = code
    if first.signal is not None and not on_its_way_out:
        details["signal"] = signal_name(first.signal)
    disagreed = disagreement(found.exception)
    if disagreed is not None:
        advice = (
            "Make every rank enter the same collectives in the same order; a task must not call "
            "collectives."
        )
        return Outcome.of(Reason.USER_ERROR, disagreed, advice=advice, **details)
    if found.reason is not None:
        return _reported(found, found.reason, assignment, memory_kills, details)
    if first.lost_peer:
        return Outcome.of(
            Reason.NETWORK, f"rank {rank} lost the other ranks: {found.brief}", **details
        )
    if first.signal is None:
        return _exited(first, assignment, memory_kills, details)
    if first.signal == signal.SIGKILL and memory_kills > 0:
        message = f"rank {rank} was killed because the node's memory ran out"
        return Outcome.of(Reason.HOST_OUT_OF_MEMORY, message, **details)
    if on_its_way_out:
        return Outcome.of(Reason.USER_ERROR, f"rank {rank} raised {found.brief}", **details)
    return _signalled(first, first.signal, details)


def _exited(
    first: _Failure, assignment: AssignmentFile, memory_kills: int, details: dict[str, Any]
) -> Outcome:
    """Return the outcome of a rank that ended with an exit code and without a reason."""
    rank, code, obstacle = first.exit.rank, first.exit.code, first.found.obstacle
    if code in (1, EXIT_CANNOT_RUN) and obstacle is not None:
        message = f"the program of rank {rank} could not start: {obstacle}"
        return Outcome.of(Reason.BAD_SPEC, message, advice=_START_ADVICE, **details)
    program = "script" if assignment.spec.kind == "script" else "the engine"
    message = f"{program} exited with code {code} on rank {rank}"
    if details["exit_code"] != code:
        message += f": {first.found.brief} first"
    if memory_kills > 0 and first.found.exception is None:
        # Such as a shell that went on after `Killed`, and chose its own code.
        killed = "a process" if memory_kills == 1 else f"{memory_kills} processes"
        message += f"; the node's memory ran out meanwhile, and the system killed {killed} on it"
        advice = RULES[Reason.HOST_OUT_OF_MEMORY].advice
        return Outcome.of(Reason.USER_ERROR, message, advice=advice, **details)
    return Outcome.of(Reason.USER_ERROR, message, **details)


def _reported(
    found: Evidence,
    reason: Reason,
    assignment: AssignmentFile,
    memory_kills: int,
    details: dict[str, Any],
) -> Outcome:
    """Return the outcome of a rank whose evidence has a reason."""
    rank, brief = details["rank"], found.brief
    message = f"rank {rank} failed: {brief}"
    if reason is Reason.KILLED and memory_kills > 0:
        killed = "a loader worker" if "loader" in brief.lower() else "a process"
        message = f"{killed} of rank {rank} was killed because the node's memory ran out"
        return Outcome.of(Reason.HOST_OUT_OF_MEMORY, message, **details)
    if reason is Reason.KILLED:
        fault = fault_of(signal_of_child(brief) or "", "")
        details |= {} if fault is None else {"advice": fault.advice}
    if reason is Reason.PORT_IN_USE:
        message = ports.in_use(rank, assignment.node_name, found)
    if reason is Reason.NON_FINITE and (details["last_step"] or 0) <= 1:
        # The learning rate cannot be the cause before the first step; the message has better
        # advice.
        details["advice"] = ""
    return Outcome.of(reason, message, **details)


def _signalled(first: _Failure, number: int, details: dict[str, Any]) -> Outcome:
    """Return the outcome of a rank that a signal ended, with the fault behind it if it has one."""
    name = signal_name(number)
    through = f", exit code {first.exit.code} of its command" if first.exit.code > 0 else ""
    fault = fault_of(name, first.found.traceback or "")
    if fault is None:
        message = f"rank {first.exit.rank} was killed by {name}{through}"
        return Outcome.of(Reason.KILLED, message, **details)
    message = f"rank {first.exit.rank} {fault.message}: {name}{through}"
    return Outcome.of(Reason.KILLED, message, advice=fault.advice, **details)


def _evidence_fields(found: Evidence) -> dict[str, Any]:
    return {"exception": found.exception, "traceback": found.traceback}


def _all_ended(facts: Facts) -> str:
    count = len(facts.ranks)
    return "its rank succeeded" if count == 1 else f"all {count} ranks succeeded"
