"""How much memory a rank will need, worked out without allocating it.

The model, one micro-batch and a whole step run under torch's fake tensors, which have shapes and no values, while
torch's ``MemTracker`` counts what would be alive. It is the engine's own step that runs (``engine.step``), with the
spec's own optimizer, so whatever they keep or copy is in the numbers. Two slots where the run accumulates, because from
the second on a whole gradient is there during forward.

What cannot be seen this way: memory that a kernel takes for itself and gives back (most take none; a convolution that
copies a gradient into another layout took 16 % in the worst case found), the allocator's rounding and fragmentation,
and CUDA's own context. The micro-batch is built from one sample, so where samples differ in size it stands for that
one. A compiled model is taken as it was before: it usually keeps less.

Not here: where this runs beside a training run (``engine.memory.aside``), how the result is put into words
(``domain.memory``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorConverter,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.distributed._tools.mem_tracker import MemTracker
from torch.utils._pytree import tree_leaves, tree_map_only

from domain import strategy
from domain.memory import MemoryForecast
from domain.spec import Train
from engine.errors import describe
from engine.flops import count
from engine.memory.parts import parts_of, rank_batch, slots_of
from engine.objective import Objective
from engine.precision import Precision
from engine.ranks import Ranks
from engine.strategies.ddp import DDP
from engine.task import Task
from engine.timeline import Line, Parts

SLOTS_MAX: Final = 2
"""Slots from the third on are like the second."""


class NoForecastError(Exception):
    """Why a task's memory cannot be foretold; completes the words "no forecast:"."""


def forecast(task: Task, train: Train, *, micro_batch_size: int, world_size: int, sample: Any) -> MemoryForecast:
    """Foretell the fullest moment of a step, on each rank.

    The task's ``model``, ``collate``, ``loss`` and ``param_groups`` are called, so this belongs into a process in which
    no run of the same task follows: a task that keeps a tensor from one call to the next would keep a fake one.

    Parameters
    ----------
    task : Task
        Prepared.
    train : Train
        The spec's section.
    micro_batch_size : int
        Samples in one forward and backward.
    world_size : int
        Ranks that share the batch.
    sample : Any
        One item of the training dataset.

    Raises
    ------
    NoForecastError
        Whatever the reason is: the strategy spreads the model over ranks, the task needs values, it raises.
    """
    sharing = _Sharing.of(train.strategy, world_size)
    slots = slots_of(train, micro_batch_size=micro_batch_size, world_size=world_size, at_most=SLOTS_MAX)
    with _explained():
        return _forecast(task, train, [sample] * micro_batch_size, SLOTS_MAX if sharing.in_place else slots, sharing)


def flops_per_sample(task: Task, sample: Any) -> float:
    """Model FLOPs of one sample's forward and backward, under the same conditions as :func:`forecast`."""
    with _explained():
        fake = _fake_mode()
        batch = tree_map_only(Tensor, fake.from_tensor, task.collate([sample]))
        with fake:
            objective = Objective(task, task.model().train())

            def run() -> None:
                objective(batch, None, penalize=False)[0].backward()

            return count(run)


def _fake_mode() -> FakeTensorMode:
    # Not only fake tensors go in: a task may hold real ones, such as the weights of its classes.
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    fake.fake_tensor_converter = _Forgetful()
    return fake


class _Forgetful(FakeTensorConverter):
    """Keeps no weak reference to what an operation returns.

    Where a model converts itself (``.float()``, ``.to()``), torch exchanges fake parameters in place, and refuses to with
    one that somebody refers to.
    """

    def set_tensor_memo(self, t: Tensor, v: FakeTensor) -> None:
        pass


@contextmanager
def _explained() -> Iterator[None]:
    """Whatever goes wrong inside, as a reason for having no forecast."""
    try:
        yield
    except DataDependentOutputException as error:
        raise NoForecastError(f"the model or the loss reads a value of a tensor ({error.func})") from None
    except DynamicOutputShapeException as error:
        raise NoForecastError(f"the shape of a result depends on values ({error.func})") from None
    except UnsupportedOperatorException as error:
        raise NoForecastError(f"{error.func} is not known without values") from None
    except Exception as error:
        raise NoForecastError(describe(error)) from error


