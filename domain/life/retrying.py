"""Retry rules: consequence of an attempt's outcome for its job.

``judge`` applies it to the job's earlier attempts
(``AttemptHistory``). Nothing else decides about a retry:

1. A success succeeds. A requested cancel wins over everything else, and a requested pause over
   each retry. A stop by a user's pause or requeue uses nothing up.
2. A class ``never`` fails, unless the job's own code failed and its spec asks for a retry then:
   with an exit code of ``retry.on_exit``, or with ``retry.on_error``. ``replan`` fails too if the
   micro-batch is one sample already or the loop is the job's own.
3. A job that failed on ``STUCK_NODES_MAX`` nodes after the same step fails: the nodes are not the
   cause.
4. A *counted* attempt uses one of ``retry.max``. **Progress** since the attempt before, whatever
   ended that, restarts the count: for a train job a newer published checkpoint, from which the next
   attempt resumes; for a script, which keeps its own, a later step in its metrics. A run of a week
   that fails every day continues, and one that fails between the same two checkpoints does not.
   With ``retry.max: 3`` a job ends when four attempts in a row made no progress: five attempts in
   all, if the second one made more than the first. Each retry's event has its number.
5. Attempts that are not counted end the job only if it loops: ``FRUITLESS_MAX`` in a row without
   progress, none of which ran for ``LONG_SECONDS``. User code that sends its own launcher SIGTERM
   looks like a service that restarts.
6. No job has more than ``retry.total`` attempts, nor more than ``ATTEMPTS_MAX``, because a script
   can report any step.

Not here: the wait before a retry (``domain.life.timings``), the next placement
(``domain.scheduling.decide``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from lockstep.domain.life.lifecycle import Intent
from lockstep.domain.life.outcomes import RULES, Outcome, Reason, RetryClass
from lockstep.domain.spec.job import Retry

STUCK_NODES_MAX: Final = 3
"""Nodes on which a job may fail after the same step before it is held to be its own fault."""


FRUITLESS_MAX: Final = 30
"""Short attempts in a row without progress. With the backoff about an hour: a service may restart
often, too."""


LONG_SECONDS: Final = 600.0
"""An attempt of at least this duration does not loop, even if its progress is unknown."""


ATTEMPTS_MAX: Final = 1_000


@dataclass(frozen=True)
class AttemptHistory:
    """Summary of a job's earlier attempts for the rules."""

    charged: int = 0
    """Counted attempts since the last progress."""
    fruitless: int = 0
    """Short attempts in a row without progress, counted or not."""
    step: int = 0
    """Progress of the job at the end of its last attempt; see ``AttemptEnd.reached``."""
    stuck_step: int | None = None
    """The step after which the last counted attempt failed."""
    stuck_nodes: tuple[str, ...] = ()
    """On which nodes, one after the other, attempts have failed after it."""


@dataclass(frozen=True)
class AttemptEnd:
    """Facts about an ended attempt, beside its outcome."""

    number: int
    """Counted from 1."""
    ran_seconds: float
    """From all ranks having met to the end; 0 where they never met."""
    reached: int
    """Step from which the next attempt resumes: a train job's newest published checkpoint, a
    script's last step; 0 if none."""
    retry: Retry
    """Of the spec."""
    intent: Intent | None = None
    """Request to the attempt. A cancel wins over any retry and any failure: nothing of the job
    runs, as requested. It does not undo a success."""
    can_halve: bool = False
    """The plan's micro-batch holds more than one sample."""


@dataclass(frozen=True)
class JobDecision:
    """Consequence of an outcome for the job."""

    transition: str
    """A name from ``lifecycle.TRANSITIONS``."""
    charged: bool
    record: AttemptHistory
    """To be judged by the next time."""
    failures: int = 0
    """Number of doublings of the wait (``Timings.backoff``); 0 retries at once."""
    halve: bool = False
    """The next attempt runs half the micro-batch."""
    note: str = ""
    """Reason for not retrying, although the outcome's reason allows it."""
    explanation: str = ""
    """Number of this retry of ``retry.max``, and why the count started again if it did; empty
    without a retry."""
    advice: str = ""
    """Replaces the outcome's advice if the note requires another action."""


