"""Properties of placement on every cluster: against exhaustive search, and over time.

The oracle has no pools or holds: it tries every set of nodes of every type.
"""

from __future__ import annotations

import random
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.domain.placement.decide import place
from lockstep.domain.placement.requests import Node, Placed, PlacementRequest, Waiting

KINDS = ("A", "B")


@st.composite
def clusters(draw: st.DrawFn, nodes_max: int = 5, *, all_ready: bool = False) -> list[Node]:
    nodes = []
    for number in range(draw(st.integers(0, nodes_max))):
        kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4))
        free = draw(st.frozensets(st.integers(0, len(kinds) - 1)))
        ready = all_ready or draw(st.integers(0, 4)) > 0
        nodes.append(Node(f"n{number}", dict(enumerate(kinds)), free, ready))
    return nodes


@st.composite
def queues(draw: st.DrawFn, jobs_max: int = 8) -> list[PlacementRequest]:
    requests = []
    for number in range(draw(st.integers(1, jobs_max))):
        nodes = draw(st.sampled_from([None, None, 1, 2]))
        requests.append(
            PlacementRequest(
                job_id=f"j{number}",
                priority=draw(st.integers(0, 2)),
                created_at=float(draw(st.integers(0, 3))),
                devices=draw(st.integers(1, 4)) * (nodes or 1),
                nodes=nodes,
                device_type=draw(st.sampled_from([None, *KINDS])),
                avoid=draw(st.frozensets(st.sampled_from(["n0", "n1"]))),
                not_before=draw(st.sampled_from([0.0, 0.0, 0.0, 50.0])),
            )
        )
    return requests


def free_of(node: Node, kind: str) -> int:
    return sum(1 for index in node.free if node.devices[index] == kind)


def ways(request: PlacementRequest, nodes: list[Node]) -> list[tuple[str, tuple[str, ...]]]:
    """Return every (type, set of nodes) on which the request can start now, by trying all."""
    found = []
    for kind in KINDS if request.device_type is None else (request.device_type,):
        able = [node for node in nodes if node.ready and free_of(node, kind)]
        for count in range(1, len(able) + 1):
            for chosen in combinations(able, count):
                if request.nodes is None:
                    fits = sum(free_of(node, kind) for node in chosen) >= request.devices
                else:
                    each = request.devices // request.nodes
                    fits = count == request.nodes and all(
                        free_of(node, kind) >= each for node in chosen
                    )
                if fits:
                    found.append((kind, tuple(node.name for node in chosen)))
    return found


@given(queues(jobs_max=1), clusters())
def test_a_job_starts_exactly_if_nodes_can_run_it(
    queue: list[PlacementRequest], nodes: list[Node]
) -> None:
    request = queue[0]
    (decision,) = place(queue, nodes, now=100)
    possible = ways(request, nodes)
    assert isinstance(decision, Placed) == bool(possible)
    if isinstance(decision, Placed):
        good = [names for _, names in possible if not request.avoid.intersection(names)]
        fewest = min(len(names) for names in (good or [names for _, names in possible]))
        assert len(decision.devices) == fewest
        used = {name for name, _ in decision.devices}
        assert not good or not used & request.avoid


@given(queues(jobs_max=1), clusters())
def test_on_one_node_a_job_leaves_the_fewest_devices_over(
    queue: list[PlacementRequest], nodes: list[Node]
) -> None:
    request = queue[0]
    (decision,) = place(queue, nodes, now=100)
    if not isinstance(decision, Placed) or len(decision.devices) > 1:
        return
    by_name = {node.name: node for node in nodes}
    name, indices = decision.devices[0]
    left = free_of(by_name[name], by_name[name].devices[indices[0]]) - request.devices
    singles = [(kind, names[0]) for kind, names in ways(request, nodes) if len(names) == 1]
    equals = [
        (kind, one) for kind, one in singles if (one in request.avoid) == (name in request.avoid)
    ]
    assert left == min(free_of(by_name[one], kind) - request.devices for kind, one in equals)


