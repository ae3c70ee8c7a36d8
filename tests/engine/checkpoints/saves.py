"""Control of the background write of a checkpoint: after the next update, or after a failure.

Not here: the conditions that must hold then (``tests.engine.checkpoints.test_saving``).
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from lockstep.domain.life.outcomes import Reason
from lockstep.engine.checkpoints import checkpoint, saving
from lockstep.engine.checkpoints.saving import HostCopy, Saver
from lockstep.engine.loop.non_finite import NonFinite
from lockstep.engine.runtime.errors import EngineError

DEADLINE_SECONDS = 120.0


@contextlib.contextmanager
def held_until(ready: threading.Event) -> Iterator[list[int]]:
    """Delay each background write until ``ready``; yield the maximum of simultaneous writes."""
    real, writing, most = checkpoint.save, [0], [0]

    def save(*arguments: Any, **options: Any) -> Any:
        writing[0] += 1
        most[0] = max(most[0], writing[0])
        assert ready.wait(DEADLINE_SECONDS), "the write was never released"
        try:
            return real(*arguments, **options)
        finally:
            writing[0] -= 1

    with mock.patch.object(saving.checkpoint, "save", save):
        yield most


@contextlib.contextmanager
def written_after_the_next_update() -> Iterator[None]:
    """Delay each background write until the parameters have changed."""
    moved, wait = threading.Event(), Saver._wait_for_the_last

    def clear(self: Saver, step: int) -> None:
        wait(self, step)
        moved.clear()

    hook = register_optimizer_step_post_hook(lambda *_: moved.set())
    with held_until(moved), mock.patch.object(Saver, "_wait_for_the_last", clear):
        yield
    hook.remove()


@contextlib.contextmanager
def no_copy_is_made() -> Iterator[None]:
    """A wrong rule: the thread writes the live state."""
    with (
        written_after_the_next_update(),
        mock.patch.object(HostCopy, "take", lambda self, state: state),
    ):
        yield


@contextlib.contextmanager
def written_only_after_a_failure() -> Iterator[None]:
    failed = threading.Event()
    abandon = Saver.abandon

    def and_then(self: Saver) -> None:
        failed.set()
        abandon(self)

    with held_until(failed), mock.patch.object(Saver, "abandon", and_then), fails_at_step(4):
        yield


@contextlib.contextmanager
def fails_at_step(step: int) -> Iterator[None]:
    judge = NonFinite.judge

    def fail(self: NonFinite, report: Any) -> None:
        if report.step == step:
            raise EngineError(Reason.NON_FINITE, f"the loss of step {step} is {math.nan}")
        judge(self, report)

    with mock.patch.object(NonFinite, "judge", fail):
        yield


def same(one: Any, other: Any) -> bool:
    """Return True if two states are bitwise equal."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)
