"""A failure in a process of ``loader.workers`` is reported like one of the rank.

Not here: the outcome that follows (``tests.engine.launcher.test_verdict``).
"""

from __future__ import annotations

import errno
import gc
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable

import pytest
from torch.utils.data import Dataset

from lockstep.domain.life.outcomes import Reason
from lockstep.engine.data.fetching import Fetcher, micro_batches, pinned, seeded_sample
from lockstep.engine.runtime import failure_text, randomness
from lockstep.engine.runtime.errors import EngineError, describe, reason_of

BAD = 5


class TwoArgumentsError(Exception):
    """Exception that pickle can write and cannot read."""

    def __init__(self, item: int, what: str):
        super().__init__(f"item {item} is {what}")


class Failing(Dataset[int]):
    """One item fails in a given way."""

    def __init__(self, act: Callable[[], object]):
        self.act = act

    def __getitem__(self, index: int) -> int:
        if index == BAD:
            self.act()
        return index


class Unsendable:
    """Sample that pickle refuses."""

    def __reduce__(self) -> str:
        raise TypeError("this sample holds an open file")


class Mixed(Dataset[object]):
    """Items of which one cannot leave its process."""

    def __getitem__(self, index: int) -> object:
        return Unsendable() if index == BAD else index


def raising(error: Exception) -> Callable[[], object]:
    def act() -> None:
        raise error

    return act


