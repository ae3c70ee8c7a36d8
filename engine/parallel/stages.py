"""Stages of a model: the blocks that each rank of a line holds, while every rank runs the forward.

The model's own forward runs on every stage. Blocks before those of the stage pass their input on,
and the input of its first block is replaced by the activation of the stage before. The first block
behind ends the forward: its input is the activation that the next stage gets. Parameters belong to
the stages that use them, which one forward of the whole model shows: before the first block the
first stage, behind the last block the last one. In their places other stages have zeros that take
no memory, so embeddings and masks keep their shapes.

Modules keep their classes and names, and parameters theirs, so ties, optimizers and fingerprints
are those of the whole model.

Not here: messages (``engine.parallel.links``), their order (``engine.parallel.pipeline``), the
check of the result (``engine.preflight.unstaged``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from lockstep.domain.training.plan import part
from lockstep.engine.runtime.errors import BadSpecError, listed

_OWN_STAGES = "or define pipeline_stages(self, model) in the task"


class StageEnd(BaseException):
    """End of the forward of a stage that is not the last.

    Parameters
    ----------
    activation : Tensor
        Input of the next stage.
    """

    def __init__(self, activation: Tensor):
        super().__init__("the forward of a stage ends here")
        self.activation = activation


def blocks_of(model: nn.Module, chain: Sequence[nn.Module]) -> list[str]:
    """Return the names of the blocks that stages share.

    Parameters
    ----------
    model : nn.Module
    chain : sequence of nn.Module
        The task's own, in the order of the forward; empty to take the largest ``ModuleList``.

    Raises
    ------
    EngineError
        ``bad_spec``.
    """
    names = {id(module): name for name, module in model.named_modules()}
    if chain:
        strange = [type(each).__name__ for each in chain if id(each) not in names]
        if strange:
            raise BadSpecError(
                f"pipeline_stages() returns modules that the model does not have: {listed(strange)}"
            )
        return [names[id(each)] for each in chain]
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    if not lists:
        raise BadSpecError(
            f"parallel.pipeline: {type(model).__name__} has no nn.ModuleList, whose blocks stages "
            f"share: put its layers into one, {_OWN_STAGES}",
        )
    largest = max(lists, key=lambda each: sum(p.numel() for p in each.parameters()))
    found = [names[id(block)] for block in largest]
    if len(set(found)) < len(found):
        raise BadSpecError("parallel.pipeline: the model has one block several times in its list")
    return found


@dataclass
class Observed:
    """Findings of one forward of the whole model."""

    calls: list[int] = field(default_factory=list)
    """Indices of the blocks, in the order of their calls."""
    uses: dict[str, set[int]] = field(default_factory=dict)
    """For each parameter the blocks during or behind which it was used; -1 before the first one,
    their number behind the last."""
    wrong: str = ""
    """Why a block cannot begin a stage."""


@contextmanager
def observed(model: nn.Module, blocks: Sequence[str], found: Observed) -> Iterator[None]:
    """Observe a forward of a whole model inside the context."""
    place = [-1]
    names = {id(parameter): name for name, parameter in model.named_parameters()}

    def enter(index: int, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        place[0] = index
        found.calls.append(index)
        first, *others = (*arguments, None)
        if not isinstance(first, Tensor) or not first.is_floating_point():
            found.wrong = found.wrong or (
                f"{blocks[index]} does not take one floating-point tensor as its first argument"
            )
        more = [each for each in (*others, *named.values()) if isinstance(each, Tensor)]
        if any(each.requires_grad for each in more):
            found.wrong = found.wrong or (
                f"{blocks[index]} takes a second tensor with a gradient, and stages pass on one"
            )

    def leave(index: int, output: Any) -> None:
        if not isinstance(output, Tensor):
            found.wrong = found.wrong or (
                f"{blocks[index]} returns a {type(output).__name__}; expected one tensor"
            )
        if index == len(blocks) - 1:
            place[0] = len(blocks)

    hooks = []
    for index, name in enumerate(blocks):
        block = model.get_submodule(name)
        hooks += [
            block.register_forward_pre_hook(
                lambda _, arguments, named, index=index: enter(index, arguments, named),
                with_kwargs=True,
            ),
            block.register_forward_hook(lambda _, __, output, index=index: leave(index, output)),
        ]
    try:
        with _Uses(names, place, found.uses):
            yield
    finally:
        for hook in hooks:
            hook.remove()


class _Uses(TorchFunctionMode):
    """Records the parameters that functions of torch get."""

    def __init__(self, names: Mapping[int, str], place: list[int], uses: dict[str, set[int]]):
        super().__init__()
        self._names, self._place, self._uses = names, place, uses

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if any(True for _ in _tensors(result)):  # Not the format or the device of a parameter.
            for tensor in _tensors((args, kwargs)):
                if id(tensor) in self._names:
                    self._uses.setdefault(self._names[id(tensor)], set()).add(self._place[0])
        return result


def _tensors(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in containers."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _tensors(each)
    elif isinstance(value, dict):
        yield from _tensors(tuple(value.values()))


@dataclass(frozen=True)
class StagePlan:
    """Division of one model."""

    blocks: tuple[str, ...]
    stages: int
    holders: Mapping[str, tuple[int, ...]]
    """Stages that hold each parameter, by its first name."""

    @classmethod
    def of(cls, model: nn.Module, blocks: Sequence[str], stages: int, seen: Observed) -> StagePlan:
        """Return the plan that one observed forward allows.

        Raises
        ------
        EngineError
            ``bad_spec``.
        """
        if len(blocks) < stages:
            raise BadSpecError(
                f"parallel.pipeline: {stages} stages need a block each, and the model has "
                f"{len(blocks)} ({listed(list(blocks)) or 'none'}): set at most "
                f"{max(1, len(blocks))}, {_OWN_STAGES}",
            )
        require_chain(blocks, seen)
        bounds = [part(len(blocks), stages, stage) for stage in range(stages)]
        stage_of = [stage for stage, (first, stop) in enumerate(bounds) for _ in range(first, stop)]
        at = {-1: 0, len(blocks): stages - 1, **dict(enumerate(stage_of))}
        inside = {
            name: stage
            for stage, block in zip(stage_of, blocks, strict=True)
            for name, _ in model.get_submodule(block).named_parameters(prefix=block)
        }
        holders = {}
        for name, _ in model.named_parameters():
            uses = seen.uses.get(name)
            stages_of = {at[use] for use in uses} if uses else {inside.get(name, 0)}
            holders[name] = tuple(sorted(stages_of))
        return cls(tuple(blocks), stages, holders)

    def own_blocks(self, stage: int) -> range:
        """Return the indices of a stage's blocks."""
        return range(*part(len(self.blocks), self.stages, stage))

    def held_by(self, stage: int) -> set[str]:
        """Return the first names of a stage's parameters."""
        return {name for name, holders in self.holders.items() if stage in holders}

    @property
    def tied(self) -> list[tuple[int, ...]]:
        """Sets of stages that hold a parameter together, in a fixed order."""
        return sorted({holders for holders in self.holders.values() if len(holders) > 1})


