"""The order of samples: a permutation at every size, different in every epoch and for every seed, at once at any size."""

from __future__ import annotations

import time
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domain.order import EpochOrder, samples

HUGE = 10**8
FIXED_10 = [1, 0, 5, 3, 4, 9, 2, 8, 6, 7]
FIXED_HUGE = [24045780, 4313926, 90297696, 17394562]


@pytest.mark.parametrize("seed", [0, 1337, 2**63 - 1])
def test_every_size_from_one_to_three_hundred_is_permuted(seed: int) -> None:
    for size in range(1, 301):
        order = EpochOrder(size, seed, epoch=size % 3)
        assert sorted(order[position] for position in range(size)) == list(range(size)), size


@given(st.integers(1, 5_000), st.integers(0, 2**63 - 1), st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_any_seed_and_epoch_permutes(size: int, seed: int, epoch: int) -> None:
    order = EpochOrder(size, seed, epoch)
    assert {order[position] for position in range(size)} == set(range(size))


@given(st.integers(0, 2**63 - 1), st.sets(st.integers(0, HUGE - 1), min_size=50, max_size=100))
@settings(max_examples=30, deadline=None)
def test_a_hundred_million_samples_are_in_range_and_never_meet(seed: int, positions: set[int]) -> None:
    order = EpochOrder(HUGE, seed, epoch=1)
    found = [order[position] for position in positions]
    assert len(set(found)) == len(positions)
    assert all(0 <= sample < HUGE for sample in found)


def test_the_order_of_a_trillion_samples_starts_at_once() -> None:
    started = time.perf_counter()
    first = EpochOrder(10**12, 1337, 0)[0]
    assert time.perf_counter() - started < 0.05
    assert 0 <= first < 10**12


def test_the_order_is_a_fixed_function_of_seed_and_epoch() -> None:
    # Written down once: a change here breaks the resume of every job that is running.
    assert [EpochOrder(10, 1337, 0)[position] for position in range(10)] == FIXED_10
    assert [EpochOrder(HUGE, 1337, 3)[position] for position in range(4)] == FIXED_HUGE


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    orders = {
        tuple(EpochOrder(100, seed, epoch)[position] for position in range(100))
        for seed in range(20)
        for epoch in range(20)
    }
    assert len(orders) == 400


def test_a_neighbouring_seed_is_no_shifted_epoch() -> None:
    # With a key such as seed + epoch, job 1's epoch 1 would be job 2's epoch 0.
    def order(seed: int, epoch: int) -> list[int]:
        return [EpochOrder(50, seed, epoch)[position] for position in range(50)]

    for seed in range(10):
        for epoch in range(1, 10):
            assert order(seed, epoch) != order(seed + epoch, 0)
            assert order(seed, epoch) != order(seed ^ epoch, 0)


def _chi_square(counts: Counter[object], cells: int, total: int) -> float:
    expected = total / cells
    return sum((counts[cell] - expected) ** 2 / expected for cell in counts) + (cells - len(counts)) * expected


def test_each_sample_is_equally_likely_at_each_position() -> None:
    # 24 × 24 cells, of which 23 × 23 are free. The bound is the chi-square's mean plus five standard deviations.
    size, epochs = 24, 4_000
    counts: Counter[object] = Counter()
    for epoch in range(epochs):
        order = EpochOrder(size, 7, epoch)
        counts.update((position, order[position]) for position in range(size))
    free = (size - 1) ** 2
    assert _chi_square(counts, size * size, size * epochs) < free + 5 * (2 * free) ** 0.5


def test_what_follows_what_is_equally_likely_too() -> None:
    # Ordered pairs of neighbours: 12 × 11 cells. Catches a permutation that keeps neighbours together.
    size, epochs = 12, 4_000
    counts: Counter[object] = Counter()
    for epoch in range(epochs):
        order = EpochOrder(size, 11, epoch)
        line = [order[position] for position in range(size)]
        counts.update(pairwise(line))
    cells = size * (size - 1)
    assert _chi_square(counts, cells, epochs * (size - 1)) < cells + 5 * (2 * cells) ** 0.5


def test_all_orders_of_four_are_reached_equally_often() -> None:
    counts: Counter[object] = Counter()
    for epoch in range(12_000):
        order = EpochOrder(4, 5, epoch)
        counts[tuple(order[position] for position in range(4))] += 1
    assert len(counts) == 24
    assert _chi_square(counts, 24, 12_000) < 23 + 5 * (2 * 23) ** 0.5


@given(st.integers(1, 60), st.integers(0, 400), st.integers(0, 150), st.integers(0, 2**63 - 1))
@settings(deadline=None)
def test_epochs_lie_end_to_end(size: int, start: int, length: int, seed: int) -> None:
    line = [(epoch, EpochOrder(size, seed, epoch)[index]) for epoch in range(10 + 600 // size) for index in range(size)]
    assert list(samples(start, start + length, size=size, seed=seed)) == line[start : start + length]


def test_ten_batches_across_epoch_ends_use_every_sample_of_each_epoch_once() -> None:
    size, batch = 7, 14
    seen = Counter(pair for step in range(10) for pair in samples(step * batch, (step + 1) * batch, size=size, seed=3))
    assert set(seen.values()) == {1}
    assert set(seen) == {(epoch, sample) for epoch in range(20) for sample in range(size)}


@pytest.mark.parametrize("position", [-1, 10, 11])
def test_a_position_outside_the_epoch_is_refused(position: int) -> None:
    with pytest.raises(IndexError, match="outside an epoch of 10 samples"):
        EpochOrder(10, 0, 0)[position]


def test_an_empty_dataset_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one sample"):
        EpochOrder(0, 0, 0)