def failure(act: Callable[[], object], *, workers: int = 1) -> Exception:
    """Return the exception that a rank gets."""
    fetcher: Fetcher[list[int]] = Fetcher(Failing(act), list, seed=3)
    made = micro_batches(
        fetcher, [[(0, index)] for index in range(9)], workers=workers, ahead=2, pin=False
    )
    try:
        for index, batch in enumerate(
            made
        ):  # A worker that dies loses some of its finished samples.
            assert batch == [index] != [BAD]
    except Exception as error:  # noqa: BLE001 - the error is the result
        # No frame of its own traceback keeps it: otherwise the workers would live until a later
        # garbage collection.
        return error
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize(
    ("error", "reason", "text_of_error"),
    [
        (ValueError("item 138 is corrupt"), Reason.USER_ERROR, "ValueError: item 138 is corrupt"),
        (KeyError(7), Reason.USER_ERROR, "KeyError: 7"),
        (
            EngineError(Reason.BAD_SPEC, "weight() returned nan"),
            Reason.BAD_SPEC,
            "weight() returned nan",
        ),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            Reason.STORAGE,
            "OSError: [Errno 28] No space left on device",
        ),
        (MemoryError("so much"), Reason.OUT_OF_MEMORY, "MemoryError: so much"),
        (
            TwoArgumentsError(5, "bad"),
            Reason.USER_ERROR,
            f"{__name__}.TwoArgumentsError: item 5 is bad",
        ),
        (StopIteration(), Reason.USER_ERROR, "StopIteration"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_an_error_in_a_worker_keeps_its_reason_and_message(
    error: Exception, reason: Reason, text_of_error: str
) -> None:
    for workers in (1, 2):
        found = failure(raising(error), workers=workers)
        assert (reason_of(found), describe(found)) == (
            reason,
            f"item {BAD} of dataset('train'): {text_of_error}",
        )


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("purpose", "split"), [(randomness.ITEM, "train"), (randomness.EVAL_ITEM, "eval")]
)
def test_the_item_that_raised_is_named_with_its_split(
    workers: int, purpose: int, split: str
) -> None:
    dataset = Failing(raising(ValueError("two\nlines")))
    fetcher: Fetcher[list[int]] = Fetcher(dataset, list, seed=3, purpose=purpose)
    batches = [[(0, 3), (0, BAD)], [(0, 8)]]
    with pytest.raises((ValueError, EngineError)) as raised:
        list(micro_batches(fetcher, batches, workers=workers, ahead=2, pin=False))
    assert describe(raised.value) == f"item {BAD} of dataset({split!r}): ValueError: two\nlines"
    error = raised.value
    error.__traceback__ = (
        error.__traceback__ and error.__traceback__.tb_next
    )  # Without the frame of this test.
    text = failure_text.text_of(error, 0)
    assert f"raised by item {BAD} of dataset({split!r})\n" in text
    assert f'File "{__file__}", line' in text
    assert "fetching.py" not in text


def test_a_dataset_that_fetches_several_items_names_all_of_them() -> None:
    class Several(Failing):
        def __getitems__(self, indices: list[int]) -> list[int]:
            return [self[index] for index in indices]

    fetcher: Fetcher[list[int]] = Fetcher(Several(raising(ValueError("bad"))), list, seed=3)
    with pytest.raises(ValueError, match="bad") as raised:
        fetcher._read([(0, 3), (0, BAD)], seeded=False)
    assert (
        describe(raised.value) == f"one of the items 3, {BAD} of dataset('train'): ValueError: bad"
    )


def test_the_first_sample_that_raises_is_named() -> None:
    with pytest.raises(ValueError, match="bad") as raised:
        seeded_sample(Failing(raising(ValueError("bad"))), BAD, seed=3)
    assert describe(raised.value) == f"item {BAD} of dataset('train'): ValueError: bad"


def test_the_traceback_of_a_worker_is_in_that_of_the_rank() -> None:
    text_of_error = "".join(
        traceback.format_exception(failure(raising(ValueError("item 138 is corrupt"))))
    )
    assert "in _received" in text_of_error
    assert (
        f'File "{__file__}", line'
        in text_of_error.rpartition("Traceback (most recent call last)")[2]
    )
    assert text_of_error.endswith(
        f"ValueError: item 138 is corrupt\nraised by item {BAD} of dataset('train')\n"
    )


@pytest.mark.parametrize("code", [3, 0])
def test_a_worker_that_exits_is_reported_by_its_code(code: int) -> None:
    found = failure(lambda: os._exit(code))
    assert (reason_of(found), describe(found)) == (
        Reason.USER_ERROR,
        f"a loader worker exited with code {code}",
    )


def test_a_worker_that_calls_exit_is_reported_by_its_code() -> None:
    assert describe(failure(lambda: sys.exit(3))) == "a loader worker exited with code 3"


def test_a_worker_that_is_killed_is_a_kill() -> None:
    found = failure(lambda: os.kill(os.getpid(), signal.SIGKILL))
    assert (reason_of(found), describe(found)) == (
        Reason.KILLED,
        "a loader worker was killed by signal 9 (Killed)",
    )


def test_torchs_signal_about_a_killed_worker_is_a_kill_anywhere() -> None:
    """Torch's handler of SIGCHLD raises at any point of the rank's code."""
    killed = RuntimeError("DataLoader worker (pid 1908) is killed by signal: Killed. ")
    exited = RuntimeError("DataLoader worker (pid 1908) exited unexpectedly with exit code 3.")
    assert (reason_of(killed), reason_of(exited)) == (Reason.KILLED, Reason.USER_ERROR)


def test_an_error_of_the_waiting_rank_itself_is_unchanged() -> None:
    class Unreadable:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return int, ("no number",)

    fetcher: Fetcher[list[Unreadable]] = Fetcher(Failing(int), lambda _: [Unreadable()], seed=3)
    with pytest.raises(ValueError, match="no number"):
        next(micro_batches(fetcher, [[(0, 0)]], workers=1, ahead=2, pin=False))


def test_an_error_is_unchanged_with_pinned_batches() -> None:
    """A thread of torch pins every object that a worker sends."""
    from lockstep.engine.data.fetching import _Failed

    failed = _Failed(Reason.STORAGE, "no space", "traceback")
    assert pinned(failed) is failed


@pytest.mark.parametrize("workers", [1, 2])
def test_a_batch_that_cannot_be_pickled_is_an_error_at_once(workers: int) -> None:
    fetcher: Fetcher[list[object]] = Fetcher(Mixed(), list, seed=3)
    made = micro_batches(
        fetcher, [[(0, index)] for index in range(9)], workers=workers, ahead=2, pin=False
    )
    for index in range(BAD):
        assert next(made) == [index]
    found: list[EngineError] = []

    def wait() -> None:
        with pytest.raises(EngineError) as raised:
            next(made)
        found.append(EngineError(raised.value.reason, str(raised.value)))

    waiting = threading.Thread(
        target=wait, daemon=True
    )  # The rank would wait until its stall limit.
    waiting.start()
    waiting.join(60)
    assert [(error.reason, str(error)) for error in found] == [
        (
            Reason.BAD_SPEC,
            "a loader worker cannot send a micro-batch to its rank: TypeError: this sample holds "
            "an open file; return tensors, numbers, text or containers of them from the dataset "
            "and collate(), or set loader.workers to 0",
        )
    ]


class Inherited:
    """Garbage of a rank, which its collector alone finds."""

    destroyed = 0

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        Inherited.destroyed += 1


class Collecting(Dataset[tuple[int, bool]]):
    """Items that tell what the worker's collector has destroyed."""

    def __getitem__(self, index: int) -> tuple[int, bool]:
        gc.collect()
        return Inherited.destroyed, gc.isenabled()


@pytest.mark.parametrize("collects", [True, False])
def test_a_worker_destroys_nothing_of_its_rank(collects: bool) -> None:
    """The destructor of a process group would wait for threads that a fork does not have."""
    gc.collect()
    Inherited.destroyed = 0
    gc.disable()
    Inherited()
    if collects:
        gc.enable()
    fetcher: Fetcher[list[object]] = Fetcher(Collecting(), list, seed=3)
    try:
        made = next(micro_batches(fetcher, [[(0, 0)]], workers=1, ahead=1, pin=False))
        assert (made, gc.isenabled()) == ([(0, collects)], collects)
    finally:
        gc.enable()