@given(queues(), clusters())
def test_gangs_are_complete_on_free_devices_of_one_type(
    queue: list[PlacementRequest], nodes: list[Node]
) -> None:
    by_name = {node.name: node for node in nodes}
    by_id = {request.job_id: request for request in queue}
    taken: set[tuple[str, int]] = set()
    decisions = place(queue, nodes, now=100)
    assert sorted(decision.job_id for decision in decisions) == sorted(by_id)
    for decision in decisions:
        if isinstance(decision, Waiting):
            continue
        request = by_id[decision.job_id]
        devices = [(name, index) for name, indices in decision.devices for index in indices]
        assert len(devices) == len(set(devices)) == request.devices
        assert not taken & set(devices)
        taken |= set(devices)
        kinds = {by_name[name].devices[index] for name, index in devices}
        assert len(kinds) == 1
        assert request.device_type in (None, *kinds)
        assert all(by_name[name].ready and index in by_name[name].free for name, index in devices)
        if request.nodes is not None:
            assert [len(indices) for _, indices in decision.devices] == [
                request.devices // request.nodes
            ] * request.nodes


@given(queues(), clusters())
def test_the_queue_is_ordered_by_priority_and_then_age(
    queue: list[PlacementRequest], nodes: list[Node]
) -> None:
    by_id = {request.job_id: request for request in queue}
    decisions = place(queue, nodes, now=100)
    keys = [(-by_id[one.job_id].priority, by_id[one.job_id].created_at) for one in decisions]
    assert keys == sorted(keys)
    positions = [one.position for one in decisions if isinstance(one, Waiting)]
    assert positions == list(range(1, len(positions) + 1))


@given(queues(), clusters())
def test_a_later_job_changes_nothing_for_an_earlier_one(
    queue: list[PlacementRequest], nodes: list[Node]
) -> None:
    by_id = {request.job_id: request for request in queue}
    decisions = place(queue, nodes, now=100)
    for length in range(len(decisions)):
        earlier = [by_id[one.job_id] for one in decisions[:length]]
        assert place(earlier, nodes, now=100) == decisions[:length]


@given(queues(), clusters(), st.randoms(use_true_random=False))
def test_the_order_in_which_jobs_and_nodes_are_listed_does_not_matter(
    queue: list[PlacementRequest], nodes: list[Node], dice: random.Random
) -> None:
    decisions = place(queue, nodes, now=100)
    assert (
        place(dice.sample(queue, len(queue)), dice.sample(nodes, len(nodes)), now=100) == decisions
    )


@given(queues(), clusters(all_ready=True))
def test_enough_devices_are_kept_untouched_for_the_first_job_that_waits(
    queue: list[PlacementRequest], nodes: list[Node]
) -> None:
    """Some set of nodes that could run the whole job keeps all its free devices of the type."""
    by_id = {request.job_id: request for request in queue}
    decisions = place([request for request in queue if request.not_before == 0], nodes, now=100)
    first = next((i for i, one in enumerate(decisions) if isinstance(one, Waiting)), None)
    if first is None:
        return
    request = by_id[decisions[first].job_id]
    later = {
        (name, index)
        for one in decisions[first:]
        if isinstance(one, Placed)
        for name, indices in one.devices
        for index in indices
    }
    empty = [Node(node.name, node.devices, frozenset(node.devices)) for node in nodes]
    by_name = {node.name: node for node in nodes}
    could = ways(request, empty)
    kept = [
        names
        for kind, names in could
        if not any(
            (name, i) in later
            for name in names
            for i, k in by_name[name].devices.items()
            if k == kind
        )
    ]
    assert kept or not could


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.integers(2, 8), st.sampled_from([None, 1, 2]))
def test_a_stream_of_small_jobs_does_not_starve_a_large_gang(
    seed: int, gang: int, spread: int | None
) -> None:
    """Keep three nodes of four devices full with one-device jobs of up to 20 ticks.

    The gang starts in bounded time.
    """
    dice = random.Random(seed)
    gang = min(gang - gang % (spread or 1), 4 if spread == 1 else 8) or (spread or 1)
    ends: dict[tuple[str, int], int] = {}
    small = 0
    for tick in range(200):
        ends = {device: end for device, end in ends.items() if end > tick}
        nodes = [
            Node(
                name,
                dict.fromkeys(range(4), "A"),
                frozenset(i for i in range(4) if (name, i) not in ends),
            )
            for name in "abc"
        ]
        queue = [PlacementRequest("gang", 50, 10.0, gang, spread)] if tick >= 10 else []
        queue += [PlacementRequest(f"s{small + i}", 50, float(tick + 1), 1) for i in range(12)]
        small += 12
        for decision in place(queue, nodes, now=tick):
            if isinstance(decision, Placed):
                if decision.job_id == "gang":
                    return
                for name, indices in decision.devices:
                    ends |= {(name, index): tick + dice.randint(1, 20) for index in indices}
    raise AssertionError(f"{gang} devices never came free together")
