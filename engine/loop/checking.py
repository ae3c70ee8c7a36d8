"""Checks of task and data before the first step.

Items are read before the weights are restored, because a checkpoint has fingerprints of them. The
loss is checked with the weights from which the run starts.

Not here: each check (``engine.preflight``), and requirements of the strategy and of the optimizer
(``engine.loop.assembly``).
"""

from __future__ import annotations

from functools import partial

from lockstep.engine.data.fetching import seeded_sample
from lockstep.engine.data.fingerprint import samples_of
from lockstep.engine.data.task_checks import require_same_data
from lockstep.engine.loop.parts import Found, Items, Model, RunInputs, Splits
from lockstep.engine.model.normalization import masked_batch
from lockstep.engine.preflight import additivity_check
from lockstep.engine.preflight.items import fetched_again
from lockstep.engine.preflight.repeatability import check_loss
from lockstep.engine.preflight.worker_items import require_same_in_workers
from lockstep.engine.runtime.errors import BadSpecError, listed


def read_items(inputs: RunInputs, model: Model, splits: Splits) -> Items:
    """Read some items, and refuse datasets that differ by rank or worker. All ranks must call this.

    Raises
    ------
    EngineError
        ``bad_spec``.
    """
    task, ranks, seed = inputs.task, inputs.ranks, inputs.train.seed
    dataset, size = splits.train, splits.size
    fetched, warnings = fetched_again(dataset, size, task.collate, seed=seed)
    if warnings:
        model.inventory.note("dataset", "it draws from a generator that the engine does not seed")
    sample = seeded_sample(dataset, 0, seed=seed)
    masked = masked_batch(task, model.module, sample)
    read = partial(samples_of, dataset, size, task.collate, seed=seed)
    fingerprints = read(known=fetched)
    sizes = {"train": size, "eval": splits.evaluation_size}
    require_same_data(ranks, sizes, fingerprints, read)
    if inputs.train.loader.workers:
        warnings += require_same_in_workers(
            ranks, dataset, fetched, task.collate, seed=seed, compares=not warnings
        )
    return Items(splits, sample, masked, fingerprints, read, warnings)


def check(inputs: RunInputs, model: Model, items: Items, *, resumes: bool) -> Found:
    """Check the loss, and that all ranks start with the same model. All ranks must call this.

    Parameters
    ----------
    resumes : bool
        True after a step. The run was then checked at its start; the state of its model since then
        must not end it.

    Raises
    ------
    EngineError
        ``bad_spec``.
    """
    train, ranks = inputs.train, inputs.ranks
    repeats = check_loss(
        model.inventory,
        items.sample,
        model.precision,
        seed=train.seed,
        device=next(model.module.parameters()).device,
    )
    if repeats.trained and not resumes:
        raise BadSpecError(
            f"loss() changes or makes parameters that are trained ({listed(repeats.trained)}), "
            "which only the engine's optimizer may update: set their first values in model(), "
            "without a batch (nn.Embedding with max_norm changes them, too)"
        )
    splits = items.splits
    additivity = additivity_check.check(
        inputs.task,
        model.module,
        splits.train,
        size=splits.size,
        train=train,
        ranks=ranks,
        resumes=resumes,
        differences=model.inventory.differences(ranks),
    )
    model.replicas.at_start()
    known = repeats.warnings
    return Found(
        warnings=[*items.warnings, *known, *additivity.warnings_beside(known)],
        additivity=additivity,
        moved=repeats.moved,
        needs_several=any(ranks.gather(repeats.needs_several)),
    )
