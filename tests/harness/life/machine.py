"""Random actions of users, nodes, schedulers, notifications and time.

Hypothesis selects them; the model has the correct result. Each rule does one thing to the real
service and, first, to the model. After each, everything is compared. At the end of an example all
nodes are intact again, and every job must reach its end.

Not here: the correct result (``tests.harness.life.model``), each action on the service
(``tests.harness.life.actions``), and runs (``tests.faults.test_model``).
"""

from __future__ import annotations

import sys
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from lockstep.broker.messages import StartAssignment, WakeScheduler
from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.storage.control import scheduler_lease
from tests.harness.life.actions import Actions, Grip
from tests.harness.life.model import (
    HOLD_SECONDS,
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


class Life(Actions):
    """State machine of this module. ``service`` is set by a subclass."""

    @initialize(
        shapes=st.lists(st.sampled_from(sorted(SHAPES)), min_size=1, max_size=3),
        started=st.integers(0, 3),
    )
    def begin(self, shapes: list[str], started: int) -> None:
        self.service.wipe()
        self.model = Model()
        self.dead: set[str] = set()
        self.grips = {}
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
        self.model.check(self.service.look_again(), self.now)
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
