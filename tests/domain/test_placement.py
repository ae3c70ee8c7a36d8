"""Rules of placement, one by one, on clusters that are small enough to read."""

from __future__ import annotations

import pytest

from lockstep.domain.placement.decide import Decision, place
from lockstep.domain.placement.requests import Node, Placed, PlacementRequest, Waiting


def node(
    name: str, size: int, free: int | None = None, kind: str = "cpu", *, ready: bool = True
) -> Node:
    """Return a node with ``size`` devices of one type, of which the last ``free`` are free."""
    free = size if free is None else free
    return Node(name, dict.fromkeys(range(size), kind), frozenset(range(size - free, size)), ready)


def job(
    name: str,
    devices: int,
    *,
    nodes: int | None = None,
    kind: str | None = None,
    priority: int = 50,
    created_at: float = 0.0,
    avoid: tuple[str, ...] = (),
    not_before: float = 0.0,
) -> PlacementRequest:
    return PlacementRequest(
        name, priority, created_at, devices, nodes, kind, frozenset(avoid), not_before
    )


def decide(
    requests: list[PlacementRequest], nodes: list[Node], now: float = 1000.0
) -> dict[str, Decision]:
    return {decision.job_id: decision for decision in place(requests, nodes, now=now)}


def where(decision: Decision) -> dict[str, tuple[int, ...]]:
    assert isinstance(decision, Placed), decision
    return dict(decision.devices)


def why(decision: Decision) -> str:
    assert isinstance(decision, Waiting), decision
    return decision.reason


def test_a_job_gets_the_lowest_free_devices_of_one_node() -> None:
    assert where(decide([job("j", 2)], [node("a", 4, 3)])["j"]) == {"a": (1, 2)}


def test_a_small_job_gets_the_tightest_fit() -> None:
    assert where(decide([job("j", 2)], [node("a", 8), node("b", 8, 3), node("c", 8, 2)])["j"]) == {
        "c": (6, 7)
    }


def test_a_gang_over_several_nodes_takes_the_smallest_that_are_few_enough() -> None:
    nodes = [node("a", 8), node("b", 8, 6), node("c", 8, 5), node("d", 8, 2)]
    assert {
        name: len(held) for name, held in where(decide([job("j", 11)], nodes)["j"]).items()
    } == {"b": 6, "c": 5}


def test_devices_that_a_gang_leaves_free_stay_together() -> None:
    placed = where(decide([job("j", 10)], [node("a", 8), node("b", 8, 4)])["j"])
    assert {name: len(held) for name, held in placed.items()} == {"a": 6, "b": 4}


def test_a_requested_number_of_nodes_gets_equal_numbers_of_devices() -> None:
    placed = where(
        decide([job("j", 4, nodes=2)], [node("a", 8), node("b", 8, 1), node("c", 8, 3)])["j"]
    )
    assert placed == {"a": (0, 1), "c": (5, 6)}


def test_a_gang_never_mixes_device_types_even_on_one_node() -> None:
    mixed = Node("m", {0: "big", 1: "big", 2: "small", 3: "small"}, frozenset(range(4)))
    decisions = decide([job("j", 3)], [mixed])
    assert why(decisions["j"]) == "needs 3 devices of one type; all nodes ready now have 2"


def test_a_job_without_a_type_takes_the_type_it_fills_best() -> None:
    assert where(decide([job("j", 2)], [node("a", 8, kind="A"), node("b", 2, kind="B")])["j"]) == {
        "b": (0, 1)
    }


def test_a_requested_type_is_assigned() -> None:
    placed = where(
        decide([job("j", 2, kind="A")], [node("a", 8, kind="A"), node("b", 2, kind="B")])["j"]
    )
    assert placed == {"a": (0, 1)}


def test_higher_priority_goes_first_and_then_the_older_job() -> None:
    requests = [
        job("young", 1, created_at=3),
        job("old", 1, created_at=1),
        job("urgent", 1, priority=90, created_at=9),
    ]
    order = [decision.job_id for decision in place(requests, [node("a", 1)], now=0)]
    assert order == ["urgent", "old", "young"]


def test_positions_count_the_jobs_that_wait() -> None:
    decisions = decide([job(name, 1, created_at=i) for i, name in enumerate("abc")], [node("n", 1)])
    assert [decisions[name].position for name in "bc"] == [1, 2]  # type: ignore[union-attr]  # both wait


def test_a_large_job_that_waits_keeps_its_node_from_later_small_ones() -> None:
    decisions = decide(
        [job("large", 4, created_at=1), job("small", 1, created_at=2)], [node("a", 4, 3)]
    )
    assert (
        why(decisions["large"])
        == "waits for 1 more free device of type cpu (needs 4, 3 are free on a)"
    )
    assert why(decisions["small"]) == "behind job large, which needs the same devices"


def test_a_waiting_job_holds_no_more_nodes_than_it_needs() -> None:
    decisions = decide(
        [job("large", 4, nodes=1), job("small", 1, created_at=2)],
        [node("a", 4, 3), node("b", 4, 1)],
    )
    assert where(decisions["small"]) == {"b": (3,)}


