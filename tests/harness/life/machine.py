"""Random actions of users, nodes, schedulers, notifications and time.

Hypothesis selects them; the model has the correct result. Each rule does one thing to the real
service and, first, to the model. After each, everything is compared. At the end of an example all
nodes are intact again, and every job must reach its end.

Not here: the correct result (``tests.harness.life.model``), and runs (``tests.faults.test_model``).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lockstep.broker.messages import StartAssignment, WakeScheduler
from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.life.outcomes import Outcome, Reason
from lockstep.domain.spec.job import JobSpec
from lockstep.domain.training.metrics import StepValues
from lockstep.storage.attempts import attempts, checkpoints
from lockstep.storage.control import scheduler_lease
from lockstep.storage.jobs import jobs
from lockstep.storage.series import series, streams
from lockstep.storage.series.streams import Writer
from tests.harness.life.in_process import Service
from tests.harness.life.model import (
    HOLD_SECONDS,
    LEASE_SECONDS,
    MAYBE_AGAIN,
    NEVER_AGAIN,
    Model,
    PromiseBroken,
    must,
)

NODES: Final = {"n1": 2, "n2": 2}
SPARE_NODES: Final = {"n3": 2, "n4": 2}
"""Added for the end, in case the others are quarantined."""
JOBS_MAX: Final = 4
SHAPES: Final = {
    "one": {"gpus": 1},
    "two": {"gpus": 2},
    "gang": {"gpus": 4, "nodes": 2},
}
HOUR: Final = 3600.0
ROUNDS_TO_THE_END: Final = 80
ANY: Final = st.integers(0, 11)
"""Number of an existing object, modulo their count."""


@dataclass
class Grip:
    """State of an agent about a part that it has claimed or adopted."""

    part: str
    token: str
    node: str
    job: str
    writer: Writer | None = None
    """Its right to open the stream, if it has asked, perhaps long ago."""
    offset: int = 0
    step: int = 0


class Life(RuleBasedStateMachine):
    """State machine of this module. ``service`` is set by a subclass."""

    service: ClassVar[Service]

    @initialize(
        shapes=st.lists(st.sampled_from(sorted(SHAPES)), min_size=1, max_size=3),
        started=st.integers(0, 3),
    )
    def begin(self, shapes: list[str], started: int) -> None:
        self.service.wipe()
        self.model = Model()
        self.dead: set[str] = set()
        self.grips: dict[str, Grip] = {}
        """State of the agents, by part."""
        self.ghosts: list[Grip] = []
        """Claims of the past that an agent still holds."""
        self.keys: list[tuple[str, dict[str, Any], str]] = []
        self.submits = 0
        for node, devices in NODES.items():
            self.add_node(node, devices)
        for shape in shapes:
            self.submit(shape, 3)
        if started:  # three of four lives begin with a running job
            self.run_one_cycle()
            self.agree()
            for node in NODES:
                self.heartbeat(node)

    # -- users
    # ----------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.model.jobs) < JOBS_MAX)
    @rule(shape=st.sampled_from(sorted(SHAPES)), retries=st.integers(0, 3))
    def submit(self, shape: str, retries: int) -> None:
        self.submits += 1
        body = {
            "name": f"job-{self.submits}",
            "kind": "script",
            "resources": SHAPES[shape],
            "retry": {"max": retries},
            "script": {"command": ["true"]},
        }
        if shape == "gang":
            job_id = self.create(body)  # without the route, which does not accept gangs yet
        else:
            key = f"key-{self.submits}"
            answer = self.service.http.post("/v1/jobs", json=body, headers={"Idempotency-Key": key})
            must(answer.status_code == 201, "P1: a good submit is accepted", answer.text)
            job_id = answer.json()["id"]
            self.keys.append((key, body, job_id))
        self.model.submitted(job_id)

    @precondition(lambda self: self.keys)
    @rule(which=ANY)
    def repeat_submit(self, which: int) -> None:
        key, body, job_id = self.keys[which % len(self.keys)]
        answer = self.service.http.post("/v1/jobs", json=body, headers={"Idempotency-Key": key})
        must(
            (answer.status_code, answer.json()["id"]) == (200, job_id),
            "a repeat is the same job",
            answer.text,
        )

    @precondition(lambda self: self.model.jobs)
    @rule(which=ANY)
    def cancel(self, which: int) -> None:
        job_id = sorted(self.model.jobs)[which % len(self.model.jobs)]
        accepted = self.model.cancelled(job_id)
        answer = self.service.http.post(f"/v1/jobs/{job_id}/cancel")
        must(
            answer.status_code == (202 if accepted else 409),
            "a cancel is taken unless the job has ended",
            answer.text,
        )

    # -- nodes
    # ----------------------------------------------------------------------------------------------

    @rule(node=st.sampled_from(sorted(NODES)))
    def heartbeat(self, node: str) -> None:
        if node in self.dead:
            return
        self.renew(
            node, {grip.part: grip.token for grip in self.grips.values() if grip.node == node}
        )
        self.agree()
        self.look_around(node)

    @precondition(lambda self: self.grips)
    @rule(which=ANY)
    def ranks_meet(self, which: int) -> None:
        self.mark_running(self.a_grip(which))

    @precondition(lambda self: self.grips)
    @rule(which=ANY, count=st.integers(1, 3), times=st.integers(1, 2))
    def report(self, which: int, count: int, times: int) -> None:
        self.append(self.a_grip(which), count, times)

    @precondition(lambda self: self.grips)
    @rule(which=ANY, times=st.integers(1, 2))
    def checkpoint(self, which: int, times: int) -> None:
        grip = self.a_grip(which)
        grip.step += 1
        for _time in range(times):
            self.publish(grip, grip.part, grip.token)

    @precondition(lambda self: self.grips)
    @rule(which=ANY, reason=st.sampled_from(["succeeded", *NEVER_AGAIN, *MAYBE_AGAIN]))
    def finish(self, which: int, reason: str) -> None:
        grip = self.a_grip(which)
        self.end(grip, grip.part, grip.token, reason)
        self.ghosts.append(self.grips.pop(grip.part))

    @precondition(lambda self: self.model.parts)
    @rule(
        which=ANY,
        what=st.sampled_from(["heartbeat", "run", "append", "publish", "finish"]),
        confused=st.booleans(),
        reason=st.sampled_from(["succeeded", "user_error", "killed"]),
    )
    def stale(self, which: int, what: str, confused: bool, reason: str) -> None:
        """Act on an old claim.

        If confused, name the current claim of another with the own old token.
        """
        newest = max(self.model.parts.values(), key=lambda part: (part.state == "claimed", part.id))
        never = Grip(newest.id, "never assigned", newest.node, newest.job)
        ghost = self.ghosts[which % len(self.ghosts)] if self.ghosts else never
        part = newest.id if confused else ghost.part
        named = self.model.parts[part]
        match what:
            case "heartbeat":
                # The name of its own node: the other condition of a renewal must not cause the
                # refusal.
                self.renew(named.node, {part: ghost.token})
            case "run":
                self.mark_running(Grip(part, ghost.token, ghost.node, named.job))
            case "append":
                mine = ghost.writer if part == ghost.part else None
                self.append(
                    Grip(part, ghost.token, ghost.node, named.job, mine, named.offset, 999), 1, 1
                )
            case "publish":
                self.publish(
                    Grip(part, ghost.token, ghost.node, named.job, step=999), part, ghost.token
                )
            case "finish":
                self.end(ghost, part, ghost.token, reason)

    @rule(node=st.sampled_from(sorted(NODES)), remembers=st.booleans())
    def die_or_come_back(self, node: str, remembers: bool) -> None:
        """Silence a node, or let it return.

        It returns unchanged after a stop, or without state after a restart.
        """
        if node not in self.dead:
            self.dead.add(node)
            return
        self.dead.discard(node)
        if not remembers:
            for grip in [grip for grip in self.grips.values() if grip.node == node]:
                self.ghosts.append(self.grips.pop(grip.part))

    # -- notifications
    # ----------------------------------------------------------------------------------------------

    @precondition(lambda self: self.service.notifications.sent)
    @rule(which=ANY, times=st.integers(0, 2))
    def deliver(self, which: int, times: int) -> None:
        notifications = self.service.notifications.sent
        notifier = notifications.pop(which % len(notifications))
        for _time in range(times):
            if isinstance(notifier, WakeScheduler):
                self.run_one_cycle()
            elif notifier.node_name in self.dead:
                continue
            elif isinstance(notifier, StartAssignment):
                self.claim(notifier.assignment_id, notifier.node_name)
            else:
                self.read_intents(notifier.node_name)
            self.agree()

    # -- schedulers
    # ----------------------------------------------------------------------------------------------

    @rule()
    def reconcile(self) -> None:
        self.run_one_cycle()

    @rule(after=st.integers(1, 3))
    def two_schedulers(self, after: int) -> None:
        """Freeze a scheduler between two pieces of its cycle for longer than its lease.

        Another one runs a whole cycle.
        """
        self.run_one_cycle()
        self.agree()
        if not self.model.cycle_begins(self.now):
            return
        self.model.cycle_looks(self.now)
        calls = 0

        def frozen() -> bool:
            nonlocal calls
            calls += 1
            if calls == after:
                self.service.clock.advance(HOLD_SECONDS + 1)
                self.model.cycle_looks(self.now)
                must(
                    self.service.run_one_cycle("two").held,
                    "a lease that was held too long is free",
                    self.now,
                )
            return False

        try:
            self.service.run_one_cycle("one", stopping=frozen)
        except LockstepError as error:
            # It was frozen before its last write, the reasons why jobs wait.
            must(error.code is ErrorCode.UNAVAILABLE, "a cycle without its lease ends", error)
        self.model.cycle_ends(self.now)

    @rule()
    def scheduler_dies(self) -> None:
        """It has taken the lease and never releases it."""
        with self.service.database.jobs() as session:
            taken = scheduler_lease.take(session, f"dead-{self.now}", ttl_seconds=HOLD_SECONDS)
        must(taken != self.model.cycle_is_held(self.now), "one pass at a time", taken)
        if taken:
            self.model.cycle_held_until = self.now + HOLD_SECONDS

    # -- time
    # ----------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1.0, 6.0, 20.0, 45.0]))
    def tick(self, seconds: float) -> None:
        self.service.clock.advance(seconds)

    @rule(rounds=st.sampled_from([1, 3, 6]), unheard=st.sampled_from(["", *sorted(NODES)]))
    def minutes_pass(self, rounds: int, unheard: str) -> None:
        """Let nodes send heartbeats and cycles run, as in normal operation.

        Or cut off one node, perhaps for a lease.
        """
        for _round in range(rounds):
            self.service.clock.advance(15.0)
            for node in NODES:
                if node != unheard:
                    self.heartbeat(node)
                    self.agree()
            self.run_one_cycle()
            self.agree()

    @rule(forward=st.booleans())
    def clock_jump(self, forward: bool) -> None:
        self.service.clock.advance(HOUR if forward else -HOUR)

    @rule()
    def restart(self) -> None:
        self.service.restart()

    # -- invariants
    # -----------------------------------------------------------------------------------------

    @invariant()
    def agree(self) -> None:
        self.model.check(self.service.look(), self.now)
        # No two moments are the same, so no lease ends exactly at the moment of a cycle.
        self.service.clock.advance(0.01)

    def teardown(self) -> None:
        if not hasattr(self, "model") or isinstance(sys.exc_info()[1], PromiseBroken):
            return  # a violation that exists already would only be reported as another
        self.agree()
        self.dead.clear()
        for node, devices in SPARE_NODES.items():
            self.add_node(node, devices)
        for _round in range(ROUNDS_TO_THE_END):
            if all(
                job.state in ("succeeded", "failed", "cancelled")
                for job in self.model.jobs.values()
            ):
                break
            self.service.clock.advance(15.0)
            for node in (*NODES, *SPARE_NODES):
                self.heartbeat(node)
                self.agree()
            for grip in list(self.grips.values()):
                self.end(grip, grip.part, grip.token, "succeeded")
                self.agree()
                self.grips.pop(grip.part)
            self.run_one_cycle()
            self.agree()
        left = [
            job
            for job in self.model.jobs.values()
            if job.state not in ("succeeded", "failed", "cancelled")
        ]
        must(not left, "P1: every accepted job comes to its end", left)

    # -- the functions that the programs call
    # ---------------------------------------------------------------

    @property
    def now(self) -> float:
        return self.service.clock.at

    def a_grip(self, which: int) -> Grip:
        return self.grips[sorted(self.grips)[which % len(self.grips)]]

    def add_node(self, node: str, devices: int) -> None:
        self.service.register(node, devices)
        self.model.registered(node, self.now)

    def create(self, body: dict[str, Any]) -> str:
        with self.service.database.jobs() as session:
            job, _new = jobs.create(
                session,
                document=body,
                spec=JobSpec.model_validate(body),
                plan=None,
                actor="ada",
                idempotency=None,
            )
            return job.id

    def run_one_cycle(self) -> None:
        may = self.model.cycle_begins(self.now)
        if may:
            self.model.cycle_looks(self.now)
        report = self.service.run_one_cycle("one")
        must(report.held == may, "one pass at a time", report)
        must(not report.failed, "a cycle does all its work", report.failed)
        if may:
            self.model.cycle_ends(self.now)

    def claim(self, part: str, node: str) -> None:
        expected = part in self.model.parts and self.model.claimed(part, self.now)
        with self.service.database.jobs() as session:
            claim = attempts.claim(
                session, part, node, lease_seconds=LEASE_SECONDS, rendezvous_port=1
            )
        must((claim is not None) == expected, "of all deliveries one claims", part)
        if claim is not None:
            self.grips[part] = Grip(part, claim.token, node, claim.job_id)
            self.ask_to_write(self.grips[part])

    def renew(self, node: str, tokens: dict[str, str]) -> None:
        expected = self.model.renewed(node, tokens, self.now)
        with self.service.database.jobs() as session:
            answer = attempts.renew(session, node, tokens, lease_seconds=LEASE_SECONDS)
        said = {part: None if intent is None else intent.value for part, intent in answer.items()}
        must(said == expected, "P2: only the holder of a part is confirmed", said, expected)
        for part in tokens.keys() - answer.keys():
            if part in self.grips and self.grips[part].token == tokens[part]:
                self.ghosts.append(self.grips.pop(part))

    def look_around(self, node: str) -> None:
        """Act as an agent after its renewal: adopt, clear, claim."""
        with self.service.database.read_jobs() as session:
            unclaimed = attempts.unclaimed(session, node)
            held = attempts.held(session, node)
        must(
            set(unclaimed) == self.model.to_claim(node),
            "a lost notification is made good by a heartbeat",
            unclaimed,
        )
        must(
            {one.assignment_id for one in held} == self.model.to_hold(node),
            "a restarted agent finds its own",
            held,
        )
        for one in held:
            if one.state.value == "claimed":
                offset = self.model.parts[one.assignment_id].offset
                adopted = Grip(one.assignment_id, one.token, node, one.job_id, offset=offset)
                self.grips.setdefault(one.assignment_id, adopted)
            else:
                self.clear(one.assignment_id, node)
        for part in unclaimed:
            self.claim(part, node)

    def clear(self, part: str, node: str) -> None:
        named = self.model.parts[part]
        expected = self.model.cleared(part)
        with self.service.database.series() as session:
            streams.seal(session, part, job_id=named.job, attempt=named.attempt)
        with self.service.database.jobs() as session:
            released = attempts.release(session, part, node)
        must(released == expected, "a part is released once", part)

    def read_intents(self, node: str) -> None:
        with self.service.database.read_jobs() as session:
            wanted = attempts.wanted(session, node)
        mine = [
            part
            for part in self.model.parts.values()
            if part.node == node and part.state == "claimed"
        ]
        expected = {part.id: "cancel" for part in mine if self.model.jobs[part.job].cancel_asked}
        must(
            {part: intent.value for part, intent in wanted.items()} == expected,
            "a cancel is never lost",
            wanted,
        )

    def mark_running(self, grip: Grip) -> None:
        expected = self.model.ran(grip.part, grip.token)
        with self.service.database.jobs() as session:
            said = attempts.mark_running(session, grip.part, grip.token)
        must(said == expected, "P2: only who holds it says that it runs", grip)

    def ask_to_write(self, grip: Grip) -> None:
        """Ask the jobs database for the right to open the stream.

        The answer is kept, however old it becomes.
        """
        if grip.writer is None:
            with self.service.database.read_jobs() as session:
                grip.writer = attempts.writer(session, grip.part, grip.token)
            entitled = self.model.holds(grip.part, grip.token)
            must(
                (grip.writer is not None) == entitled,
                "P2: only who holds a part may open its stream",
                grip,
            )

    def append(self, grip: Grip, count: int, times: int) -> None:
        """Send a batch of points, ``times`` times."""
        self.ask_to_write(grip)
        if grip.writer is not None:
            opened = self.model.opened(grip.part)
            with self.service.database.series() as session:
                said = streams.open_stream(session, grip.writer)
            must(said == opened, "P2: a stream is opened before its part has ended", grip)
        points = [(grip.step + index + 1, float(grip.step + index)) for index in range(count)]
        before = grip.offset
        for _time in range(times):
            expected = self.model.appended(grip.part, grip.token, before, points)
            records = [StepValues(step, self.now, {"loss": value}) for step, value in points]
            with self.service.database.series() as session:
                said = series.append(
                    session,
                    assignment_id=grip.part,
                    token=grip.token,
                    offset_before=before,
                    offset_after=before + count,
                    records=records,
                )
            must(said == expected, "P6: a batch is stored once, and for its holder only", grip)
        grip.offset, grip.step = self.model.parts[grip.part].offset, grip.step + count

    def publish(self, grip: Grip, part: str, token: str) -> None:
        expected = self.model.published(part, token, grip.step)
        with self.service.database.jobs() as session:
            said = checkpoints.publish(
                session,
                part,
                token,
                step=grip.step,
                location="c",
                bytes=1,
                sha256="0" * 64,
                final=False,
            )
        must(said == expected, "P2: only who holds a job publishes its checkpoints", grip)

    def end(self, grip: Grip, part: str, token: str, reason: str) -> None:
        expected = self.model.finished(part, token, reason, self.now)
        outcome = Outcome.of(Reason(reason), "it ended", node=grip.node)
        with self.service.database.jobs() as session:
            said = attempts.end(session, part, token, outcome, timings=self.service.timings)
        must(said == expected, "P2: only who holds a part ends it", grip, reason)
