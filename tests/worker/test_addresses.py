"""Addresses for other nodes, and a reservation of the port in the meantime."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.worker.agent.addresses import Reservation, address_of, interface_of, is_loopback
from lockstep.worker.agent.peers import unreachable
from tests.worker.test_preparing import claim


@pytest.fixture
def reservation() -> Iterator[Reservation]:
    made = Reservation()
    yield made
    made.release()


def test_a_named_address_is_taken_as_it_is() -> None:
    assert address_of("gpu-7.example.org", "sqlite:////jobs.db") == "gpu-7.example.org"


def test_without_one_it_is_the_address_that_the_database_is_reached_from() -> None:
    assert address_of(None, "sqlite:////jobs.db") == "127.0.0.1"
    assert address_of(None, "postgresql+psycopg:///jobs?host=/run/postgresql") == "127.0.0.1"
    assert address_of(None, "postgresql+psycopg://a:b@127.0.0.3:5432/jobs") == "127.0.0.1"


@pytest.mark.parametrize(
    ("address", "loops"),
    [
        ("127.0.0.1", True),
        ("127.0.1.1", True),
        ("::1", True),
        ("localhost", True),
        ("10.0.0.7", False),
    ],
)
def test_a_loopback_is_recognized_by_number_and_by_name(address: str, loops: bool) -> None:
    assert is_loopback(address) is loops


def test_the_interface_is_the_one_that_has_the_address() -> None:
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("192.0.2.1") is None


def test_a_reserved_port_is_available_only_to_torch(reservation: Reservation) -> None:
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("", reservation.port))
    with socket.socket() as store:
        store.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        store.bind(("", reservation.port))
        store.listen()


def test_it_lies_outside_the_range_of_outgoing_connections(reservation: Reservation) -> None:
    lowest_given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert 10_000 <= reservation.port < lowest_given


@pytest.mark.parametrize(
    ("node_rank", "host_count", "address", "refused"),
    [
        (0, 2, "127.0.0.1", True),
        (0, 1, "127.0.0.1", False),
        (0, 2, "10.0.0.7", False),
        (1, 2, "127.0.0.1", False),
    ],
)
def test_nodes_on_several_machines_cannot_meet_at_a_loopback_address(
    node_rank: int, host_count: int, address: str, refused: bool
) -> None:
    given = claim(
        None, node_rank=node_rank, node_count=2, host_count=host_count, rendezvous_host=address
    )
    outcome = unreachable(given)
    assert (outcome is not None) is refused
    if outcome is not None:
        assert outcome.reason == "launch_failed"
        assert address in outcome.message
        assert "LOCKSTEP_NODE_ADDRESS" in outcome.advice