def judge(outcome: Outcome, before: AttemptHistory, ending: AttemptEnd) -> JobDecision:
    """Return the decision about a job whose attempt ended with ``outcome``.

    The module lists the rules.
    """
    rule = RULES[outcome.reason]
    if outcome.reason is Reason.SUCCEEDED:
        return JobDecision("succeed", charged=False, record=before)
    if ending.intent is Intent.CANCEL or rule.state == "cancelled":
        return JobDecision("cancel", charged=False, record=before)
    is_refused = rule.retry is RetryClass.NEVER and not _is_asked_for(outcome, ending.retry)
    if is_refused or (rule.retry is RetryClass.REPLAN and not ending.can_halve):
        return JobDecision("fail", rule.charged, record=before)
    if rule.retry is RetryClass.AS_ASKED:
        return JobDecision(_transition(outcome, ending), False, _kept(before, ending))
    record = _recorded(outcome, before, ending, charged=rule.charged)
    verdict = JobDecision(
        _transition(outcome, ending),
        rule.charged,
        record,
        # The first attempt that is not counted does not wait: usually a service was restarted.
        failures=record.fruitless if rule.charged else record.fruitless - 1,
        halve=rule.retry is RetryClass.REPLAN,
    )
    note, advice = _why_not_again(record, ending, charged=rule.charged)
    if note:
        return replace(verdict, transition="fail", halve=False, note=note, advice=advice)
    return replace(verdict, explanation=_which_retry(before, record, ending, charged=rule.charged))


def _transition(outcome: Outcome, ending: AttemptEnd) -> str:
    """Return what follows an attempt that does not end the job."""
    # The request may have been replaced since, or lost with a restored database.
    is_paused = outcome.reason is Reason.PAUSED and ending.intent is not Intent.REQUEUE
    return "pause" if is_paused or ending.intent is Intent.PAUSE else "requeue"


def _kept(before: AttemptHistory, ending: AttemptEnd) -> AttemptHistory:
    """Return the record after a stop by a user, which only progress changes."""
    if ending.reached <= before.step:
        return before
    return replace(before, charged=0, fruitless=0, step=ending.reached)


def _is_asked_for(outcome: Outcome, retry: Retry) -> bool:
    """Return whether the spec asks for a retry after this failure of the job's own code."""
    is_own = outcome.reason is Reason.USER_ERROR
    return is_own and (retry.on_error or outcome.exit_code in retry.on_exit)


class ScriptRetries(NamedTuple):
    """Reasons for the end of a script's attempt, by what follows."""

    again: tuple[Reason, ...]
    """The script is started again; counted against ``retry.max``."""
    not_counted: tuple[Reason, ...]
    """The script is started again; not counted."""
    never: tuple[Reason, ...]
    """The job fails."""

    def sentences(self, retry: Retry) -> list[str]:
        """Return the same as text."""
        again, not_counted, never = (", ".join(reasons) for reasons in self)
        limit = (
            f"at most {_times(retry.max)} in a row without a later step in its "
            f"metrics, after {again}{_asked_for(retry)}; "
            if again
            else "never after a failure, because retry.max is 0; "
        )
        if retry.total is not None:
            limit = f"at most {retry.total} attempts in all; {limit}"
        return [
            f"started again: {limit}not counted after {not_counted}",
            f"not started again: after {never}; user_error is an exception or an exit code other "
            "than 0",
            "a script that is started again begins with its command, in a new folder with the "
            "files that it kept: it must resume from them",
        ]


def _asked_for(retry: Retry) -> str:
    if retry.on_error or not retry.on_exit:
        return ""
    codes = ", ".join(map(str, retry.on_exit))
    return f", and after exit code {codes}"


