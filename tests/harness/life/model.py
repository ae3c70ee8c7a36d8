"""Guarantees of Lockstep, as plain dictionaries: an independent result for comparisons.

It follows the pages on the life of a job and on reasons, and calls no code of the product: a model
that used the code under test would agree with every bug. It has leases, tokens and rights, but no
budgets or backoffs. So if a job may be retried or fail, both are correct.

Use: an action is passed to the model *before* the database is read. The model returns the required
answer of the service, and records the events that may follow. ``check`` then replays every new
event against this record.

Not here: actions on the service (``tests.harness.life.actions``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

LEASE_SECONDS: Final = 60.0
OUTAGE_SECONDS: Final = 30.0
HOLD_SECONDS: Final = 10.0
HEARTBEAT_SECONDS: Final = 5.0
CAUSE_SECONDS: Final = 20.0
"""Limit, beside a lease, for a cause from another node if a node of a gang only lost its peers."""

FINAL: Final = frozenset({"succeeded", "failed", "cancelled"})
TRANSITIONS: Final = {
    "placed": ({"queued"}, "starting"),
    "running": ({"starting"}, "running"),
    "succeeded": ({"running"}, "succeeded"),
    "failed": ({"starting", "running"}, "failed"),
    "requeued": ({"starting", "running"}, "queued"),
    "cancelled": ({"queued", "starting", "running"}, "cancelled"),
}
"""Transition of each event: from these states, to this one."""
NEVER_AGAIN: Final = ("user_error", "bad_spec", "timed_out", "non_finite", "exit_stall")
MAYBE_AGAIN: Final = (
    "killed",
    "network",
    "stall",
    "launch_failed",
    "storage",
    "shutdown",
    "preempted",
)
STOPS: Final = ("cancelled", "timed_out", "shutdown", "preempted")
CONSEQUENCES: Final = ("network", "stall")
"""Of a gang: outcomes without a cause.

Neither these nor a stop end other parts that continue.
"""


class PromiseBroken(AssertionError):  # noqa: N818 -- the name is a sentence
    """The service broke one of its guarantees."""


def must(holds: bool, promise: str, *about: object) -> None:
    """Fail with the guarantee if it does not hold."""
    if not holds:
        raise PromiseBroken(": ".join(str(part) for part in (promise, *about)))


@dataclass
class Job:
    """One accepted job."""

    id: str
    state: str = "queued"
    attempt: int = 0
    cancel_asked: bool = False
    cause: str = ""
    """Outcome of its attempt, once that is known. The attempt ends when no part has ranks."""
    cause_at: float = 0.0
    expected: list[set[str]] = field(default_factory=list)
    """Events that must come next, in this order; one of each set."""
    points: dict[int, list[tuple[int, float]]] = field(default_factory=dict)
    checkpoints: set[tuple[int, int]] = field(default_factory=set)


@dataclass
class Part:
    """One node's part of an attempt."""

    id: str
    job: str
    attempt: int
    node: str
    rank: int
    token: str
    devices: tuple[int, ...]
    lease_until: float
    state: str = "assigned"
    offset: int = 0
    said: str = ""
    """Its outcome, as reported by its own node."""
    ended_at: float = 0.0
    claimed: bool = False
    """True if it was ever held."""
    stream: str = "unopened"
    """Otherwise open, or sealed."""

    @property
    def live(self) -> bool:
        return self.state in ("assigned", "claimed")


