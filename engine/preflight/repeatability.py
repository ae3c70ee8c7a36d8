"""Checks of state outside the engine, which makes a run depend on its micro-batches and ranks.

They run before the first step:

* The loss of one batch is computed twice under the same seeds and tensors. If the two differ, the
  loss depends on the calls before: it counts them, or draws from a generator of its own.
* Parameters and buffers that a call changes move once per micro-batch: a teacher, a codebook, a
  running mean. So does what it changes in the dataset: a level of difficulty, targets.
* A hook on a parameter gets the gradient of a micro-batch, not of the batch.

None of it is refused, because such a run can be repeated on its own layout in most cases. Each
becomes a warning of the run. The checks leave no trace in the tensors, attributes and generators
that ``engine.state`` finds. They call no collective, and only rank 0's warnings
are written. A resumed run is checked again.

Not here: a loss that is not a sum over samples (``engine.preflight.additivity_check``), items of a
dataset (``engine.preflight.items``), the generators of torch, numpy and Python
(``engine.runtime.randomness``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from lockstep.engine.model.normalization import masked_batch, masked_samples, refuses_one_sample
from lockstep.engine.model.objective import as_terms
from lockstep.engine.model.precision import Precision
from lockstep.engine.runtime import randomness
from lockstep.engine.runtime.device import to_device, traits_of
from lockstep.engine.runtime.errors import release
from lockstep.engine.state.datasets import values_of
from lockstep.engine.state.inventory import Inventory
from lockstep.engine.state.places import get_child
from lockstep.engine.state.values import equal
from lockstep.engine.state.walk import Entry
from lockstep.engine.task.copies import independent
from lockstep.engine.task.interface import Batch

PARAMETERS_MAX: Final = 300_000_000
"""Larger models are not checked: the copies would take more than 2 GB on every rank."""
NAMED_MAX: Final = 5
_DEPENDS: Final = "so the run depends on micro_size and on the ranks"


@dataclass
class RepeatabilityResult:
    """Result of the checks of a loss."""

    warnings: list[str] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)
    """Names of parameters that a call of the loss changes."""
    trained: list[str] = field(default_factory=list)
    """Names of trained parameters that a call of the loss changes, replaces or adds."""
    of_dataset: list[str] = field(default_factory=list)
    """Names of values of the dataset that a call of the loss changes."""
    unseen: bool = False
    """True if the loss depends on state that the inventory does not find."""
    needs_several: bool = False
    """True if the loss of a single sample cannot be computed, because of BatchNorm."""


def check_loss(
    inventory: Inventory,
    sample: Any,
    precision: Precision,
    *,
    seed: int,
    device: torch.device,
) -> RepeatabilityResult:
    """Evaluate the loss of one sample twice, and record the state that it changes.

    All ranks should call this, because a loss may communicate.

    Parameters
    ----------
    inventory : Inventory
        Of the task and its model, which is in train mode, on the rank's device, and not wrapped.
    sample : Any
        One item of the training dataset.
    precision : Precision
    seed : int
        The job's.
    device : torch.device
    """
    found = RepeatabilityResult()
    if inventory.parameters() <= PARAMETERS_MAX:
        with randomness.unchanged_generators(device):
            try:
                _Calls(inventory, precision, seed=seed, device=device).run(sample, found)
            except Exception as error:  # noqa: BLE001 - the warm-up comes next, and fails where training would
                release(error)
                found = RepeatabilityResult()
    if found.unseen and not inventory.has_unsavable():
        inventory.note("loss()", "it depends on state that no attribute holds")
    for name in found.of_dataset:
        inventory.note(name, "loss() changes it, and a checkpoint holds no state of a dataset")
    found.warnings += _hook_warnings(inventory.model)
    return found


class _Calls:
    """Calls of a loss outside of training."""

    def __init__(
        self, inventory: Inventory, precision: Precision, *, seed: int, device: torch.device
    ):
        self._inventory, self._precision, self._device = inventory, precision, device
        self._task, self._model = inventory.task, inventory.model
        self._seed = randomness.seed_of(randomness.MICRO_BATCH, seed)

    def run(self, sample: Any, found: RepeatabilityResult) -> None:
        """Evaluate, restore changed state, and add to ``found``."""
        before = self._inventory.snapshot()
        batch = masked_batch(self._task, self._model, sample)
        datasets = [
            values_of(each, (self._task, self._model)) for each in self._inventory.datasets[:1]
        ]
        try:
            self._change_weights()
            others = self._twice(batch, found)
            if others and not found.warnings:
                self._change_weights()  # The first call may have made a teacher.
                self._twice(batch, found)
            if masked_samples(self._model) > 1:
                found.needs_several = self._refuses_one(sample)
        finally:
            before.put_back()
        found.of_dataset = [entry.name for each in datasets for entry in each.changes()]
        found.warnings += _dataset_warnings(found.of_dataset)

    @torch.no_grad()
    def _change_weights(self) -> None:
        """Change the weights a little.

        A teacher that starts as a copy of its student changes only after the student.
        """
        for parameter in self._model.parameters():
            if parameter.requires_grad:
                parameter.mul_(1.01).add_(1e-3)

    def _twice(self, batch: Batch, found: RepeatabilityResult) -> list[Entry]:
        """Call the loss twice, and return the changes outside of modules."""
        own = {n: each for n, each in self._model.named_parameters() if each.requires_grad}
        trained = set(map(id, own.values()))
        before = self._inventory.snapshot(skip=lambda tensor: id(tensor) in trained)
        versions = {name: each._version for name, each in own.items()}
        first = self._terms(batch)
        written = [name for name, each in own.items() if each._version != versions[name]]
        written += [
            name
            for name, each in self._model.named_parameters()
            if each.requires_grad and own.get(name) is not each
        ]
        found.trained = found.trained or written
        changed = before.changes()
        known = before.names()
        moved = [e for e in changed if e.of_module and e.name in known and not _is_made(e)]
        others = [each for each in changed if each not in moved]
        before.put_back_only(moved)
        second = self._terms(batch)
        found.moved = [each.name for each in moved if isinstance(each.value, nn.Parameter)]
        found.warnings += _moved_warnings(moved)
        differing = [name for name in first if not self._same(first[name], second.get(name))]
        if differing:
            names = [each.name for each in others]
            found.unseen = not names
            found.warnings.append(_differing_warning(differing, list(first), names))
        return others

    def _refuses_one(self, sample: Any) -> bool:
        try:
            self._terms(self._task.collate([independent(sample)]))
        except ValueError as error:
            return refuses_one_sample(error)
        return False

    def _terms(self, batch: Batch) -> dict[str, Tensor]:
        randomness.seed_host(self._seed)
        randomness.seed_device(self._seed, self._device)
        with self._precision.autocast():
            terms = as_terms(
                self._task.loss(self._model, to_device(independent(batch), self._device))
            )
        return {name: term.detach() for name, term in terms.items()}

    def _same(self, one: Tensor, other: Tensor | None) -> bool:
        if other is None or equal(one, other):
            return other is not None
        # A device may compute sums in any order, and kernels of the host depend on the alignment of
        # memory.
        tolerance = torch.finfo(one.dtype).eps * traits_of(self._device).roundings
        return bool(torch.isclose(one, other, rtol=tolerance, atol=0.0, equal_nan=True))


def _is_made(entry: Entry) -> bool:
    """Return whether a buffer was None before, or is a table that has grown: no value moved."""
    assert entry.owner is not None
    now = get_child(entry.owner, entry.key)
    return entry.value is None or getattr(now, "shape", None) != entry.value.shape


def _moved_warnings(moved: list[Entry]) -> list[str]:
    parameters = [each.name for each in moved if isinstance(each.value, nn.Parameter)]
    buffers = [
        each.name
        for each in moved
        # A task with BatchNorm declares batch_dependent, which is a warning of its own.
        if not isinstance(each.value, nn.Parameter) and not _of_batch_norm(each)
    ]
    warnings = []
    if parameters:
        warnings.append(
            f"loss() changes parameters ({_listed(parameters)}), such as those of a moving "
            f"average: they move with each micro-batch of a rank, not with each step, {_DEPENDS}"
        )
    if buffers:
        warnings.append(
            f"loss() changes buffers ({_listed(buffers)}): each rank's follow its own "
            f"micro-batches, "
            f"{_DEPENDS}; rank 0's are evaluated"
        )
    return warnings


def _dataset_warnings(changed: list[str]) -> list[str]:
    if not changed:
        return []
    return [
        f"loss() changes the dataset ({_listed(changed)}): its samples depend on the micro-batches "
        f"of a rank before them, {_DEPENDS}, and a resumed run is not exact: make a sample a "
        "function of its index"
    ]


def _differing_warning(differing: list[str], terms: list[str], state: list[str]) -> str:
    which = f" in its term {', '.join(map(repr, differing))}" if len(terms) > 1 else ""
    resumed = "" if state else ", and a resumed run is not exact"
    because = f" (it changes {_listed(state)})" if state else ""
    return (
        f"loss(){which} gives a different value when it is called again with the same "
        f"batch{because}: it depends on previous calls, {_DEPENDS}{resumed}: make it depend on "
        "the model and the batch only, and draw random numbers without a separate generator"
    )


def _hook_warnings(model: nn.Module) -> list[str]:
    hooked = [
        name
        for name, parameter in model.named_parameters()
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None)
    ]
    if not hooked:
        return []
    return [
        f"parameters have gradient hooks ({_listed(hooked)}): a hook receives the gradient of a "
        "micro-batch, not of the batch, so with a nonlinear hook, such as clipping by value, the "
        "run depends on micro_size and on the ranks"
    ]


def _of_batch_norm(entry: Entry) -> bool:
    return entry.owner is not None and isinstance(entry.owner.value, _BatchNorm)


def _listed(names: list[str]) -> str:
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
