"""Permutation of samples: valid at every size, different for every epoch and seed, and
immediate."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.engine.data.order import EpochOrder, samples
from tests.effort import effort_of

HUGE = 10**8
FIXED_10 = [1, 0, 5, 3, 4, 9, 2, 8, 6, 7]
FIXED_HUGE = [24045780, 4313926, 90297696, 17394562]


def whole(size: int, seed: int, epoch: int) -> list[int]:
    """Return the order of one epoch."""
    return EpochOrder(size, seed, epoch).samples(0, size)


def one_by_one(size: int, seed: int, epoch: int, position: int) -> int:
    """Compute the same function with Python's integers: an independent implementation."""
    mask = 2**64 - 1

    def mix(value: int) -> int:
        value = (value + 0x9E3779B97F4A7C15) & mask
        value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & mask
        value = ((value ^ value >> 27) * 0x94D049BB133111EB) & mask
        return value ^ value >> 31

    half = 1
    while 4**half < size:
        half += 1
    key = mix(mix(seed) ^ epoch)
    keys = [key := mix(key) for _ in range(6)]
    while True:
        left, right = divmod(position, 2**half)
        for key in keys:
            left, right = right, left ^ mix(right ^ key) % 2**half
        position = left * 2**half + right
        if position < size:
            return position


@pytest.mark.parametrize("seed", [0, 1337, 2**63 - 1])
def test_every_size_from_one_to_three_hundred_is_permuted(seed: int) -> None:
    for size in range(1, 301):
        assert sorted(whole(size, seed, size % 3)) == list(range(size)), size


@given(st.integers(1, 5_000), st.integers(0, 2**63 - 1), st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_any_seed_and_epoch_permutes(size: int, seed: int, epoch: int) -> None:
    assert sorted(whole(size, seed, epoch)) == list(range(size))


@given(st.integers(0, 2**63 - 1), st.sets(st.integers(0, HUGE - 1), min_size=50, max_size=100))
@settings(max_examples=30, deadline=None)
def test_a_hundred_million_samples_are_in_range_and_distinct(
    seed: int, positions: set[int]
) -> None:
    order = EpochOrder(HUGE, seed, epoch=1)
    found = [order.samples(position, position + 1)[0] for position in positions]
    assert len(set(found)) == len(positions)
    assert all(0 <= sample < HUGE for sample in found)


def test_the_order_of_a_trillion_samples_starts_at_once() -> None:
    one = effort_of(lambda: EpochOrder(10**12, 1337, 0).samples(0, 1))
    assert 0 <= one.result[0] < 10**12
    assert one.lines < 2_000, "no walk over the epoch"
    assert one.peak_bytes < 100_000, "no table of the epoch"


def test_the_order_is_a_fixed_function_of_seed_and_epoch() -> None:
    # Fixed values: a change here breaks the resume of every running job.
    assert whole(10, 1337, 0) == FIXED_10
    assert EpochOrder(HUGE, 1337, 3).samples(0, 4) == FIXED_HUGE


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    orders = {tuple(whole(100, seed, epoch)) for seed in range(20) for epoch in range(20)}
    assert len(orders) == 400


def test_a_neighbouring_seed_is_not_a_shifted_epoch() -> None:
    # With a key such as seed + epoch, epoch 1 of job 1 would be epoch 0 of job 2.
    for seed in range(10):
        for epoch in range(1, 10):
            assert whole(50, seed, epoch) != whole(50, seed + epoch, 0)
            assert whole(50, seed, epoch) != whole(50, seed ^ epoch, 0)


def _chi_square(counts: Counter[object], cells: int, total: int) -> float:
    expected = total / cells
    return (
        sum((counts[cell] - expected) ** 2 / expected for cell in counts)
        + (cells - len(counts)) * expected
    )


def test_each_sample_is_equally_likely_at_each_position() -> None:
    # 24 × 24 cells, of which 23 × 23 are free. The bound is the mean of the chi-square plus five
    # standard deviations.
    size, epochs = 24, 4_000
    counts: Counter[object] = Counter()
    for epoch in range(epochs):
        counts.update(enumerate(whole(size, 7, epoch)))
    free = (size - 1) ** 2
    assert _chi_square(counts, size * size, size * epochs) < free + 5 * (2 * free) ** 0.5


def test_each_pair_of_neighbours_is_equally_likely() -> None:
    # Ordered pairs of neighbours: 12 × 11 cells. This finds a permutation that keeps neighbours
    # together.
    size, epochs = 12, 4_000
    counts: Counter[object] = Counter()
    for epoch in range(epochs):
        counts.update(pairwise(whole(size, 11, epoch)))
    cells = size * (size - 1)
    assert _chi_square(counts, cells, epochs * (size - 1)) < cells + 5 * (2 * cells) ** 0.5


def test_all_orders_of_four_are_reached_equally_often() -> None:
    counts: Counter[object] = Counter()
    for epoch in range(12_000):
        counts[tuple(whole(4, 5, epoch))] += 1
    assert len(counts) == 24
    assert _chi_square(counts, 24, 12_000) < 23 + 5 * (2 * 23) ** 0.5


@given(st.integers(1, 60), st.integers(0, 400), st.integers(0, 150), st.integers(0, 2**63 - 1))
@settings(deadline=None)
def test_epochs_lie_end_to_end(size: int, start: int, length: int, seed: int) -> None:
    epochs = (start + length) // size + 1
    line = [(epoch, sample) for epoch in range(epochs) for sample in whole(size, seed, epoch)]
    assert samples(start, start + length, size=size, seed=seed) == line[start : start + length]


def test_batches_across_epoch_ends_use_every_sample_once() -> None:
    size, batch = 7, 14
    seen = Counter(
        pair
        for step in range(10)
        for pair in samples(step * batch, (step + 1) * batch, size=size, seed=3)
    )
    assert set(seen.values()) == {1}
    assert set(seen) == {(epoch, sample) for epoch in range(20) for sample in range(size)}


@given(st.integers(1, 10**12), st.integers(0, 2**63 - 1), st.integers(0, 10**6), st.data())
@settings(deadline=None)
def test_a_block_equals_its_positions_one_by_one(
    size: int, seed: int, epoch: int, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, size - 1))
    stop = data.draw(st.integers(start, min(size, start + 40)))
    expected = [(epoch, one_by_one(size, seed, epoch, position)) for position in range(start, stop)]
    assert samples(epoch * size + start, epoch * size + stop, size=size, seed=seed) == expected


def test_a_range_across_blocks_has_no_seam() -> None:
    order = EpochOrder(5_000, 9, 2).samples(0, 5_000)
    assert [sample for _, sample in samples(11_000, 14_500, size=5_000, seed=9)] == order[
        1_000:4_500
    ]


@pytest.mark.parametrize("bounds", [(-1, 3), (4, 11), (10, 11), (5, 4)])
def test_positions_outside_the_epoch_are_refused(bounds: tuple[int, int]) -> None:
    with pytest.raises(IndexError, match="outside an epoch of 10 samples"):
        EpochOrder(10, 0, 0).samples(*bounds)


def test_an_empty_dataset_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one sample"):
        EpochOrder(0, 0, 0)
