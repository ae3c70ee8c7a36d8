"""Checks of a task's model and datasets: of the right kind, and the same on every rank.

The engine shards a dataset itself. A dataset that is already sharded, as scripts do under torchrun,
would be trained in parts, and in other parts on another number of ranks.

Not here: the loss (``engine.preflight.additivity_check``), the comparison of a dataset with a
checkpoint's (``engine.checkpoints.state``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.utils.data import DataLoader, Dataset

from lockstep.domain.training.layout import RankLayout
from lockstep.engine.data.fingerprint import Samples, look, other_samples
from lockstep.engine.data.loader import RankBatch
from lockstep.engine.runtime import randomness
from lockstep.engine.runtime.document import NotPlainError, require_plain
from lockstep.engine.runtime.errors import BadSpecError, EngineError, listed
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.task.interface import Task


def model_of(task: Task) -> nn.Module:
    """The task's model.

    Raises
    ------
    EngineError
        ``bad_spec``: it is none, it is wrapped to share gradients, it is lazy, its embeddings are
        sparse, or its extra state cannot be read back.
    """
    model: object = task.model()
    if not isinstance(model, nn.Module):
        raise BadSpecError(
            f"model() must return the nn.Module to train, got {_kind(model)}",
        )
    for module in model.modules():
        if isinstance(module, nn.parallel.DistributedDataParallel | nn.DataParallel):
            raise BadSpecError(
                f"model() returns a {type(module).__name__}: return the bare model; the engine "
                "reduces the gradients (train.strategy)",
            )
    tensors = [*model.named_parameters(), *model.named_buffers()]
    if lazy := [name for name, each in tensors if is_lazy(each)]:
        raise BadSpecError(
            f"model() returns lazy modules, whose values have no shape yet ({listed(lazy)}): "
            "name their sizes, or call the model once in model(), with a batch of zeros",
        )
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse:
            raise sparse_gradients(f"{name}.weight" if name else "weight")
        if type(module).get_extra_state is not nn.Module.get_extra_state:
            _require_readable(name, module.get_extra_state())
    return model


def _require_readable(name: str, extra_state: object) -> None:
    """Refuse extra state that a checkpoint would hold and no resume could read."""
    try:
        require_plain(extra_state)
    except NotPlainError as error:
        raise BadSpecError(
            f"a checkpoint could not be read again because of get_extra_state() of "
            f"{name or 'the model'}: return tensors, numbers, text, lists and dicts only, not "
            f"objects of a class of your own ({error})",
        ) from None


def sparse_gradients(name: str) -> EngineError:
    """The error for a parameter whose gradient is sparse.

    No strategy reduces one, and no norm is taken of it.
    """
    return BadSpecError(
        f"the gradient of {name} is sparse, and the engine supports dense gradients only: remove "
        "sparse=True from its embedding",
    )


def require_dense(model: nn.Module) -> None:
    """Refuse sparse gradients, which a functional embedding makes too; after a backward.

    Raises
    ------
    EngineError
        ``bad_spec``, with the name of the first.
    """
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and parameter.grad.layout != torch.strided:
            raise sparse_gradients(name)


def dataset_of(task: Task, split: str, *, seed: int) -> tuple[Dataset[Any], int]:
    """Return the task's dataset of ``split`` and its length.

    ``random``, ``numpy.random`` and torch are seeded equally before each call, on every rank and
    for every split, so a ``random_split`` inside ``dataset()`` divides the items the same way each
    time. Afterwards the states of the generators are restored.

    Parameters
    ----------
    task : Task
    split : str
    seed : int
        The job's seed.

    Raises
    ------
    EngineError
        ``bad_spec``: it is no dataset, has no length or no items, or is empty.
    """
    with randomness.unchanged_generators(torch.device("cpu")):
        # Independent of the split: the draws of one split decide the items of the others.
        randomness.seed_host(randomness.seed_of(randomness.DATASET, seed))
        dataset: Any = task.dataset(split)
    if dataset is None:
        asks = ", and eval.every_steps is set" if split == "eval" else ""
        raise BadSpecError(
            f"dataset({split!r}) returned None{asks}: return a map-style dataset",
        )
    if isinstance(dataset, DataLoader):
        raise BadSpecError(
            f"dataset({split!r}) returned a DataLoader: return the dataset; the engine creates "
            f"the micro-batches",
        )
    try:
        size = len(dataset)
    except TypeError:
        raise BadSpecError(
            f"dataset({split!r}) has no length: return a map-style dataset, or run a stream as "
            f"kind: script",
        ) from None
    if not _has_items(dataset):
        raise BadSpecError(
            f"dataset({split!r}) returned a {type(dataset).__name__}, which has no __getitem__: "
            "return a map-style dataset with __len__ and __getitem__, or run a stream as kind: "
            "script",
        )
    if size < 1:
        raise BadSpecError(f"dataset({split!r}) is empty")
    return dataset, size


def require_same_data(
    ranks: Ranks, sizes: dict[str, int], samples: Samples, read_again: Callable[[], Samples]
) -> None:
    """Raise unless every rank has the whole dataset, and the same one. All ranks must call this.

    Parameters
    ----------
    ranks : Ranks
    sizes : mapping of str to int
        Length of each split on this rank.
    samples : mapping
        Fingerprints of some samples of the training dataset on this rank
        (``engine.data.fingerprint.samples_of``).
    read_again : callable
        Computes them once more: samples that differ each time prove nothing.

    Raises
    ------
    EngineError
        ``bad_spec``, on all ranks.
    """
    if ranks.world_size == 1:
        return
    first_sizes, first_samples = ranks.from_first((sizes, samples))
    wrong = ""
    for split, size in first_sizes.items():
        if size != sizes[split]:
            wrong = (
                f"dataset({split!r}) has {sizes[split]} samples on rank {ranks.rank} and {size} "
                f"on rank 0"
            )
            break
    else:
        others = other_samples(first_samples, samples)
        if others and not other_samples(read_again(), samples):
            wrong = (
                f"dataset('train') on rank {ranks.rank} differs from that of rank 0: {others[0]}"
            )
    found = next(filter(None, ranks.gather(wrong)), "")
    if found:
        raise BadSpecError(
            f"{found}. Return the whole dataset on every rank; the engine distributes it",
        )


def require_same_batch(ranks: Ranks, layout: RankLayout, batch: RankBatch) -> None:
    """Raise unless the ranks of each copy of the model have equal samples.

    All ranks must call this.

    Parameters
    ----------
    ranks : Ranks
    layout : RankLayout
    batch : RankBatch
        This rank's micro-batches of one step.

    Raises
    ------
    EngineError
        ``bad_spec``, on all ranks.
    """
    seen = [(each.samples, look(each.batch)) for each in batch.micro_batches]
    found = ranks.gather(hashlib.sha256(repr(seen).encode()).hexdigest())
    for members in layout.copy_groups():
        for rank in members[1:]:
            if found[rank] != found[members[0]]:
                raise BadSpecError(
                    f"rank {rank} has other samples than rank {members[0]} in step "
                    f"{batch.step + 1}, and both compute one copy of the model: item i of the "
                    "dataset, and collate(), must not depend on the process",
                )


def _has_items(dataset: Any) -> bool:
    """Return whether a dataset has items by number. torch's base class only raises."""
    method = getattr(type(dataset), "__getitem__", None)
    return method is not None and method is not Dataset.__getitem__


def _kind(value: object) -> str:
    return "None (missing return statement?)" if value is None else f"a {type(value).__name__}"
