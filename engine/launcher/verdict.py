"""From what was seen to the outcome of the attempt on this node. A pure function.

A gang falls like dominoes: one rank dies, its peers fail in their next collective, torch elastic sends SIGTERM to the
rest. A person wants the first. So a failure is *secondary*, and never the outcome while there is another, if the rank
says that it lost a peer, or if it was ended by a signal while the gang was being torn down and says nothing itself. Of
the others the earliest counts, by the time in its error file where it has one: a rank that raised first may well have
exited last.

Not here: what an outcome means for the job (``domain.outcomes``).
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

from domain.attempt import AssignmentFile
from domain.outcomes import Outcome, Reason
from engine.launcher.evidence import Evidence
from engine.launcher.watch import Exit, Facts


def decide(
    facts: Facts,
    evidence: Mapping[int, Evidence],
    assignment: AssignmentFile,
    *,
    last_step: int | None,
    steps: int | None,
    memory_kills: int = 0,
) -> Outcome:
    """How the attempt ended on this node.

    Parameters
    ----------
    facts : Facts
        What the watch saw. At least one rank was started, unless a stop or the fence came first.
    evidence : mapping
        What each failed rank left behind, by rank.
    assignment : AssignmentFile
    last_step : int or None
        Last step in the metrics spool.
    steps : int or None
        Steps of the whole run, where known: a stop that comes after the last one undoes nothing.
    memory_kills : int
        Processes that the kernel killed for lack of memory while the attempt ran.
    """
    common: dict[str, Any] = {"node": assignment.node_name, "last_step": last_step}
    if facts.cause == "fence":
        return Outcome.of(Reason.LOST, "The node's lease was not renewed in time, so its ranks were killed.", **common)
    if facts.cause == "stop":
        return _stopped(facts, steps, common)
    if facts.cause == "exit_stall":
        return _stalled(facts, assignment, common)
    if facts.cause is None:
        return Outcome.of(Reason.SUCCEEDED, _all_ended(facts), **common)
    first = _first_failure(facts, evidence)
    found = evidence.get(first.rank, Evidence())
    if found.blames_peer and len(facts.ranks) > 1:
        left = next((exit_ for exit_ in facts.exits if exit_.code == 0 and not exit_.torn_down), None)
        if left is not None:
            message = (
                f"rank {left.rank} exited with code 0 before the others had finished; rank {first.rank} then failed"
            )
            return Outcome.of(Reason.USER_ERROR, message, rank=left.rank, exit_code=0, **_told(found), **common)
    return _failed(first, found, assignment, memory_kills, common)


def _stopped(facts: Facts, steps: int | None, common: dict[str, Any]) -> Outcome:
    assert facts.stop is not None, "a stop is the cause only when one was asked for"
    ended_well = bool(facts.ranks) and not facts.running() and all(exit_.code == 0 for exit_ in facts.exits)
    last_step: int | None = common["last_step"]
    if ended_well and steps is not None and last_step is not None and last_step >= steps:
        return Outcome.of(Reason.SUCCEEDED, _all_ended(facts), **common)
    how = "the ranks were killed after the grace" if facts.grace_over else "the ranks ended in time"
    if not facts.ranks:
        how = "the ranks had not been started"
    return Outcome.of(Reason(facts.stop.reason), f"Stopped on request ({facts.stop.reason}); {how}.", **common)


def _stalled(facts: Facts, assignment: AssignmentFile, common: dict[str, Any]) -> Outcome:
    left = facts.exits[0]
    late = next((exit_.rank for exit_ in facts.exits if exit_.torn_down), left.rank)
    message = (
        f"rank {left.rank} exited with code 0, and rank {late} had not followed "
        f"{assignment.exit_stall_seconds:g} s later, so it was killed"
    )
    return Outcome.of(Reason.EXIT_STALL, message, rank=late, **common)


def _first_failure(facts: Facts, evidence: Mapping[int, Evidence]) -> Exit:
    failures = [exit_ for exit_ in facts.exits if exit_.code != 0]

    def order(exit_: Exit) -> tuple[bool, float]:
        found = evidence.get(exit_.rank, Evidence())
        silent = not found.tells and exit_.torn_down and exit_.code < 0
        return (found.blames_peer or silent, found.time or exit_.time)

    return min(failures, key=order)


def _failed(
    first: Exit, found: Evidence, assignment: AssignmentFile, memory_kills: int, common: dict[str, Any]
) -> Outcome:
    details = {"rank": first.rank, **_told(found), **common}
    if common["last_step"] is None:
        details["last_step"] = found.step
    if first.code < 0:
        name = signal.Signals(-first.code).name
        details["signal"] = name
        if found.reason is None and not found.blames_peer:
            killed_for_memory = first.code == -signal.SIGKILL and memory_kills > 0
            reason = Reason.HOST_OUT_OF_MEMORY if killed_for_memory else Reason.KILLED
            why = " when the node's memory ran out" if killed_for_memory else ""
            return Outcome.of(reason, f"rank {first.rank} was ended by {name}{why}", **details)
    else:
        details["exit_code"] = first.code
    reason = found.reason or (Reason.NETWORK if found.blames_peer else Reason.USER_ERROR)
    return Outcome.of(reason, _what_failed(first, found, reason, assignment), **details)


def _what_failed(first: Exit, found: Evidence, reason: Reason, assignment: AssignmentFile) -> str:
    if reason is Reason.NETWORK:
        return f"rank {first.rank} lost the other ranks: {_brief(found)}"
    if found.reason is not None:
        return f"rank {first.rank} failed: {_brief(found)}"
    if first.code < 0:
        return f"rank {first.rank} was ended by {signal.Signals(-first.code).name} after {_brief(found)}"
    who = "script" if assignment.spec.kind == "script" else "the engine"
    return f"{who} exited with code {first.code} on rank {first.rank}"


def _brief(found: Evidence) -> str:
    lines = (found.exception or "it gave no reason").splitlines()
    return lines[0][:500]


def _told(found: Evidence) -> dict[str, Any]:
    return {"exception": found.exception, "traceback": found.traceback}


def _all_ended(facts: Facts) -> str:
    count = len(facts.ranks)
    return "its rank ended well" if count == 1 else f"all {count} ranks ended well"
