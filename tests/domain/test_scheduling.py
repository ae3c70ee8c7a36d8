"""Rules of a decision, one by one: order, limits, fit, holds, backfill, and the reasons."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lockstep.domain.scheduling.decide import (
    HOLDS_MAX,
    UNTIMED_AFTER_SECONDS,
    decide,
)
from lockstep.domain.scheduling.forecast import starts
from lockstep.domain.scheduling.reasons import sentence
from lockstep.domain.scheduling.shares import Standing, by_age, turns
from lockstep.domain.scheduling.state import (
    ClusterNode,
    ClusterState,
    JobRequest,
    Plan,
    Project,
    Running,
    WaitCode,
    WaitReason,
)

DAY = 86_400.0


def node(name: str, free: int, of: int | None = None, kind: str = "A") -> ClusterNode:
    """Return a node of which the last devices are free."""
    count = free if of is None else of
    return ClusterNode(
        name, dict.fromkeys(range(count), kind), frozenset(range(count - free, count))
    )


def job(job_id: str, devices: int = 1, **fields: Any) -> JobRequest:
    found = JobRequest(job_id, "p", "u", 50, 0.0, devices)
    return replace(found, **fields)


def runs(job_id: str, name: str, *indices: int, **fields: Any) -> Running:
    found = Running(job_id, "p", "u", tuple((name, index) for index in indices))
    return replace(found, **fields)


def decided(queued: list[JobRequest], nodes: list[ClusterNode], **fields: Any) -> Plan:
    return decide(ClusterState(0.0, tuple(nodes), tuple(queued), **fields))


def started(plan: Plan) -> dict[str, tuple[tuple[str, tuple[int, ...]], ...]]:
    return {start.job_id: start.devices for start in plan.starts}


def why(plan: Plan) -> dict[str, str]:
    return {wait.job_id: sentence(wait.reason) for wait in plan.waits}


def test_the_order_is_share_then_priority_then_person_then_age() -> None:
    jobs = [
        job("used", project="big", submitted_at=0.0),
        job("low", priority=10, submitted_at=1.0),
        job("has", user="v", submitted_at=2.0),
        job("young", submitted_at=4.0),
        job("old", submitted_at=3.0),
    ]
    usage = {("big", "u"): 8.0, ("p", "v"): 1.0}
    standing = Standing(usage, {"big": Project(2.0)})
    assert [each.job_id for each in turns(by_age(jobs), standing)] == [
        "old",
        "young",
        "has",
        "low",
        "used",
    ]
    assert next(each.job_id for each in turns(by_age(jobs), Standing({}, {}))) == "used"


def test_what_starts_counts_for_the_next_turn() -> None:
    jobs = [job(f"{project}{n}", project=project) for n in range(3) for project in "ab"]
    plan = decided(jobs, [node("n", 4)], projects={"a": Project(3.0)})
    assert sorted(started(plan)) == ["a0", "a1", "a2", "b0"]


def test_a_small_job_takes_the_tightest_fit_and_the_lowest_devices() -> None:
    plan = decided([job("j")], [node("large", 8), node("small", 2, of=8)])
    assert started(plan) == {"j": (("small", (6,)),)}


def test_a_gang_over_nodes_takes_equal_numbers() -> None:
    plan = decided([job("j", 4, nodes=2)], [node("a", 2), node("b", 3), node("c", 8)])
    assert started(plan) == {"j": (("a", (0, 1)), ("b", (0, 1)))}


def test_thirty_small_jobs_start_beside_eight_blocked_gangs() -> None:
    nodes = [node(f"n{n}", 4, of=8) for n in range(8)]
    running = tuple(runs(f"r{n}", f"n{n}", 0, 1, 2, 3, ends_at=9_000.0 + n) for n in range(8))
    gangs = [job(f"g{n}", 8, submitted_at=float(n)) for n in range(8)]
    small = [job(f"s{n}", submitted_at=99.0, limit_seconds=3_600.0) for n in range(30)]
    plan = decided([*gangs, *small], nodes, running=running)
    assert sorted(started(plan)) == sorted(each.job_id for each in small)
    holds = [wait.hold for wait in plan.waits if wait.hold is not None]
    assert [(hold.nodes, hold.starts_at, hold.is_sure) for hold in holds] == [
        ((f"n{n}",), 9_000.0 + n, True) for n in range(HOLDS_MAX)
    ]


@pytest.mark.parametrize(
    ("limit", "spare", "starts_now"),
    [(900.0, 0, True), (1_000.0, 0, False), (None, 0, False), (None, 1, True)],
)
def test_a_job_starts_on_held_devices_if_it_ends_before_or_leaves_enough(
    limit: float | None, spare: int, starts_now: bool
) -> None:
    held = node("n", 4, of=8 + spare)
    busy = runs("r", "n", *range(4 + spare), ends_at=1_000.0)
    gang = job("gang", 8)
    plan = decided([gang, job("s", limit_seconds=limit, submitted_at=9.0)], [held], running=(busy,))
    assert ("s" in started(plan)) is starts_now


def test_after_a_long_job_was_refused_a_short_one_starts_in_its_turn() -> None:
    jobs = [
        job("gang", 2, priority=100),
        job("long", limit_seconds=2_000.0, submitted_at=1.0),
        job("used", limit_seconds=100.0, submitted_at=2.0, user="v"),
        job("less", limit_seconds=100.0, submitted_at=3.0),
    ]
    busy = runs("r", "n", 0, ends_at=1_000.0)
    plan = decided(jobs, [node("n", 1, of=2)], running=(busy,), usage={("p", "v"): 5.0})
    assert started(plan) == {"less": (("n", (1,)),)}


def test_a_hold_stays_when_a_better_job_comes() -> None:
    busy = runs("r", "n", 0, ends_at=1_000.0)
    first = decided([job("gang", 2)], [node("n", 1, of=2)], running=(busy,))
    (wait,) = first.waits
    held, urgent = job("gang", 2, hold=wait.hold), job("urgent", priority=100)
    plan = decided([urgent, held], [node("n", 1, of=2)], running=(busy,))
    assert started(plan) == {}
    assert why(plan)["urgent"] == "behind job gang, which needs the same devices"
    assert plan.waits[0].hold == wait.hold


def test_only_an_old_gang_holds_nodes_of_others_without_a_known_start() -> None:
    busy, nodes = runs("r", "n", 0, user="v"), [node("n", 1, of=2)]
    for age, holds in ((0.0, False), (UNTIMED_AFTER_SECONDS, True)):
        gang = job("gang", 2, submitted_at=-age)
        plan = decided([gang, job("s", submitted_at=1.0)], nodes, running=(busy,))
        assert ("s" in started(plan)) is not holds
        assert [wait.hold is not None for wait in plan.waits if wait.job_id == "gang"] == [holds]
        # A job with a time limit does not keep the start unknown.
        plan = decided([gang, job("s", limit_seconds=5.0)], nodes, running=(busy,))
        assert "s" in started(plan)


def test_an_old_gang_holds_nodes_behind_a_young_one_of_the_same_size() -> None:
    busy, nodes = runs("r", "n", 0, user="v"), [node("n", 1, of=2)]
    young = job("young", 2, project="q")
    old = job("old", 2, submitted_at=-UNTIMED_AFTER_SECONDS)
    plan = decided([young, old], nodes, running=(busy,), usage={("p", "u"): 9.0})
    assert [wait.job_id for wait in plan.waits if wait.hold is not None] == ["old"]


def test_a_person_alone_has_the_order_of_priority_and_age() -> None:
    """The gang is older, and no end is known: it holds the node against a later job."""
    busy, nodes = runs("r", "n", 0), [node("n", 1, of=2)]
    plan = decided([job("gang", 2), job("s", submitted_at=1.0)], nodes, running=(busy,))
    assert started(plan) == {}
    assert why(plan) == {
        "gang": "holds n and waits for 1 more free device (needs 2, 1 free there)",
        "s": "behind job gang, which needs the same devices",
    }


def test_jobs_beyond_a_limit_and_in_backoff_delay_no_other() -> None:
    running = (runs("r", "n", 0, 1),)
    jobs = [job("limited", 4), job("later", not_before=30.0), job("other", 2, project="q")]
    plan = decided(jobs, [node("n", 2, of=4)], running=running, projects={"p": Project(1.0, 5)})
    assert list(started(plan)) == ["other"]
    assert why(plan) == {
        "later": "retries in 30 s after a failure",
        "limited": "project p has 2 of at most 5 devices in use, and the job needs 4",
    }


def test_a_person_has_a_limit_in_a_project() -> None:
    running = (runs("r", "n", 0, 1),)
    jobs = [job("mine", 2), job("theirs", 2, user="v")]
    plan = decided(jobs, [node("n", 4, of=6)], running=running, projects={"p": Project(1, 9, 3)})
    assert list(started(plan)) == ["theirs"]
    assert why(plan)["mine"] == (
        "u in project p has 2 of at most 3 devices in use, and the job needs 2"
    )


def test_devices_that_are_held_count_for_the_limit() -> None:
    """Otherwise the start of a later job would end the hold of its own project."""
    busy = runs("r", "a", 0, project="q", ends_at=9_000.0)
    nodes = [node("a", 1, of=2), node("b", 2)]
    jobs = [job("gang", 4, nodes=2), job("s", 2, submitted_at=1.0, limit_seconds=5.0)]
    plan = decided(jobs, nodes, running=(busy,), projects={"p": Project(1, 5)})
    assert started(plan) == {}
    assert why(plan)["s"] == (
        "project p has 0 of at most 5 devices in use and 4 held for its next jobs, and the job "
        "needs 2"
    )


def test_backoff_ends_at_its_time() -> None:
    assert list(started(decided([job("j", not_before=0.0)], [node("n", 1)]))) == ["j"]


def test_a_job_that_has_used_its_time_ends_soon() -> None:
    busy = runs("r", "n", 0, ends_at=1_000.0)
    jobs = [job("gang", 2), job("s", limit_seconds=0.0, submitted_at=9.0)]
    assert list(started(decided(jobs, [node("n", 1, of=2)], running=(busy,)))) == ["s"]


def test_a_blocked_job_waits_behind_all_others_whatever_is_free() -> None:
    blocked = WaitReason(WaitCode.SEALING)
    plan = decided([job("b", blocked=blocked), job("j", 9)], [node("n", 2)])
    assert started(plan) == {}
    assert why(plan)["b"] == "waits until the output of its last attempt is stored"


def offers(name: str, *offered: str, free: int = 1, of: int = 1) -> ClusterNode:
    return replace(node(name, free, of), offers=frozenset(offered))


def test_a_job_starts_only_where_all_that_it_needs_is_offered() -> None:
    nodes = [offers("a", "x"), offers("b", "y"), offers("c", "x", "y", "z")]
    asks = job("j", needs=frozenset("xy"))
    assert started(decided([asks], nodes)) == {"j": (("c", (0,)),)}
    gang = job("g", 2, nodes=2, needs=frozenset("x"))
    assert started(decided([gang, job("s", submitted_at=1.0)], nodes)) == {
        "g": (("a", (0,)), ("c", (0,))),
        "s": (("b", (0,)),),
    }


def test_jobs_of_one_size_with_other_needs_are_decided_apart() -> None:
    jobs = [job(name, needs=frozenset(name), submitted_at=float(n)) for n, name in enumerate("zx")]
    assert list(started(decided(jobs, [offers("a", "x"), offers("b", "z", free=0)]))) == ["x"]
    # One search for both, and a reason of each.
    large = [replace(each, devices=9) for each in jobs]
    assert [
        text.split(";")[0] for text in why(decided(large, [offers("n", "x", "z")])).values()
    ] == [f"needs 9 devices on one node that offers {name}" for name in "zx"]


def test_a_gang_holds_only_nodes_that_offer_what_it_needs() -> None:
    early, late = (runs(f"r{at}", f"n{at}", 0, ends_at=float(at)) for at in (10, 20))
    nodes = [offers("n10", free=0, of=2), offers("n20", "x", free=0, of=2)]
    nodes = [replace(each, free=frozenset({1})) for each in nodes]
    gang = job("g", 2, needs=frozenset("x"))
    (wait,) = decided([gang], nodes, running=(early, late)).waits
    assert wait.hold is not None
    assert (wait.hold.nodes, wait.hold.starts_at) == (("n20",), 20.0)
    # The node offers it no more.
    held, nodes = (
        replace(gang, hold=wait.hold),
        [replace(each, offers=frozenset()) for each in nodes],
    )
    (wait,) = decided([held], nodes, running=(early, late)).waits
    assert (wait.reason.code, wait.hold) == (WaitCode.NEEDS, None)


def test_a_job_that_waits_for_one_node_keeps_gangs_from_that_one_alone() -> None:
    nodes = [offers("a", "x", free=1, of=2), offers("b", free=1, of=2)]
    running = tuple(runs(f"r{name}", name, 0, ends_at=9.0) for name in "ab")
    first = [job("l"), job("s", needs=frozenset("x"), submitted_at=1.0)]
    plan = decided([*first, job("g", 2, submitted_at=2.0)], nodes, running=running)
    assert {wait.job_id: wait.hold and wait.hold.nodes for wait in plan.waits} == {
        "s": None,
        "g": ("b",),
    }


def test_a_sentence_names_three_needs_and_counts_the_others() -> None:
    asks = job("j", needs=frozenset("vwxyz"))
    assert why(decided([asks], [node("n", 1)])) == {"j": "no ready node offers v, w, x or 2 more"}


@pytest.mark.parametrize(
    ("asked", "nodes", "code", "text"),
    [
        (
            {"needs": frozenset({"data:imagenet", "rack:a"})},
            [offers("n", "rack:a")],
            WaitCode.NEEDS,
            "no ready node offers data:imagenet",
        ),
        (
            {"needs": frozenset({"data:imagenet", "rack:a"})},
            [offers("m", "rack:a"), offers("n", "data:imagenet")],
            WaitCode.NEEDS,
            "no ready node offers data:imagenet and rack:a together",
        ),
        (
            {"needs": frozenset({"rack:a"}), "devices": 2, "nodes": 2},
            [offers("m", "rack:a"), replace(offers("n", "rack:a"), ready=False)],
            WaitCode.NEEDS,
            "needs 2 nodes that offer rack:a; 1 is ready now",
        ),
        (
            {"needs": frozenset({"rack:a"}), "devices": 2},
            [offers("m", "rack:a"), node("n", 2)],
            WaitCode.NEVER_FITS,
            "needs 2 devices on one node that offers rack:a; the largest ready now has 1",
        ),
        (
            {"needs": frozenset({"rack:a"}), "devices": 4, "nodes": 2},
            [offers("m", "rack:a"), offers("n", "rack:a", free=2, of=2)],
            WaitCode.NEVER_FITS,
            "needs 2 nodes with 2 devices each that offer rack:a; 1 such nodes are ready now",
        ),
        (
            {"needs": frozenset({"x"}), "devices": 2},
            [offers("m", "x", of=2), offers("n", "x", of=2), node("o", 1, of=2)],
            WaitCode.FRAGMENTED,
            "needs 2 devices on one node that offers x; 2 are free, but not together",
        ),
        (
            {"needs": frozenset({"x"})},
            [],
            WaitCode.NO_NODE,
            "no node is registered yet",
        ),
        ({}, [], WaitCode.NO_NODE, "no node is registered yet"),
        (
            {},
            [replace(node("n", 1), ready=False)],
            WaitCode.NO_NODE,
            "no node is ready: 1 node registered, none of them ready; lockstep nodes shows the "
            "reasons",
        ),
        (
            {"devices": 4},
            [node("n", 2)],
            WaitCode.NEVER_FITS,
            "needs 4 devices on one node; the largest ready now has 2",
        ),
        (
            {"device_type": "B"},
            [node("n", 2)],
            WaitCode.NEVER_FITS,
            "no ready node has devices of type B (available types: A)",
        ),
        (
            {"devices": 4, "nodes": 2, "device_type": "A"},
            [node("n", 2)],
            WaitCode.NEVER_FITS,
            "needs 2 nodes with 2 devices of type A each; 1 such nodes are ready now",
        ),
        (
            {"devices": 2},
            [node("a", 1, of=2), node("b", 1, of=2)],
            WaitCode.FRAGMENTED,
            "needs 2 devices on one node; 2 are free, but not together",
        ),
        ({}, [node("n", 0, of=2)], WaitCode.BEHIND, "waits for a free device"),
    ],
)
def test_a_reason_is_a_code_with_a_sentence(
    asked: dict[str, Any], nodes: list[ClusterNode], code: WaitCode, text: str
) -> None:
    # Beside another person, a gang without a known start holds nothing.
    plan = decided([job("j", **asked)], nodes, running=(runs("r", "n", user="v"),))
    assert (plan.waits[0].reason.code, why(plan)["j"]) == (code, text)


def test_a_hold_says_where_and_when() -> None:
    busy = runs("r", "n", 0, ends_at=DAY, expected_at=3_600.0)
    nodes = [node("n", 1, of=2)]
    assert why(decided([job("g", 2)], nodes, running=(busy,)))["g"] == (
        "holds n for its 2 devices, and starts there about 1970-01-01 01:00 UTC"
    )
    # A job that is too slow for its limit ends by the limit.
    slow = replace(busy, expected_at=2 * DAY)
    assert (
        "at the latest 1970-01-02 00:00" in why(decided([job("g", 2)], nodes, running=(slow,)))["g"]
    )
    sure = replace(busy, expected_at=None)
    assert (
        "at the latest 1970-01-02 00:00" in why(decided([job("g", 2)], nodes, running=(sure,)))["g"]
    )


def test_who_has_used_more_reads_that_later_jobs_go_first() -> None:
    jobs = [job("mine", submitted_at=1.0), job("theirs", project="q", submitted_at=2.0)]
    plan = decided(jobs, [node("n", 0, of=1)], usage={("p", "u"): 3.0})
    assert [wait.job_id for wait in plan.waits] == ["theirs", "mine"]
    assert plan.waits[1].reason.code is WaitCode.FAIR_SHARE
    assert "of projects or people with fewer devices for their share" in why(plan)["mine"]


def test_a_forecast_follows_the_rules_from_end_to_end() -> None:
    running = (
        runs("a", "n", 0, ends_at=30.0, expected_at=99.0),
        runs("b", "n", 1, expected_at=20.0),
    )
    jobs = [
        job("first", limit_seconds=100.0),
        job("gang", 2, submitted_at=1.0),
        job("last", submitted_at=2.0),
    ]
    snapshot = ClusterState(10.0, (node("n", 0, of=2),), tuple(jobs), running)
    # The gang has no limit, so the start of the last one is not known.
    assert starts(snapshot) == {"first": 20.0, "gang": 120.0}
    assert starts(replace(snapshot, running=(running[0], runs("b", "n", 1, user="v")))) == {
        "first": 30.0,
        "last": 130.0,
    }


def test_a_job_must_divide_its_devices_over_its_nodes() -> None:
    for devices, nodes in ((3, 2), (0, 1), (1, 0)):
        with pytest.raises(ValueError, match="cannot be shared equally"):
            job("j", devices, nodes=nodes)