def require_chain(blocks: Sequence[str], seen: Observed, *, where: str = "loss()") -> None:
    """Refuse a forward that does not call the blocks one after the other, each once.

    Raises
    ------
    EngineError
        ``bad_spec``.
    """
    if seen.calls != list(range(len(blocks))):
        count = max(seen.calls.count(index) for index in range(len(blocks)))
        raise BadSpecError(
            f"parallel.pipeline: {where} must call the model once, and the model its blocks in "
            f"their order, each once; {where} calls "
            + (
                f"a block {count} times"
                if count > 1
                else f"{listed([blocks[index] for index in seen.calls]) or 'none of them'}"
            )
            + f": change it, {_OWN_STAGES}",
        )
    if seen.wrong:
        raise BadSpecError(f"parallel.pipeline: {seen.wrong}: set pipeline to null, {_OWN_STAGES}")


class Stage:
    """This rank's part of a model whose blocks are shared.

    Parameters
    ----------
    index, count : int
        Of the stage, and of all stages.
    """

    def __init__(self, index: int, count: int):
        self.index, self.count = index, count
        self.receive: Callable[[], Tensor] = _nothing_to_receive
        """Returns the activation of the stage before."""
        self.replayed: Tensor | None = None
        """The input of the micro-batch whose backward runs, for blocks that are recomputed."""
        self.output: Tensor | None = None
        """Activation for the next stage, of the last forward."""
        self.stand_ins: dict[str, Tensor] = {}
        """Zeros in the places of other stages' parameters, by all names."""
        self._entered = False
        self._receiver: tuple[Any, int] | None = None
        """The first block, if another stage is before, and the hook that replaces its input."""

    @property
    def first(self) -> bool:
        """True if no stage is before this one."""
        return self.index == 0

    @property
    def last(self) -> bool:
        """True if no stage follows."""
        return self.index == self.count - 1

    def begin(self) -> None:
        """Begin the forward of a micro-batch."""
        self._entered, self.output = False, None

    def receive_at(self, block: nn.Module) -> None:
        """Replace the input of a block by the received activation."""
        hook = block.register_forward_pre_hook(
            lambda _, arguments: self.enter(arguments), prepend=True
        )
        self._receiver = block, hook.id

    def receive_before_hooks(self) -> None:
        """Let hooks that were registered before the others, since then, see the activation."""
        if self._receiver is not None:
            block, hook = self._receiver
            block._forward_pre_hooks.move_to_end(hook, last=False)

    def require_ended(self) -> None:
        """Refuse a forward that did not run the blocks of this stage.

        Raises
        ------
        EngineError
            ``bad_spec``.
        """
        if not (self.last or self.output is not None) or not (self.first or self._entered):
            raise BadSpecError(
                "parallel.pipeline: loss() did not call the model in a micro-batch; it must call "
                "it once in each, whatever the samples are",
            )

    def enter(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Replace the input of the stage's first block."""
        if self.replayed is not None:
            return (self.replayed, *arguments[1:])
        if self._entered:
            raise BadSpecError(
                "parallel.pipeline: loss() calls the model twice in one micro-batch; stages "
                "support one call",
            )
        self._entered = True
        return (self.receive(), *arguments[1:])


def cut_stage(model: nn.Module, plan: StagePlan, index: int, device: torch.device) -> Stage:
    """Reduce a model to one stage, in place.

    Parameters
    ----------
    model : nn.Module
        Whole, or with layers that are cut where the stage keeps them, without gradients.
    plan : StagePlan
    index : int
        Of the stage.
    device : torch.device
        Of the zeros in the places of other stages' parameters.
    """
    stage, held = Stage(index, plan.stages), plan.held_by(index)
    first_names = {id(parameter): name for name, parameter in model.named_parameters()}
    for prefix, module in list(model.named_modules()):
        for name, parameter in list(module._parameters.items()):
            if parameter is None or first_names[id(parameter)] in held:
                continue
            del module._parameters[name]
            zeros = torch.zeros((), dtype=parameter.dtype, device=device).expand(parameter.shape)
            module.__dict__[name] = stage.stand_ins[f"{prefix}.{name}".lstrip(".")] = zeros
    own = plan.own_blocks(index)
    for at, name in enumerate(plan.blocks):
        block: Any = model.get_submodule(name)
        if at < own.start:
            block.forward = _PassOn()
        elif at >= own.stop:
            block.forward = _End(stage)
    if not stage.first:
        stage.receive_at(model.get_submodule(plan.blocks[own.start]))
    return stage


class _PassOn:
    """Forward of a block before the stage's own."""

    def __call__(self, x: Tensor, *_: Any, **__: Any) -> Tensor:
        return x


class _End:
    """Forward of a block behind the stage's own."""

    def __init__(self, stage: Stage):
        self._stage = stage

    def __call__(self, x: Tensor, *_: Any, **__: Any) -> Tensor:
        self._stage.output = x
        raise StageEnd(x)


def _nothing_to_receive() -> Tensor:
    raise RuntimeError("a stage received an activation outside of a pipeline")
