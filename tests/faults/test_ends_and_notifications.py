"""End of a job with cancels at random moments (F24), and repeated notifications (F10, F11).

Each notification comes three times, early and late.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from lockstep.broker.messages import Message, StartAssignment, StopAssignment, WakeScheduler
from lockstep.domain.life.outcomes import Outcome, Reason
from lockstep.storage.attempts import attempts
from lockstep.storage.attempts.attempts import Claim
from lockstep.storage.series import streams
from tests.harness.drills import Drill, fresh_seed, long
from tests.harness.life.in_process import Look, Service
from tests.harness.life.model import FINAL
from tests.storage.scenes import at_once

SEED: Final = int(os.environ.get("LOCKSTEP_TEST_SEED", "24"))
DEVICES: Final = 4
SCRIPT: Final = {"name": "j", "kind": "script", "script": {"command": ["true"]}}
REASONS: Final = (
    Reason.SUCCEEDED,
    Reason.USER_ERROR,
    Reason.KILLED,
    Reason.SHUTDOWN,
    Reason.CANCELLED,
)
APART_SECONDS: Final = 0.004
"""About the duration of either of the two."""


@pytest.mark.parametrize(("rounds", "seed"), [(1, SEED), long(25, fresh_seed(), seconds=600)])
def test_tripled_notifications_start_a_job_once(
    service: Service, drill: Drill, rounds: int, seed: int
) -> None:
    what = f"{service.kind}: each notification three times, in any order"
    chance = drill.begin("F10/11", what, seed=seed)
    for _round in range(rounds):
        drill.injected += deliver_all(service, chance)
        service.wipe()


def deliver_all(service: Service, chance: random.Random) -> int:
    """Run some jobs, and replay their notifications; return the number of deliveries."""
    service.register("n1", DEVICES)
    ids = [submit(service) for _job in range(DEVICES + 2)]  # two of them have to wait
    heard: list[Message] = []
    claims: list[Claim] = []
    while service.notifications.sent:
        notifications, service.notifications.sent = service.notifications.sent * 3, []
        chance.shuffle(notifications)
        heard += notifications
        claims += [claim for notifier in notifications for claim in deliver(service, notifier)]
    started = service.look()
    assert Counter(claim.job_id for claim in claims) == dict.fromkeys(ids[:DEVICES], 1)
    assert [row.number for row in started.attempts] == [1] * DEVICES
    for claim in claims:
        end(service, claim, Reason.SUCCEEDED)
        clear(service, claim)
    ended = service.look()
    heard += [
        StopAssignment(notifier.assignment_id, "n1")
        for notifier in heard
        if isinstance(notifier, StartAssignment)
    ]
    chance.shuffle(heard)
    for notifier in heard:
        if not isinstance(notifier, WakeScheduler):  # so that one can place the two that wait
            assert deliver(service, notifier) == []
    assert affected_state(service.look()) == affected_state(ended)
    late = [notifier for notifier in heard if isinstance(notifier, WakeScheduler)]
    assert [claim for notifier in late for claim in deliver(service, notifier)] == []
    final = service.look()
    assert all(final.jobs[job].state.value == "succeeded" for job in ids[:DEVICES])
    assert Counter(row.job_id for row in final.attempts) == dict.fromkeys(ids, 1)
    return 2 * len(heard)


@pytest.mark.parametrize(("times", "seed"), [(48, SEED), long(1000, fresh_seed(), seconds=1200)])
def test_a_cancel_around_the_end_leaves_one_end(
    service: Service, drill: Drill, times: int, seed: int
) -> None:
    chance = drill.begin("F24", f"{service.kind}: cancel around the end", seed=seed)
    service.register("n1", DEVICES)
    service.timings = replace(service.timings, backoff_seconds=1e-6)
    ends: Counter[str] = Counter()
    for _round in range(times // DEVICES):
        ids = [submit(service) for _job in range(DEVICES)]
        service.run_one_cycle("one")
        claims = [
            claim for notifier in service.notifications.sent for claim in deliver(service, notifier)
        ]
        service.notifications.sent.clear()
        assert {claim.job_id for claim in claims} == set(ids)
        for claim in claims:
            race(service, claim, chance, ends)
            drill.injected += 1
            clear(service, claim)
    look = service.look()
    terminal = Counter(event.job for event in look.events if event.kind in FINAL)
    drill.lost = len(set(look.jobs) - set(terminal))
    drill.doubled = sum(count - 1 for count in terminal.values())
    assert terminal == dict.fromkeys(look.jobs, 1), "each has one end"
    assert {job.state.value for job in look.jobs.values()} <= FINAL
    assert set(look.holders.values()) == {None}
    print(dict(ends))


def race(service: Service, claim: Claim, chance: random.Random, ends: Counter[str]) -> None:
    """Send a cancel and end the job, a moment apart."""
    reason = chance.choice(REASONS)
    apart = chance.uniform(-APART_SECONDS, APART_SECONDS)

    def cancel() -> Any:
        time.sleep(max(0.0, apart))  # the interval is varied
        return service.http.post(f"/v1/jobs/{claim.job_id}/cancel")

    def finish() -> Any:
        time.sleep(max(0.0, -apart))
        return end(service, claim, reason)

    both: tuple[Callable[[], Any], Callable[[], Any]] = (cancel, finish)
    answer, ended = at_once(*both)
    assert ended, "only the holder ends it"
    assert answer.status_code in (202, 409), answer.text
    state = service.http.get(f"/v1/jobs/{claim.job_id}").json()["state"]
    refused = answer.status_code == 409
    assert state in FINAL
    assert refused or state == "cancelled" or reason is Reason.SUCCEEDED
    ends[f"{reason.value} and {answer.status_code}: {state}"] += 1


def submit(service: Service) -> str:
    answer = service.http.post("/v1/jobs", json=SCRIPT)
    assert answer.status_code == 201, answer.text
    found: str = answer.json()["id"]
    return found


def deliver(service: Service, notifier: Message) -> list[Claim]:
    """Act as the receiver of a notification; return the resulting claims."""
    if isinstance(notifier, WakeScheduler):
        service.run_one_cycle("one")
        return []
    if isinstance(notifier, StopAssignment):
        with service.database.read_jobs() as session:
            attempts.wanted(session, notifier.node_name)
        return []
    with service.database.jobs() as session:
        claim = attempts.claim(
            session,
            notifier.assignment_id,
            notifier.node_name,
            lease_seconds=60.0,
            rendezvous_port=1,
        )
    if claim is None:
        return []
    with service.database.jobs() as session:
        assert attempts.mark_running(session, claim.assignment_id, claim.token)
    return [claim]


def end(service: Service, claim: Claim, reason: Reason) -> bool:
    with service.database.jobs() as session:
        outcome = Outcome.of(reason, "it ended")
        return attempts.end(
            session, claim.assignment_id, claim.token, outcome, timings=service.timings
        )


def clear(service: Service, claim: Claim) -> None:
    with service.database.series() as session:
        streams.seal(
            session, claim.assignment_id, job_id=claim.job_id, attempt=claim.attempt_number
        )
    with service.database.jobs() as session:
        assert attempts.release(session, claim.assignment_id, claim.node_name)


def affected_state(look: Look) -> Any:
    """Return all state that a notification could have changed."""
    jobs = {job.id: (job.state, job.version) for job in look.jobs.values()}
    parts = {part.id: (part.state, part.token) for part in look.parts.values()}
    return jobs, parts, look.events, look.holders, [(row.id, row.state) for row in look.attempts]
