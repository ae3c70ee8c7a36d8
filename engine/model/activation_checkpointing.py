"""Activation checkpointing: recompute a block's activations in backward.

Only the input of a block is kept. Everything inside is computed a second time, with the same random
numbers and under the same autocast, when backward reaches it (Chen et al. 2016, arXiv 1604.06174).
The activations of one block and the inputs of the others are in memory at a time; the price is one
more forward.

A block is an element of an ``nn.ModuleList`` or ``nn.Sequential`` that has layers of its own, the
repeated unit of deep models. In a model without any, its direct children are the blocks. A single
layer is no block, because its input is all it keeps. A child that is the whole model is no block
either: computing everything again at once would save nothing.

A block keeps its object, its name and its parameters; only its class becomes a subclass with
another ``forward``. State dicts, hooks, ``isinstance`` and the copies of ``nn.DataParallel`` work
as before.

Not here: the saved memory (``engine.memory``).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from lockstep.engine.runtime.errors import BadSpecError

_BLOCKS_MIN = 2


def checkpoint_blocks(model: nn.Module) -> list[str]:
    """Make the model's blocks compute their activations again in backward; returns their names."""
    blocks = list(_blocks(model)) or [
        (name, child) for name, child in model.named_children() if _has_layers(child)
    ]
    if len(blocks) < _BLOCKS_MIN:
        raise BadSpecError(
            f"activation_checkpointing: the model, a {type(model).__name__}, has no blocks to "
            "recompute: put the repeated layers as modules into an nn.ModuleList or "
            "nn.Sequential, or set activation_checkpointing: false",
        )
    for block in {
        id(block): block for _, block in blocks
    }.values():  # A shared block has two names.
        block.__class__ = _recomputing(type(block))  # type: ignore[arg-type] # a class can be hashed; mypy asks an object
    return [name for name, _ in blocks]


def _blocks(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The outermost repeated blocks: a block inside of a block would be computed three times."""
    repeats = isinstance(module, nn.ModuleList | nn.Sequential)
    for name, child in module.named_children():
        inside = _blocks(child, f"{prefix}{name}.")
        if not repeats:
            yield from inside
        elif isinstance(child, nn.ModuleList | nn.Sequential) and (found := list(inside)):
            yield from found
        elif _has_layers(child):
            yield f"{prefix}{name}", child


def _has_layers(module: nn.Module) -> bool:
    """Return whether this module is called and has layers of its own with parameters."""
    lists = isinstance(module, nn.ModuleList | nn.ModuleDict)
    return not lists and any(True for child in module.children() for _ in child.parameters())


@functools.cache
def _recomputing(block: type[nn.Module]) -> type[nn.Module]:
    """``block`` with a forward whose activations are not kept.

    One class for all blocks of a kind.
    """

    class Recomputing(block):  # type: ignore[misc, valid-type] # a class that is known when it runs
        def forward(self, *inputs: Any, **named: Any) -> Any:
            if not torch.is_grad_enabled():
                return super().forward(*inputs, **named)
            return checkpoint(super().forward, *inputs, use_reentrant=False, **named)

    # Under its own name, which messages and printed models show.
    Recomputing.__name__, Recomputing.__qualname__ = block.__name__, block.__qualname__
    Recomputing.__module__ = block.__module__
    return Recomputing
