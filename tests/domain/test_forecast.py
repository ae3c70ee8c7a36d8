"""Forecast of job starts, compared with a simulation of every second."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from lockstep.domain.placement import forecast
from lockstep.domain.placement.decide import place
from lockstep.domain.placement.forecast import Release, starts
from lockstep.domain.placement.requests import Node, Placed, PlacementRequest
from tests.domain.test_placement_properties import clusters, queues

NODE = Node("n", {0: "A", 1: "A"}, frozenset())
HORIZON = 60


def request(job_id: str, devices: int = 1, **changes: float) -> PlacementRequest:
    return PlacementRequest(
        job_id, priority=int(changes.get("priority", 50)), created_at=0.0, devices=devices, nodes=1
    )


def release(at: float, *indices: int) -> Release:
    return Release(at, frozenset(("n", index) for index in indices))


def test_each_job_starts_when_the_devices_it_needs_are_free() -> None:
    found = starts(
        [request("a"), request("b"), request("c")],
        [NODE],
        [release(30, 0), release(20, 1), release(40)],
        now=10,
    )
    # The duration of the others is unknown, so no start of c can be predicted.
    assert found == {"a": 20, "b": 30}


def test_a_gang_holds_devices_while_it_waits() -> None:
    later_but_small = request("small", priority=1)
    found = starts(
        [request("gang", 2), later_but_small], [NODE], [release(20, 0), release(90, 1)], now=10
    )
    assert found == {"gang": 90}


def test_an_end_in_the_past_counts_as_now() -> None:
    assert starts([request("a")], [NODE], [release(3, 0)], now=10) == {"a": 10}


def test_devices_with_an_unknown_end_are_never_free() -> None:
    assert starts([request("gang", 2)], [NODE], [release(20, 0)], now=10) == {}


def test_a_missing_device_is_not_assigned() -> None:
    gone = Release(20, frozenset({("n", 7), ("elsewhere", 0)}))
    assert starts([request("a")], [NODE], [gone], now=10) == {}


def test_a_long_queue_and_many_ends_cost_a_bounded_number_of_steps() -> None:
    queue = [request(f"{number:05d}") for number in range(5_000)]
    ends = [release(11 + number, 0, 1) for number in range(5_000)]
    found = starts(queue, [NODE], ends, now=10)
    assert len(found) <= min(forecast.REQUESTS_MAX, 2 * forecast.MOMENTS_MAX)
    assert found["00000"] == 11


@st.composite
def ends(draw: st.DrawFn, nodes: list[Node]) -> list[Release]:
    held = [
        (node.name, index) for node in nodes for index in node.devices if index not in node.free
    ]
    return [
        Release(float(draw(st.integers(0, HORIZON - 1))), frozenset({device}))
        for device in held
        if draw(st.integers(0, 3))
    ]


@given(st.data())
def test_the_forecast_equals_a_scheduler_that_runs_every_second(data: st.DataObject) -> None:
    nodes, queue = data.draw(clusters()), data.draw(queues())
    releases = data.draw(ends(nodes))
    world = {node.name: node for node in nodes}
    waiting = {one.job_id: one for one in queue}
    expected: dict[str, float] = {}
    for second in range(HORIZON):
        for end in releases:
            for name, index in end.devices:
                if end.at == second:
                    world[name] = replace(world[name], free=world[name].free | {index})
        for decision in place(waiting.values(), list(world.values()), now=float(second)):
            if isinstance(decision, Placed):
                expected[decision.job_id] = float(second)
                waiting.pop(decision.job_id)
                for name, taken in decision.devices:
                    world[name] = replace(world[name], free=world[name].free - set(taken))
    assert starts(queue, nodes, releases, now=0.0) == expected