def test_a_waiting_job_holds_the_node_with_the_most_free_devices() -> None:
    decisions = decide(
        [job("large", 4, nodes=1), job("small", 1, created_at=2)],
        [node("a", 4, 1), node("b", 4, 3)],
    )
    assert (
        why(decisions["large"])
        == "waits for 1 more free device of type cpu (needs 4, 3 are free on b)"
    )
    assert where(decisions["small"]) == {"a": (3,)}


def test_devices_that_a_waiting_job_could_never_use_stay_open() -> None:
    nodes = [node("a", 4, 3, "A"), node("b", 4, 4, "B"), node("tiny", 2, 2, "A")]
    decisions = decide([job("large", 4, nodes=1, kind="A"), job("b", 4, kind="B", created_at=1),
                        job("tiny", 2, kind="A", created_at=2)], nodes)  # fmt: skip
    assert where(decisions["b"]) == {"b": (0, 1, 2, 3)}
    assert where(decisions["tiny"]) == {"tiny": (0, 1)}


def test_a_job_that_no_ready_node_can_serve_holds_nothing() -> None:
    nodes = [node("a", 2), node("away", 8, ready=False)]
    decisions = decide([job("huge", 8, nodes=1), job("small", 2, created_at=1)], nodes)
    assert where(decisions["small"]) == {"a": (0, 1)}
    assert why(decisions["huge"]) == "needs 8 devices on one node; the largest ready now has 2"


def test_a_node_that_is_not_ready_gets_no_work() -> None:
    assert why(decide([job("j", 1)], [node("a", 4, ready=False)])["j"]) == (
        "no node is ready: 1 node registered, none of them ready; lockstep nodes shows the reasons"
    )


def test_a_job_in_backoff_neither_starts_nor_holds() -> None:
    decisions = decide(
        [job("later", 4, not_before=1012.4), job("small", 2, created_at=1)],
        [node("a", 4, 3)],
        now=1000.0,
    )
    assert why(decisions["later"]) == "retries in 12 s after a failure"
    assert where(decisions["small"]) == {"a": (1, 2)}


def test_backoff_ends_at_its_time() -> None:
    assert isinstance(
        decide([job("j", 1, not_before=1000.0)], [node("a", 1)], now=1000.0)["j"], Placed
    )


@pytest.mark.parametrize("count", [None, 1])
def test_nodes_to_avoid_are_tried_last(count: int | None) -> None:
    nodes = [node("bad", 2), node("good", 8)]
    assert where(decide([job("j", 2, nodes=count, avoid=("bad",))], nodes)["j"]) == {"good": (0, 1)}


def test_a_good_node_of_another_type_is_better_than_one_to_avoid() -> None:
    nodes = [node("bad", 2, kind="A"), node("good", 8, kind="B")]
    assert where(decide([job("j", 2, avoid=("bad",))], nodes)["j"]) == {"good": (0, 1)}


@pytest.mark.parametrize("nodes", [None, 1])
def test_a_node_to_avoid_is_better_than_none(nodes: int | None) -> None:
    assert where(decide([job("j", 2, nodes=nodes, avoid=("bad",))], [node("bad", 2)])["j"]) == {
        "bad": (0, 1)
    }


def test_two_good_nodes_are_better_than_one_to_avoid() -> None:
    nodes = [node("bad", 4), node("b", 2), node("c", 2)]
    assert where(decide([job("j", 4, avoid=("bad",))], nodes)["j"]) == {"b": (0, 1), "c": (0, 1)}


@pytest.mark.parametrize(
    ("request_", "nodes", "reason"),
    [
        (job("j", 1), [], "no node is registered yet"),
        (job("j", 8), [node("a", 2), node("b", 2)], "needs 8 devices; all nodes ready now have 4"),
        (
            job("j", 8, kind="cpu"),
            [node("a", 4)],
            "needs 8 devices of type cpu; all nodes ready now have 4",
        ),
        (
            job("j", 1, kind="H200"),
            [node("a", 4)],
            "no ready node has devices of type H200 (available types: cpu)",
        ),
        (
            job("j", 8, nodes=2),
            [node("a", 4)],
            "needs 2 nodes with 4 devices each; 1 such nodes are ready now",
        ),
        (
            job("j", 4),
            [node("a", 4, 2)],
            "waits for 2 more free devices of type cpu (needs 4, 2 are free on a)",
        ),
        (
            job("j", 8, nodes=2),
            [node("a", 8, 8), node("b", 4, 1)],
            "waits for 3 more free devices of type cpu (needs 8, 5 are free on a and 1 more node)",
        ),
    ],
)
def test_the_reason_to_wait_is_a_sentence_with_numbers(
    request_: PlacementRequest, nodes: list[Node], reason: str
) -> None:
    assert why(decide([request_], nodes)["j"]) == reason


def test_a_request_must_divide_its_devices_over_its_nodes() -> None:
    with pytest.raises(ValueError, match="3 devices cannot be shared equally by 2 nodes"):
        job("j", 3, nodes=2)
