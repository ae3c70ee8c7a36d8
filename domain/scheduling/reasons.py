"""Sentences of the reasons for which jobs wait.

Not here: the choice of the reason (``domain.scheduling.decide``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from lockstep.domain.kinds.offers import named
from lockstep.domain.scheduling import forecast
from lockstep.domain.scheduling.state import WaitCode, WaitReason

Facts = Mapping[str, Any]


def sentence(reason: WaitReason) -> str:
    """Return the reason as one sentence without a full stop."""
    return _SENTENCES[reason.code](reason.facts)


def _holds(facts: Facts) -> str:
    where, needs, start = listed(facts["nodes"]), facts["needs"], facts["starts_at"]
    if start is None:
        missing = counted(needs - facts["free"], "more free device")
        return f"holds {where} and waits for {missing} (needs {needs}, {facts['free']} free there)"
    moment = datetime.fromtimestamp(start, UTC)
    about = "at the latest" if facts["is_sure"] else "about"
    return (
        f"holds {where} for its {counted(needs, 'device')}, and starts there {about} "
        f"{moment:%Y-%m-%d %H:%M} UTC"
    )


def _behind(facts: Facts) -> str:
    if facts["job"] is not None:
        return f"behind job {facts['job']}, which needs the same devices"
    if facts["needs"] == 1:
        return f"waits for a free device{_of_type(facts)}"
    missing = counted(facts["needs"] - facts["free"], "more free device")
    return f"waits for {missing}{_of_type(facts)} (needs {facts['needs']}, {facts['free']} free)"


def _fair_share(facts: Facts) -> str:
    return (
        f"{_behind(facts)}; later jobs go first, because they are of projects or people with fewer "
        "devices for their share"
    )


def _limit(facts: Facts) -> str:
    who = f"project {facts['project']}"
    if facts["user"] is not None:
        who = f"{facts['user']} in {who}"
    held = f" and {facts['held']} held for its next jobs" if facts["held"] else ""
    return (
        f"{who} has {facts['in_use']} of at most {counted(facts['gpus_max'], 'device')} in use"
        f"{held}, and the job needs {facts['needs']}"
    )


def budget(facts: Facts) -> str:
    """Return that a project has used up its budget."""
    return (
        f"project {facts['project']} has used {facts['used_hours']:g} of its "
        f"{facts['budget_hours']:g} device-hours of 30 days"
    )


def _fragmented(facts: Facts) -> str:
    asked = f"{counted(facts['needs'], 'device')}{_of_type(facts)}"
    where = "one node" if facts["nodes"] == 1 else f"{facts['nodes']} nodes"
    return (
        f"needs {asked} on {where}{_that_offer(facts)}; {facts['free']} are free, but not together"
    )


def _needs(facts: Facts) -> str:
    if facts["missing"]:
        return f"no ready node offers {named(facts['missing'], 'or')}"
    if not facts["ready"]:
        return f"no ready node offers {named(facts['offers'], 'and')} together"
    verb = "is" if facts["ready"] == 1 else "are"
    return f"needs {facts['nodes']} nodes{_that_offer(facts)}; {facts['ready']} {verb} ready now"


def _never_fits(facts: Facts) -> str:
    if "types" in facts:
        types = ", ".join(facts["types"])
        return f"no ready node has devices of type {facts['type']} (available types: {types})"
    if facts["nodes"] == 1:
        asked = f"{counted(facts['needs'], 'device')}{_of_type(facts)} on one node"
        return f"needs {asked}{_that_offer(facts)}; the largest ready now has {facts['largest']}"
    each = counted(facts["needs"] // facts["nodes"], "device")
    return (
        f"needs {facts['nodes']} nodes with {each}{_of_type(facts)} each{_that_offer(facts)}; "
        f"{facts['capable']} such nodes are ready now"
    )


def _no_node(facts: Facts) -> str:
    if not facts["registered"]:
        return "no node is registered yet"
    return (
        f"no node is ready: {counted(facts['registered'], 'node')} registered, none of them ready; "
        "lockstep nodes shows the reasons"
    )


def _backoff(facts: Facts) -> str:
    return f"retries in {max(1, round(facts['seconds']))} s after a failure"


def _sealing(_facts: Facts) -> str:
    return "waits until the output of its last attempt is stored"


def _restored(_facts: Facts) -> str:
    return (
        "waits after the restore of a backup, until no attempt can run that the backup does not "
        "have"
    )


def _unreadable(facts: Facts) -> str:
    return f"upgrade the scheduler: {facts['error']}"


_SENTENCES: Final[Mapping[WaitCode, Callable[[Facts], str]]] = {
    WaitCode.HOLDS: _holds,
    WaitCode.BEHIND: _behind,
    WaitCode.FAIR_SHARE: _fair_share,
    WaitCode.LIMIT: _limit,
    WaitCode.BUDGET: budget,
    WaitCode.FRAGMENTED: _fragmented,
    WaitCode.NEEDS: _needs,
    WaitCode.NEVER_FITS: _never_fits,
    WaitCode.NO_NODE: _no_node,
    WaitCode.BACKOFF: _backoff,
    WaitCode.SEALING: _sealing,
    WaitCode.RESTORED: _restored,
    WaitCode.UNREADABLE: _unreadable,
}


def unknown_start(code: WaitCode | None, place: int = 0, facts: Facts | None = None) -> str:
    """Return why the start of a job at a place of the queue is not known, as one sentence."""
    facts = facts or {}
    if code is WaitCode.LIMIT and facts.get("needs", 0) > facts.get("gpus_max", math.inf):
        return (
            f"it can never start: it needs {facts['needs']} devices, and the limit is "
            f"{facts['gpus_max']}; raise the limit, or submit the job with fewer devices"
        )
    if code not in _UNKNOWN and place > forecast.JOBS_MAX:
        return f"starts are predicted for the first {forecast.JOBS_MAX} jobs of the queue"
    return _UNKNOWN.get(code, _NOT_PREDICTED)


_NOT_PREDICTED: Final = (
    "a job before it, or one that runs, has no time limit and no speed, or it is after the "
    f"{forecast.JOBS_MAX} jobs and {forecast.MOMENTS_MAX} times of a prediction"
)
_NODE: Final = "it starts once such a node is ready"
_UNKNOWN: Final[Mapping[WaitCode | None, str]] = {
    None: "the scheduler has not processed it yet",
    WaitCode.NEEDS: _NODE,
    WaitCode.NEVER_FITS: _NODE,
    WaitCode.NO_NODE: "it starts once a node is ready",
    WaitCode.LIMIT: "it starts once enough of those devices are given back",
    WaitCode.BUDGET: "it starts once less was used in the last 30 days, or the budget is raised",
    WaitCode.SEALING: "it starts once that is done",
    WaitCode.RESTORED: "it starts once that time is over",
    WaitCode.UNREADABLE: "it starts after the upgrade",
}


def listed(names: Sequence[str]) -> str:
    """Return the first name and the number of the others."""
    if len(names) == 1:
        return names[0]
    return f"{names[0]} and {counted(len(names) - 1, 'more node')}"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _of_type(facts: Facts) -> str:
    return f" of type {facts['type']}" if facts["type"] else ""


def _that_offer(facts: Facts) -> str:
    """Return the condition on the nodes, if there is one."""
    if not facts["offers"]:
        return ""
    verb = "offers" if facts["nodes"] == 1 else "offer"
    return f" that {verb} {named(facts['offers'], 'and')}"
