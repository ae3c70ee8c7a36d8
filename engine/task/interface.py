"""Base class of a user's own task: ``Task``.

The engine owns the loop; a task supplies the model, the samples and the loss. The contract of a
loss is short: it returns the *sum* over the units that ``weight`` counts, never a mean. The engine
divides once, by the weight of the whole batch over all ranks and accumulation steps. The gradient
is therefore independent of the split of the batch.

Not here: the built-in tasks (``engine.task.builtin``), the search for a task by name
(``engine.task.loading``).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, default_collate

from lockstep.engine.runtime.errors import BadSpecError

Batch = Any
"""Whatever ``collate`` returns: a tensor, or tuples, lists and mappings of tensors. The engine
moves its tensors to the device and otherwise does not look inside, except that ``weight``'s default
counts samples."""


class Task:
    """A training task.

    ``model``, ``dataset`` and ``loss`` must be written; everything else has a default.

    The constructor receives ``task_args`` of the spec as keyword arguments. It runs in every rank,
    before any other method, so it should be quick: download and index in ``prepare``.
    """

    batch_dependent: ClassVar[bool] = False
    """True if the loss of a sample depends on the others in its micro-batch (batch normalisation,
    in-batch negatives). Such a loss depends on the split of the batch, so the promise about the
    batch is given up."""

    conditional: ClassVar[bool] = False
    """Set to True if a micro-batch may use a part of the model only (experts, LayerDrop, one head
    per task), and the first samples may not show it. A parameter that no sample of a batch uses is
    left alone by that step, on any number of ranks. Under strategy ``fsdp`` such a model is
    gathered as a whole, not block by block."""

    not_state: ClassVar[tuple[str, ...]] = ()
    """Attributes of the task that are no state of the training: clocks, caches, counters for a log.
    They are not saved, not restored, and not compared."""

    unit: ClassVar[str] = "samples"
    """Unit that ``weight`` counts. A task with ``tokens`` gets ``throughput/tokens_per_second``."""

    def prepare(self) -> None:
        """Download, tokenize, index.

        Called once per node, on its first rank, before the others continue.
        """

    def model(self) -> nn.Module:
        """The model, on the CPU.

        The engine seeds torch before, so every rank builds the same weights.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must define model(self), which returns the nn.Module to train"
        )

    def dataset(self, split: str) -> Dataset[Any]:
        """Return the map-style dataset of ``split``: ``"train"`` or ``"eval"``.

        ``"eval"`` is requested only if the spec has evaluation. The dataset has a length, is
        complete on every rank (the engine shards it), and item i is a function of (i, epoch) alone.
        For augmentation, call the functions of ``random``, ``numpy.random`` or torch's default
        generator: ``numpy.random.rand()``, ``torch.rand(3)``. Before each item the loader seeds all
        three from (seed, epoch, i), so the draws depend neither on the number of ranks nor on the
        worker that fetches. A generator of the dataset's own (``numpy.random.default_rng()``,
        ``torch.Generator()``, ``random.Random()``) is not seeded: its draws depend on the items
        fetched before, and so on the ranks. If a library needs one, create it inside
        ``__getitem__`` from a seed that was drawn there.

        The same three generators are seeded equally before each call of this method, so a
        ``random_split`` in it gives disjoint splits.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must define dataset(self, split), which returns a map-style "
            f"dataset with a length"
        )

    def collate(self, samples: list[Any]) -> Batch:
        """One micro-batch out of its samples.

        Runs where the samples were fetched, also in worker processes.
        """
        try:
            return default_collate(samples)
        except (RuntimeError, TypeError, KeyError) as error:
            raise BadSpecError(
                f"{len(samples)} samples cannot be stacked to a micro-batch ({error}): define "
                "collate(self, samples) in the task, which pads them to one shape, or return "
                "samples of equal shapes from dataset()",
            ) from error

    def weight(self, batch: Batch) -> float | dict[str, float]:
        """Return the number of units that ``loss`` sums over in this micro-batch.

        Called on the host.

        A dict gives a divisor for each term of a loss that is a dict too. By default the number of
        samples, which is the first dimension of the first tensor in the batch.
        """
        return float(_first_tensor(batch).shape[0])

    def loss(self, model: nn.Module, batch: Batch) -> Tensor | dict[str, Tensor]:
        """The SUM of the loss over the units that ``weight`` counts.

        A scalar, or named scalars that are added up.

        Any number of forwards, and any methods of the model, may be called.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must define loss(self, model, batch), which returns the "
            "sum of the loss over the batch"
        )

    def penalty(self, model: nn.Module) -> Tensor:  # noqa: ARG002 - for tasks that override it
        """A term of the objective that depends on the parameters alone.

        Added once per step, not per micro-batch.
        """
        return torch.zeros(())

    def tensor_plan(self, model: nn.Module) -> dict[str, str]:  # noqa: ARG002 - for overrides
        """Cut of the model's layers under ``train.parallel.tensor``: a module's name → a word.

        In a name ``*`` stands for one part between dots. The words are those of ``transformers``:
        ``colwise``, ``packed_colwise:n``, ``colwise_gather_output``, ``rowwise``,
        ``embedding_rowwise`` and ``replicated_with_grad_allreduce``::

            {"blocks.*.qkv": "packed_colwise:3", "blocks.*.out": "rowwise"}

        By default there is none, and a run with ``tensor`` is refused. A forward must take sizes
        that are cut, such as the number of heads, from its activations.
        """
        return {}

    def pipeline_stages(self, model: nn.Module) -> list[nn.Module]:  # noqa: ARG002 - for overrides
        """Modules that stages share under ``train.parallel.pipeline``, in the order of the forward.

        Each takes one tensor, the result of the one before, and returns one. Stages hold equally
        many, the first ones one more; with as many modules as stages, each stage holds one. By
        default, the elements of the model's largest ``nn.ModuleList``.
        """
        return []

    def param_groups(self, model: nn.Module) -> list[dict[str, Any]]:
        """Parameter groups for the optimizer.

        By default, no weight decay for parameters with fewer than 2 dimensions.

        A group with its own ``lr`` keeps its proportion to the spec's along the schedule. They are
        read once: a task that changes a group later changes nothing.
        """
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        groups: list[dict[str, Any]] = [
            {"params": [parameter for parameter in parameters if parameter.ndim >= 2]},
            {
                "params": [parameter for parameter in parameters if parameter.ndim < 2],
                "weight_decay": 0.0,
            },
        ]
        return [group for group in groups if group["params"]]

    def evaluate(self, model: nn.Module, batch: Batch) -> dict[str, tuple[Tensor, float]]:
        """Sums and their weights over one micro-batch of the eval split: name → (sum, weight).

        By default the loss.
        """
        sums, weight = self.loss(model, batch), self.weight(batch)
        if isinstance(sums, Mapping):
            return {
                name: (term, weight[name] if isinstance(weight, Mapping) else weight)
                for name, term in sums.items()
            }
        if isinstance(weight, Mapping):
            raise TypeError(
                f"weight() returns the names {sorted(weight)}, so loss() must return a dict with "
                f"these names"
            )
        return {"loss": (sums, weight)}

    def finalize(self, totals: dict[str, float]) -> dict[str, float]:
        """Return the values of ``eval/<name>`` from the weighted means over the eval split.

        Override it for perplexity, F1 and other functions of the totals. By default the means
        themselves, and for a loss of several terms their sum as ``loss``.
        """
        return (
            {**totals, "loss": sum(totals.values())} if totals and "loss" not in totals else totals
        )

    def export_files(self, model: nn.Module, folder: Path) -> None:
        """Write the files that other programs need beside ``model.safetensors`` to load the model.

        Called on rank 0 at the end of the run. Each file becomes a part of the last checkpoint;
        folders do not. By default, the configuration of a ``transformers`` model, with the model's
        class and the type of its weights. A task with a tokenizer adds it, and ``from_pretrained``
        then loads the checkpoint's folder::

            def export_files(self, model, folder):
                super().export_files(model, folder)
                self.tokenizer.save_pretrained(folder)

        Parameters
        ----------
        model : nn.Module
            Result of ``model()``. Its weights may be sharded over the ranks.
        folder : Path
            An empty folder.
        """
        config = getattr(model, "config", None)
        for part in (_as_trained(config, model), getattr(model, "generation_config", None)):
            save = getattr(part, "save_pretrained", None)
            if callable(save):
                save(folder)


