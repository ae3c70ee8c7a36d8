"""Actions of the programs on the real service, each with the model's expectation of it.

Not here: the expectations (``tests.harness.life.model``), and the choice of the next action
(``tests.harness.life.machine``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from hypothesis.stateful import RuleBasedStateMachine

from lockstep.domain.life.outcomes import Outcome, Reason
from lockstep.domain.spec.job import JobSpec
from lockstep.domain.training.metrics import StepValues
from lockstep.storage.attempts import attempts, checkpoints
from lockstep.storage.jobs import jobs
from lockstep.storage.series import series, streams
from lockstep.storage.series.streams import Writer
from tests.harness.life.in_process import Service
from tests.harness.life.model import (
    LEASE_SECONDS,
    Model,
    must,
)


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


class Actions(RuleBasedStateMachine):
    """See the module. ``service`` is set by a subclass."""

    service: ClassVar[Service]
    model: Model
    grips: dict[str, Grip]
    """State of the agents, by part."""

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
