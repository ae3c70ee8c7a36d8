"""Restoring of a checkpoint's weights and optimizer state in a resumed run.

Not here: selection of the checkpoint, check that it belongs to the run
(``engine.checkpoints.state``).
"""

from __future__ import annotations

from contextlib import suppress

import torch
from torch import nn

from lockstep.engine.checkpoints.contents import State
from lockstep.engine.data import fingerprint
from lockstep.engine.parallel.staged import StageParallel
from lockstep.engine.parallel.tensor import TensorParallel
from lockstep.engine.runtime.errors import BadSpecError
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.runtime.telemetry import Telemetry
from lockstep.engine.strategies.base import Strategy


def make_buffers(model: nn.Module, state: State) -> None:
    """Register the buffers that ``loss()`` had made in the run, and ``model()`` does not build.

    A module that is not there is a difference, which the comparison of the models names.
    """
    for name in (state.get("held") or {}).get("buffers", ()):
        owner, _, attribute = name.rpartition(".")
        with suppress(AttributeError, KeyError):
            module, value = model.get_submodule(owner), state["model"][name]
            if module._buffers.get(attribute) is None:
                module.register_buffer(
                    attribute, value.to(next(model.parameters()).device, copy=True)
                )


def restore_model(model: nn.Module, state: State) -> None:
    """Load the weights and buffers of ``state`` into ``model``.

    ``engine.checkpoints.state`` has compared their shapes.
    """
    model.load_state_dict(state["model"])


def restore_optimizer(
    strategy: Strategy,
    optimizer: torch.optim.Optimizer,
    state: State,
    ranks: Ranks,
    telemetry: Telemetry,
    *,
    tensor: TensorParallel | None = None,
    stage: StageParallel | None = None,
) -> None:
    """Load the optimizer state and the strategy's own state. All ranks must call this."""
    own, theirs = fingerprint.parameter_order(strategy.model, optimizer), state.get("parameters")
    mine = own if stage is None else [names for _, names in stage.whole.groups]
    if theirs is not None and theirs != mine:
        raise BadSpecError(
            "the checkpoint's optimizer has other parameters or another order of them: "
            f"{_first_difference(theirs, mine)}; param_groups() must return the same groups as at "
            "the start of the run",
        )
    saved = state["optimizer"]
    if stage is not None:
        saved = stage.part_of_optimizer(saved, own)
    if tensor is not None:
        saved = tensor.slices_of_optimizer(saved, [name for names in own for name in names])
    try:
        strategy.load_optimizer(optimizer, saved)
    except (ValueError, KeyError) as error:
        raise BadSpecError(f"the checkpoint does not fit the optimizer: {error}") from error
    unused = _restore_extra(strategy, state, ranks)
    if unused:
        telemetry.warn(f"the strategy starts without its state from the checkpoint: {unused}")


def _restore_extra(strategy: Strategy, state: State, ranks: Ranks) -> str:
    """Load the strategy's own state of this rank.

    Returns the reason if the state cannot be used; empty if it is loaded or there is none.
    """
    extra: list[State] = state.get("extra", [])
    there, here = state["layout"]["strategy"], strategy.options.label
    if there != here or not any(extra):
        return ""
    if len(extra) != ranks.world_size:
        return f"{len(extra)} ranks saved it, and the run now has {ranks.world_size}"
    if strategy.rank_state is None:
        return ""
    try:
        strategy.rank_state.load(extra[ranks.rank])
    except ValueError as error:
        return str(error)
    return ""


def _first_difference(theirs: list[list[str]], mine: list[list[str]]) -> str:
    for group in range(max(len(theirs), len(mine))):
        before = theirs[group] if group < len(theirs) else []
        now = mine[group] if group < len(mine) else []
        for index in range(max(len(before), len(now))):
            was = before[index] if index < len(before) else "none"
            is_now = now[index] if index < len(now) else "none"
            if was != is_now:
                return f"group {group} has {was} at index {index}, now {is_now}"
    return f"{len(theirs)} groups, now {len(mine)}"