def _as_trained(config: Any, model: nn.Module) -> Any:
    """Return a copy of a configuration with the model's class and the type of its weights.

    ``from_pretrained`` converts weights to the type in the configuration. The type of the files
    that training started from may be narrower, and would round the trained weights. Of several
    types the one that holds all values is taken.
    """
    if not hasattr(config, "save_pretrained"):
        return config
    stated = copy.deepcopy(config)
    stated.architectures = [
        type(model).__name__.removeprefix("FSDP")
    ]  # fully_shard renames the class.
    types = {weight.dtype for weight in model.parameters() if weight.is_floating_point()}
    if types:
        stated.dtype = str(reduce(torch.promote_types, types)).removeprefix("torch.")
    return stated


def _first_tensor(batch: Batch) -> Tensor:
    parts = [batch]
    while parts:
        part = parts.pop()
        if isinstance(part, Tensor):
            if part.ndim:
                return part
            raise TypeError(
                "weight() counts samples by the first dimension, and the batch's first tensor has "
                "none: write weight"
            )
        inner = list(part.values()) if isinstance(part, Mapping) else part
        if isinstance(inner, list | tuple):
            parts += reversed(inner)
    raise TypeError(
        "weight() counts samples by the first tensor of the batch, and there is none: write "
        "weight(self, batch)"
    )