def retries_of_script(retry: Retry) -> ScriptRetries:
    """Judge each reason as the end of a script's first attempt."""
    end = AttemptEnd(number=1, ran_seconds=0, reached=0, retry=retry)
    decisions = {
        reason: judge(Outcome.of(reason, ""), AttemptHistory(), end)
        for reason, rule in RULES.items()
        if not rule.train_only
    }

    def having(transition: str, *charged: bool) -> tuple[Reason, ...]:
        return tuple(
            reason
            for reason, decision in decisions.items()
            if decision.transition == transition and decision.charged in charged
        )

    return ScriptRetries(
        again=having("requeue", True),
        not_counted=having("requeue", False),
        never=having("fail", True, False),
    )


def _which_retry(
    before: AttemptHistory, record: AttemptHistory, ending: AttemptEnd, *, charged: bool
) -> str:
    if not charged:
        return "not counted as a retry"
    which = f"retry {record.charged} of {ending.retry.max}"
    if before.charged and record.step > before.step:
        return (
            f"{which}: the count is reset, because the job advanced from step {before.step} to "
            f"step {record.step}"
        )
    if record.charged > 1:
        return f"{which} without progress" + (f" since step {record.step}" if record.step else "")
    return which


def _attempts(count: int) -> str:
    return "one attempt" if count == 1 else f"{count} attempts"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _recorded(
    outcome: Outcome, before: AttemptHistory, ending: AttemptEnd, *, charged: bool
) -> AttemptHistory:
    progressed = ending.reached > before.step
    stuck_step, stuck_nodes = before.stuck_step, before.stuck_nodes
    if charged:
        if outcome.last_step != stuck_step:
            stuck_step, stuck_nodes = outcome.last_step, ()
        if (
            outcome.last_step is not None
            and outcome.node is not None
            and outcome.node not in stuck_nodes
        ):
            stuck_nodes = (*stuck_nodes, outcome.node)
    return AttemptHistory(
        charged=(0 if progressed else before.charged) + (1 if charged else 0),
        fruitless=1 if progressed or ending.ran_seconds >= LONG_SECONDS else before.fruitless + 1,
        step=max(before.step, ending.reached),
        stuck_step=stuck_step,
        stuck_nodes=stuck_nodes,
    )


def _why_not_again(record: AttemptHistory, ending: AttemptEnd, *, charged: bool) -> tuple[str, str]:
    """Return the obstacle to a retry that the reason allows, and advice. Empty if there is none."""
    if charged and len(record.stuck_nodes) >= STUCK_NODES_MAX:
        nodes = ", ".join(record.stuck_nodes)
        return (
            f"it failed on {len(record.stuck_nodes)} nodes ({nodes}) after the same step, so "
            "the job itself is the cause",
            f"Check the job's code and the samples of the batch after step {record.stuck_step}.",
        )
    if charged and record.charged > ending.retry.max:
        counted = "an attempt" if record.charged == 1 else f"{record.charged} attempts in a row"
        further = f"no further than step {record.step}" if record.step else "no further"
        note = f"{counted} got {further}, and retry.max is {ending.retry.max}"
        if earlier := ending.number - record.charged:
            note += (
                f"; {earlier} of the {ending.number} attempts {'is' if earlier == 1 else 'are'} "
                "not counted, because progress resets the count and ends such as a preemption "
                "are excluded"
            )
        return note, ""
    if not charged and record.fruitless >= FRUITLESS_MAX:
        return (
            f"{record.fruitless} attempts in a row ended early and made no progress",
            "Find the cause: the job's code may stop its launcher, or the service restarts too "
            "often.",
        )
    if ending.retry.total is not None and ending.number >= ending.retry.total:
        return f"it had {_attempts(ending.number)}, and retry.total is {ending.retry.total}", ""
    if ending.number >= ATTEMPTS_MAX:
        return f"it had {ending.number} attempts", ""
    return "", ""