class Model:
    """All accepted jobs, and their required states."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.parts: dict[str, Part] = {}
        self.seen_at: dict[str, float] = {}
        """Time of each node's last heartbeat."""
        self.cycle_ended_at: float | None = None
        self.cycle_held_until = 0.0
        self.may_place = False
        """True if a cycle ran since the last check."""
        self._last_event = 0

    # -- actions of users
    # ------------------------------------------------------------------------------------------

    def submitted(self, job_id: str) -> None:
        must(job_id not in self.jobs, "a new submit is a new job", job_id)
        self.jobs[job_id] = Job(job_id)

    def cancelled(self, job_id: str) -> bool:
        """Record a cancel. Return True if it is accepted."""
        job = self.jobs[job_id]
        if job.state in FINAL:
            return False
        if not job.cancel_asked:
            job.cancel_asked = True
            gang = [] if job.state == "queued" else self._gang(job)
            if all(part.state == "assigned" for part in gang):  # no part of it runs
                job.expected.append({"cancelled"})
                for part in gang:
                    part.state = "released"
        return True

    # -- actions of nodes
    # -------------------------------------------------------------------------------------------

    def registered(self, node: str, at: float) -> None:
        self.seen_at[node] = at

    def to_claim(self, node: str) -> set[str]:
        return {
            part.id
            for part in self.parts.values()
            if part.node == node and part.state == "assigned"
        }

    def to_hold(self, node: str) -> set[str]:
        return {
            part.id
            for part in self.parts.values()
            if part.node == node and part.state in ("claimed", "ended")
        }

    def claimed(self, part_id: str, at: float) -> bool:
        part = self.parts[part_id]
        first = min(self._gang(self.jobs[part.job]), key=lambda one: one.rank, default=part)
        if part.state != "assigned" or (
            part.rank > 0 and first.rank == 0 and first.state == "assigned"
        ):
            return False
        part.state, part.claimed, part.lease_until = "claimed", True, at + LEASE_SECONDS
        return True

    def renewed(self, node: str, tokens: dict[str, str], at: float) -> dict[str, str | None]:
        """Return the required answer to a heartbeat.

        This is the intent of each part that still belongs to this node.
        """
        self.seen_at[node] = at
        answer: dict[str, str | None] = {}
        for part_id, token in tokens.items():
            part = self.parts[part_id]
            if part.live and part.node == node and part.token == token:
                part.lease_until = at + LEASE_SECONDS
                answer[part_id] = "cancel" if self.jobs[part.job].cancel_asked else None
        return answer

    def holds(self, part_id: str, token: str) -> bool:
        """Return True if a caller with this part and this token may change anything."""
        part = self.parts[part_id]
        return part.state == "claimed" and part.token == token

    def ran(self, part_id: str, token: str) -> bool:
        if not self.holds(part_id, token):
            return False
        job = self.jobs[self.parts[part_id].job]
        if job.state == "starting" and not job.expected:
            job.expected.append({"running"})
        return True

    def opened(self, part_id: str) -> bool:
        """Open the stream of a part that was held once.

        If that was long ago, it may be sealed by now.
        """
        part = self.parts[part_id]
        if part.stream == "sealed":
            return False
        part.stream = "open"
        return True

    def appended(
        self, part_id: str, token: str, before: int, points: list[tuple[int, float]]
    ) -> bool:
        part = self.parts[part_id]
        if part.token != token or part.stream != "open" or part.offset != before:
            return False
        part.offset = before + len(points)
        self.jobs[part.job].points.setdefault(part.attempt, []).extend(points)
        return True

    def published(self, part_id: str, token: str, step: int) -> bool:
        if not self.holds(part_id, token):
            return False
        part = self.parts[part_id]
        self.jobs[part.job].checkpoints.add((part.attempt, step))
        return True

    def finished(self, part_id: str, token: str, reason: str, at: float) -> bool:
        if not self.holds(part_id, token):
            return False
        part = self.parts[part_id]
        part.state, part.said, part.ended_at = "ended", reason, at
        job = self.jobs[part.job]
        gang = self._gang(job)
        if reason not in (*STOPS, *CONSEQUENCES, "succeeded"):
            self._note_cause(job, reason, at)
        if job.cause:
            self._conclude(job)
            return True
        said = [one.said for one in sorted(gang, key=lambda one: one.ended_at) if one.said]
        stops = [one for one in said if one in STOPS]
        # After a stop, no part waits for a part that has not begun.
        if not any(other.state == "claimed" if stops else other.live for other in gang):
            first = stops + [one for one in said if one in CONSEQUENCES]
            self._end_attempt(job, first[0] if first else "succeeded")
        return True

    def cleared(self, part_id: str) -> bool:
        part = self.parts[part_id]
        part.stream = "sealed"
        if part.state != "ended":
            return False
        part.state = "released"
        return True

    # -- actions of schedulers
    # --------------------------------------------------------------------------------------

    def cycle_is_held(self, at: float) -> bool:
        """Return True if another scheduler holds the lease.

        A hold from before the clock was set back delays no scheduler.
        """
        return at < self.cycle_held_until <= at + 2 * HOLD_SECONDS

    def cycle_begins(self, at: float) -> bool:
        """Return True if the cycle may run.

        Leases are spared if the service itself was unavailable.
        """
        if self.cycle_is_held(at):
            return False
        for part in self.parts.values():
            if (
                part.live and part.lease_until > at + LEASE_SECONDS + HEARTBEAT_SECONDS
            ):  # the clock was set back
                part.lease_until = at + LEASE_SECONDS
        if self.cycle_ended_at is not None and at - self.cycle_ended_at > OUTAGE_SECONDS:
            for part in self.parts.values():
                if part.live:
                    part.lease_until = max(part.lease_until, at + LEASE_SECONDS)
        return True

    def cycle_looks(self, at: float) -> None:
        """End the attempts that have expired by now, and no others."""
        for part in sorted(self.parts.values(), key=lambda one: one.lease_until):
            if part.live and part.lease_until < at:
                claimed = part.state == "claimed"
                part.state = "ended" if claimed else "released"
                job = self.jobs[part.job]
                self._note_cause(job, "lost" if claimed else "unanswered", at)
                self._conclude(job)
        for part in self.parts.values():
            job = self.jobs[part.job]
            late = part.state == "claimed" and at - job.cause_at > LEASE_SECONDS
            if job.cause and part.attempt == job.attempt and late:
                part.state = "ended"
                self._conclude(job)
            if part.said in CONSEQUENCES and part.ended_at < at - CAUSE_SECONDS:
                self._settle(part, at)
        for part in self.parts.values():
            if part.state == "ended":
                part.stream = "sealed"
        self.may_place = True

    def _settle(self, part: Part, at: float) -> None:
        """The part lost the others.

        If all of these continued for long enough, none of them names another cause.
        """
        job = self.jobs[part.job]
        others = [
            other for other in self._gang(job) if other.live and other.attempt == part.attempt
        ]
        enough = part.ended_at + CAUSE_SECONDS + LEASE_SECONDS
        if (
            others
            and not job.cause
            and job.attempt == part.attempt
            and all(other.lease_until >= enough for other in others)
        ):
            self._note_cause(job, part.said, at)
            self._conclude(job)

    def cycle_ends(self, at: float) -> None:
        self.cycle_ended_at, self.cycle_held_until = at, 0.0

    # -- invariants
    # -----------------------------------------------------------------------------------------

    def check(self, look: Any, at: float) -> None:
        """Compare the actual with the required state."""
        must(
            look.jobs.keys() == self.jobs.keys(),
            "P1: every accepted job is there, once",
            look.jobs.keys(),
        )
        self._replay(look, at)
        for job in self.jobs.values():
            self._check_job(job, look.jobs[job.id])
        self._check_parts(look)
        saved = sorted((job.id, *saved) for job in self.jobs.values() for saved in job.checkpoints)
        must(
            look.checkpoints == saved,
            "P2: checkpoints are those of who held the job",
            look.checkpoints,
            saved,
        )
        stored = {
            (job.id, attempt): points
            for job in self.jobs.values()
            for attempt, points in job.points.items()
        }
        must(look.points == stored, "P6: every accepted point is there once", look.points, stored)
        self.may_place = False

    def _replay(self, look: Any, at: float) -> None:
        for event in look.events:
            if event.id <= self._last_event:
                continue
            self._last_event = event.id
            if event.kind not in TRANSITIONS:
                continue
            job = self.jobs[event.job]
            sources, target = TRANSITIONS[event.kind]
            must(job.state not in FINAL, "P5: terminal is final", job, event)
            must(job.state in sources, "a step is taken from where it may be", job, event)
            if job.expected:
                must(
                    event.kind in job.expected.pop(0),
                    "P2: only what was caused happens",
                    job,
                    event,
                )
            else:
                must(
                    event.kind == "placed" and self.may_place,
                    "P2: nothing happens by itself",
                    job,
                    event,
                )
                self._placed(job, look, at)
            job.state = target
        left = [job for job in self.jobs.values() if job.expected]
        must(not left, "what was caused happens in the same transaction", left)

    def _placed(self, job: Job, look: Any, at: float) -> None:
        must(not job.cancel_asked, "a cancelled job is not placed", job)
        job.attempt += 1
        attempt = [
            row for row in look.attempts if row.job_id == job.id and row.number == job.attempt
        ]
        must(len(attempt) == 1, "attempts are numbered without a gap", job, look.attempts)
        earlier = [part for part in self.parts.values() if part.job == job.id]
        writing = [part for part in earlier if part.claimed and part.stream != "sealed"]
        must(
            not writing,
            "P2: placed only after every stream before is sealed, opened or not",
            job,
            writing,
        )
        for row in look.parts.values():
            if row.attempt_id != attempt[0].id:
                continue
            must(
                at - self.seen_at[row.node_name] < LEASE_SECONDS,
                "only nodes that were heard get work",
                row.node_name,
            )
            lease = at + LEASE_SECONDS
            devices = tuple(row.device_indices)
            self.parts[row.id] = Part(
                row.id, job.id, job.attempt, row.node_name, row.node_rank, row.token, devices, lease
            )

    def _check_job(self, job: Job, seen: Any) -> None:
        must(seen.state.value == job.state, "P1: a job is where its events say", job, seen.state)
        if job.state == "queued":
            must(bool(seen.reason), "P1: who waits is told why", job)
            must(not job.cancel_asked, "a cancel is never lost", job)
        elif job.state not in FINAL:
            intent = seen.intent and seen.intent.value
            wanted = "cancel" if job.cancel_asked else None
            must(intent == wanted, "a cancel is never lost, and never invented", job, intent)
        ended = seen.finished_at is not None
        must(ended == (job.state in FINAL), "P5: a job has an end exactly if it has ended", job)

    def _check_parts(self, look: Any) -> None:
        live = [row.job_id for row in look.attempts if row.state.value != "ended"]
        must(len(live) == len(set(live)), "one live attempt per job", live)
        alive = {job.id for job in self.jobs.values() if job.state in ("starting", "running")}
        must(set(live) == alive, "a job is live exactly if an attempt is", live, alive)
        states = {row.id: row.state.value for row in look.parts.values()}
        known = {part.id: part.state for part in self.parts.values()}
        must(states == known, "P2: a part is where its node or its lease put it", states, known)
        given: dict[tuple[str, int], str] = {}
        for part in self.parts.values():
            for index in part.devices if part.state != "released" else ():
                must((part.node, index) not in given, "a device belongs to one part at most", part)
                given[part.node, index] = part.id
        held = {device: holder for device, holder in look.holders.items() if holder is not None}
        must(
            held == given, "devices are held by who was given them and has not let go", held, given
        )
        sealed = {stream.assignment_id: stream.sealed for stream in look.streams.values()}
        expected = {
            part.id: part.stream == "sealed"
            for part in self.parts.values()
            if part.stream != "unopened"
        }
        must(
            sealed == expected,
            "a stream is sealed once its part has ended, and not before",
            sealed,
            expected,
        )

    # -- end of an attempt
    # -------------------------------------------------------------------------------------

    def _note_cause(self, job: Job, reason: str, at: float) -> None:
        """Note the first cause of the end. The parts that have not begun end at once."""
        if not job.cause:
            job.cause, job.cause_at = reason, at
        for part in self._gang(job):
            if part.state == "assigned":
                part.state = "released"

    def _conclude(self, job: Job) -> None:
        if not any(part.live for part in self._gang(job)):
            self._end_attempt(job, job.cause)

    def _end_attempt(self, job: Job, reason: str) -> None:
        job.cause = ""
        for other in self._gang(job):
            if other.live:
                other.state = "released" if other.state == "assigned" else "ended"
        if reason == "succeeded":
            job.expected += [{"running"}] if job.state == "starting" else []
            job.expected.append({"succeeded"})
        elif job.cancel_asked or reason == "cancelled":
            job.expected.append({"cancelled"})
        else:
            job.expected.append({"failed"} if reason in NEVER_AGAIN else {"failed", "requeued"})

    def _gang(self, job: Job) -> list[Part]:
        return [
            part
            for part in self.parts.values()
            if part.job == job.id and part.attempt == job.attempt
        ]
