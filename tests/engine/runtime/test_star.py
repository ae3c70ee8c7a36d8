"""Numbers over connections with rank 0: sums and maxima, lost ranks, and strangers."""

from __future__ import annotations

import math
import random
import socket
import threading
from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest

from lockstep.domain.life.outcomes import Reason
from lockstep.engine.runtime import star
from lockstep.engine.runtime.errors import EngineError
from lockstep.engine.runtime.ranks import RankEnvironment, Ranks
from lockstep.engine.runtime.star import Star
from tests.harness.ranks import Pool

SECRET = b"s" * 32


def drawn(rank: int) -> list[list[float]]:
    """Messages of a rank: two sums, then one maximum."""
    source = random.Random(rank)
    usual = [[source.gauss(0, 10.0**power) for _ in range(3)] for power in range(-9, 9)]
    return [*usual, [math.inf, math.nan, 1.0], [-0.0, -math.inf, -1.0]]


def reduced(ranks: Ranks) -> list[list[float]]:
    made = Star(ranks, sums=2, maxima=1)
    try:
        return [list(made.reduce(message)) for message in drawn(ranks.rank)]
    finally:
        made.close()


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_all_ranks_get_the_sums_in_the_order_of_the_ranks_and_the_maxima(
    pool: Pool, world_size: int
) -> None:
    expected = [list(numbers) for numbers in drawn(0)]
    for rank in range(1, world_size):
        for whole, numbers in zip(expected, drawn(rank), strict=True):
            whole[0] += numbers[0]
            whole[1] += numbers[1]
            whole[2] = max(whole[2], numbers[2])
    for found in pool.run(reduced, world_size=world_size):
        assert repr(found) == repr(expected)


def without(ranks: Ranks, leaver: int, patience: float | None) -> tuple[str, str] | None:
    """Let one rank leave, or stay and send nothing; return the failure of another."""
    if patience is not None:
        ranks = replace(ranks, patience=timedelta(seconds=patience))
    made = Star(ranks, sums=1, maxima=0)
    try:
        if ranks.rank == leaver:
            if patience is not None:
                threading.Event().wait(3 * patience)
            return None
        made.reduce([1.0])
    except EngineError as error:
        return error.reason, str(error)
    finally:
        made.close()
    return None


@pytest.mark.parametrize("leaver", [0, 1, 2])
def test_a_rank_that_leaves_ends_the_operation_of_the_others(pool: Pool, leaver: int) -> None:
    found = pool.run(without, leaver, None, world_size=3)
    for rank, failure in enumerate(found):
        if rank != leaver:
            assert failure is not None
            assert failure[0] == Reason.NETWORK
            assert f"no answer of rank {leaver if rank == 0 else 0} " in failure[1]


def test_a_rank_that_sends_nothing_ends_the_operation_after_the_patience(pool: Pool) -> None:
    first, second = pool.run(without, 1, 0.3, world_size=2)
    assert second is None
    assert first == (
        Reason.NETWORK,
        "no answer of rank 1 in the control operation: timed out",
    )


def over_tcp(ranks: Ranks) -> list[list[float]]:
    return reduced(replace(ranks, host="127.0.0.1"))


def beside_strangers(ranks: Ranks) -> Any:
    """Connect after two strangers: one that closes at once, and one with another secret."""
    usual = star._connection

    def late(*address: Any) -> socket.socket:
        usual(*address).close()
        stranger = usual(*address)
        stranger.sendall(b"x" * 36)
        assert stranger.recv(1) == b""
        return usual(*address)

    with mock.patch.object(star, "_connection", late):
        return reduced(ranks)


def test_strangers_are_turned_away(pool: Pool) -> None:
    assert repr(pool.run(beside_strangers, world_size=2)) == repr(pool.run(reduced, world_size=2))


@pytest.mark.parametrize(
    ("greeting", "rank"),
    [
        (SECRET + b"\0\0\0\7", 7),
        (b"t" + SECRET[1:] + b"\0\0\0\7", None),
        (SECRET, None),
        (b"", None),
    ],
    ids=["ours", "another secret", "no rank", "silence"],
)
def test_a_greeting_has_the_secret_and_a_rank(
    monkeypatch: pytest.MonkeyPatch, greeting: bytes, rank: int | None
) -> None:
    monkeypatch.setattr(star, "_GREETING_SECONDS", 0.05)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(greeting)
        assert star._greeted(ours, SECRET) == rank


@pytest.mark.parametrize(
    ("host", "families"),
    [
        ("", {socket.AF_UNIX}),
        ("127.0.0.1", {socket.AF_INET}),
        ("10.1.2.3", {socket.AF_INET6, socket.AF_INET}),
    ],
)
def test_rank_0_listens_only_as_far_as_the_others_are(
    host: str, families: set[socket.AddressFamily]
) -> None:
    with star._listener(host) as listener:
        assert listener.family in families
        everywhere = listener.getsockname()[0] in ("::", "0.0.0.0")
        assert everywhere is (host == "10.1.2.3")
        near = star._connection("127.0.0.1" if host else "", star._place_of(listener), 5.0)
        near.close()


@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_of_several_nodes_reach_the_same_numbers(pool: Pool, world_size: int) -> None:
    assert repr(pool.run(over_tcp, world_size=world_size)) == repr(
        pool.run(reduced, world_size=world_size)
    )


@pytest.mark.parametrize(("local", "alone"), [("2", True), ("1", False)])
def test_a_rank_knows_whether_all_are_on_its_node(local: str, alone: bool) -> None:
    found = RankEnvironment.read(
        {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": local, "MASTER_ADDR": "10.1.2.3"}
    )
    assert (found.is_one_node, found.host) == (alone, "10.1.2.3")