class _Sharing(NamedTuple):
    """What sharing a model between ranks adds to one rank's memory, or takes from it."""

    copies: int
    """Of the gradient, on their way between ranks."""
    in_place: bool
    """Whether gradients live in what is sent: then they are there from the first slot on."""
    owners: int
    """Ranks among which the optimizer's state is shared out."""

    @classmethod
    def of(cls, options: strategy.Strategy, world_size: int) -> _Sharing:
        if options.name not in _COPIES:
            raise NoForecastError(f"strategy {options.name} spreads memory over the ranks in its own way")
        if options.compression != "none":
            raise NoForecastError(f"compression {options.compression} keeps copies of its own")
        if world_size == 1:
            return cls(copies=0, in_place=False, owners=1)
        in_place = options.buckets_hold_gradients
        return cls(
            copies=_COPIES[options.name] - in_place,
            in_place=in_place,
            owners=world_size if options.name == "zero1" else 1,
        )


_COPIES: Final = {"ddp": 1, "zero1": 1, "manual": 1}
"""Strategies whose memory is known, by copies of the gradient."""


def _largest_part(sizes: list[int], owners: int) -> float:
    """What part of all ``sizes`` the rank with most of them owns: the largest first, each to whoever has least."""
    owned = [0] * owners
    for size in sorted(sizes, reverse=True):
        owned[owned.index(min(owned))] += size
    return max(owned) / sum(owned)


def _forecast(task: Task, train: Train, samples: list[Any], slots: int, sharing: _Sharing) -> MemoryForecast:
    batch = task.collate(samples)
    weight = task.weight(batch)
    # What is sent is added afterwards, and fp16 reads values that bf16, of the same size, does not.
    precision = Precision("fp32" if train.precision == "fp32" else "bf16")
    fake = _fake_mode()
    tracker = MemTracker()
    with fake:
        batch = tree_map_only(Tensor, fake.from_tensor, batch)
        model, strategy, gradient, optimizer = parts_of(task, train, DDP, Ranks(), precision)
        gradient.terms = tuple(strategy.forward(batch, None, penalize=True)[1])
        whole, weights = rank_batch(batch, weight, gradient.terms, samples=len(samples), slots=slots)
        tracker.track_external(model, optimizer.inner, *_tensors(batch))
        with tracker:
            gradient.accumulate(whole, weights, _NewPass(tracker))
            optimizer.norm(1.0)
            # Not the engine's own update: on the CPU it reads whether the norm is finite. Clipping takes no memory.
            optimizer.inner.step()
        state = sum(_bytes(tensor) for tensor in _tensors(dict(optimizer.inner.state)))
        trainable = [_bytes(parameter) for parameter in model.parameters() if parameter.requires_grad]
    found = _by_part(tracker, state)
    optimizer_bytes = int(found.optimizer * _largest_part(trainable, sharing.owners))
    return found.model_copy(update={"buckets": sum(trainable) * sharing.copies, "optimizer": optimizer_bytes})


def _by_part(tracker: MemTracker, state: int) -> MemoryForecast:
    """MemTracker's peak in our words, of a rank that shares nothing."""
    found: dict[str, int] = {}
    for parts in tracker.get_tracker_snapshot("peak").values():
        for kind, held in parts.items():
            name = str(getattr(kind, "value", kind))
            found[name] = found.get(name, 0) + held
    # It counts all that is made during the optimizer's step as its state; what exceeds that is gone afterwards.
    optimizer = min(found["Optstate"], state)
    return MemoryForecast(
        weights=found["Parameter"],
        buffers=found["Buffer"],
        gradients=found["Gradient"],
        optimizer=optimizer,
        activations=found["Activation"] + found["Other"],
        temporary=found["Temp"] + found["Optstate"] - optimizer,
        buckets=0,
    )


class _NewPass:
    """A timeline that measures nothing: it tells the tracker after each slot that the modules will be called again.

    Without being told, the tracker takes that for a mistake.
    """

    def __init__(self, tracker: MemTracker):
        self._tracker = tracker

    def begin(self) -> None:
        pass

    def mark(self, part: str, then: str = "other") -> None:  # noqa: ARG002 - as every timeline has it
        if part == "backward":
            self._tracker.reset_mod_stats()

    def end(self) -> Line:
        return self

    def parts(self) -> Parts:
        return {}


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
