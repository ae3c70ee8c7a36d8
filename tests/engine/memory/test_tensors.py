"""Count of the bytes of tensors: compared with torch's profiler, and exact for shared, resized and
freed storages."""

from __future__ import annotations

import threading

import torch
from torch import nn

from lockstep.engine.memory.measured import count_of
from lockstep.engine.memory.tensors import TensorCount
from tests.engine.memory.memory_cases import CPU

KIB = 1024


def test_the_peak_of_a_step_equals_that_of_the_profiler() -> None:
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    samples = torch.randn(64, 256)

    def step() -> None:
        model(samples).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    state = [value for held in optimizer.state.values() for value in held.values()]
    before = sum(
        tensor.numel() * tensor.element_size() for tensor in (samples, *model.parameters(), *state)
    )
    count = TensorCount()
    for _ in range(2):  # The second starts with all that the first left.
        with count:
            step()
    assert count.peak_bytes == before + count_of(step, CPU).peak


def test_views_and_tensors_freed_in_a_thread_hold_nothing() -> None:
    held: list[torch.Tensor] = []
    with TensorCount() as count:
        held.append(torch.ones(KIB // 4))
        view = held[0].view(2, -1).t()
        assert count.peak_bytes == KIB
        del view
        other = threading.Thread(target=held.clear)
        other.start()
        other.join()
        held.append(torch.ones(KIB // 4))
    assert count.peak_bytes == KIB


def test_a_resized_storage_holds_its_new_size() -> None:
    with TensorCount() as count:
        tensor = torch.ones(KIB // 4)
        tensor.untyped_storage().resize_(0)
        other = torch.ones(KIB // 4)
        assert count.peak_bytes == KIB
        tensor.untyped_storage().resize_(2 * KIB)
    assert count.peak_bytes == 3 * KIB
    del other


def test_ignored_tensors_and_those_made_in_a_pause_do_not_count() -> None:
    waiting = torch.ones(KIB)
    count = TensorCount()
    count.ignore([waiting])
    with count:
        with count.paused():
            made = torch.ones(KIB)
        made.add_(waiting)
    assert count.peak_bytes == 0


def test_a_tensor_without_a_storage_makes_the_count_incomplete() -> None:
    with TensorCount() as count:
        torch.ones(2).to_sparse()
    assert not count.is_complete


def test_parts_add_up_to_the_peak_and_follow_their_new_names() -> None:
    weight, gradient = torch.ones(KIB // 4), torch.ones(KIB // 2)
    count = TensorCount()
    count.hold("weights", [weight])
    count.hold("temporary", [gradient])
    count.rename("gradients", [gradient])
    with count:
        made = weight + 1
        count.rename_all("activations", "buckets")
        more = weight + 2
    assert count.peak == {
        "weights": KIB,
        "temporary": 0,
        "gradients": 2 * KIB,
        "activations": KIB,
        "buckets": KIB,
    }
    assert count.peak_bytes == sum(count.peak.values())
    del made, more
