"""Cut of a model by a tensor plan: each rank keeps its slices, and modules exchange what is whole.

Parameters keep their identity and their names, so ties, optimizers and fingerprints are those of
the whole model. Modules keep their classes and attributes: hooks put the slice's own values in
their place during a forward.

Not here: the words of a plan (``engine.parallel.plan``), the messages
(``engine.parallel.collectives``), the check of the result (``engine.preflight.uncut``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lockstep.engine.parallel.collectives import TensorGroup
from lockstep.engine.parallel.plan import (
    EMBEDDING,
    GATHERED,
    PACKED,
    ROWWISE,
    SUMMED,
    PlanLine,
    lines_of,
)
from lockstep.engine.parallel.slices import Cut
from lockstep.engine.runtime.errors import BadSpecError


@dataclass(frozen=True)
class CutModel:
    """Result of a cut."""

    cuts: Mapping[str, Cut]
    """Cut of each parameter that is cut, by all its names."""
    summed: frozenset[str]
    """Parameters whose gradients are parts of a sum over the tensor group."""
    lines: Mapping[str, PlanLine]
    """Line of the plan for each module."""

    def line_of(self, parameter: str) -> str:
        """Return the line of the plan that a parameter's module has."""
        line = self.lines.get(parameter.rpartition(".")[0])
        return "no line" if line is None else f"the line {line}"


def cut_model(
    model: nn.Module,
    plan: Mapping[str, str],
    group: TensorGroup,
    *,
    held: Collection[str] | None = None,
) -> CutModel:
    """Cut a model in place. All ranks of the group must call this.

    Parameters
    ----------
    model : nn.Module
        Whole, without gradients, equal on all ranks of the group.
    plan : mapping of str to str
        Lines of a tensor plan (``engine.parallel.plan``).
    group : TensorGroup
    held : collection of str, optional
        First names of the parameters that this rank's stage keeps; all by default. The others stay
        whole, and their modules send nothing: zeros of that shape replace them.

    Raises
    ------
    EngineError
        ``bad_spec``, with the module and the sizes.
    """
    lines = _with_tied_embeddings(model, lines_of(model, plan))
    cuts: dict[nn.Parameter, Cut] = {}
    summed: set[nn.Parameter] = set()
    for name, line in lines.items():
        module = model.get_submodule(name)
        if line.word == SUMMED:
            summed |= set(module.parameters())
            continue
        for parameter, cut in _cuts_of(name, module, line, group.size).items():
            if cuts.setdefault(parameter, cut) != cut:
                raise BadSpecError(
                    f"tensor plan: the weight of {name} ({line}) is tied to one that is cut "
                    "otherwise: give both layers words that cut the same dimension",
                )
    _require_all_users(model, lines, set(cuts))
    kept = {each for name, each in model.named_parameters() if held is None or name in held}
    for name, line in lines.items():
        module = model.get_submodule(name)
        if line.word != SUMMED and module.weight in kept:
            _exchange(module, line, group)
            _split_slices(model.get_submodule(name.rpartition(".")[0]), module, line, group.size)
    for parameter, cut in cuts.items():
        if parameter in kept:
            parameter.grad = None
            parameter.data = cut.take(parameter.data, group.index)
    named = list(model.named_parameters(remove_duplicate=False))
    return CutModel(
        {name: cuts[parameter] for name, parameter in named if parameter in cuts},
        frozenset(name for name, parameter in named if parameter in summed - cuts.keys()),
        lines,
    )


class _Linear(NamedTuple):
    """Dimensions of a linear layer's weight."""

    outputs: int
    inputs: int


def _linear(name: str, module: nn.Module, line: PlanLine) -> _Linear:
    if _is_conv1d(module):
        return _Linear(1, 0)
    if type(module).forward is nn.Linear.forward or _reads_a_weight(module):
        return _Linear(0, 1)
    raise BadSpecError(
        f"tensor plan: {name} ({line}) is a {type(module).__name__}; expected an nn.Linear or a "
        "Conv1D of transformers",
    )


def _is_conv1d(module: nn.Module) -> bool:
    """Return whether a module is the transposed linear layer of GPT-2 in ``transformers``."""
    return type(module).__name__ == "Conv1D" and hasattr(module, "nf")


def _reads_a_weight(module: nn.Module) -> bool:
    """Return whether a module is a linear layer with the weight of an embedding."""
    weight = getattr(module, "weight", None)
    return isinstance(weight, Tensor) and not list(module.parameters(recurse=False))


def _cuts_of(name: str, module: nn.Module, line: PlanLine, size: int) -> dict[nn.Parameter, Cut]:
    """Return the cut of each parameter of a module."""
    if line.word == EMBEDDING:
        if not isinstance(module, nn.Embedding):
            raise BadSpecError(
                f"tensor plan: {name} ({line}) is a {type(module).__name__}; expected an "
                "nn.Embedding",
            )
        if module.max_norm is not None or module.sparse or module.scale_grad_by_freq:
            raise BadSpecError(
                f"tensor plan: {name} has max_norm, sparse or scale_grad_by_freq, which need the "
                "whole embedding: remove the line",
            )
        table: Any = module.weight
        return {table: _divided(name, line, Cut(0, size), table, "rows")}
    dims = _linear(name, module, line)
    weight: Any = module.weight
    bias: Any = getattr(module, "bias", None)
    if line.word == ROWWISE:
        return {weight: _divided(name, line, Cut(dims.inputs, size), weight, "inputs")}
    found = {weight: _divided(name, line, Cut(dims.outputs, size, line.packs), weight, "outputs")}
    if bias is not None:
        found[bias] = Cut(0, size, line.packs)
    return found


def _divided(name: str, line: PlanLine, cut: Cut, weight: Tensor, what: str) -> Cut:
    """Return the cut, if its slices are equal."""
    count = weight.shape[cut.dim]
    if count % (cut.size * cut.packs):
        packs = f" in {cut.packs} blocks" if cut.packs > 1 else ""
        raise BadSpecError(
            f"tensor plan: {name} ({line}) has {count} {what}{packs}, which tensor {cut.size} "
            "cannot divide equally: use another number, or remove the line",
        )
    return cut


def _with_tied_embeddings(model: nn.Module, lines: dict[str, PlanLine]) -> dict[str, PlanLine]:
    """Add lines for embeddings whose weight is that of a layer with cut outputs."""
    outputs = {
        id(model.get_submodule(name).weight): line
        for name, line in lines.items()
        if line.word == GATHERED
    }
    found = dict(lines)
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding) and id(module.weight) in outputs and name not in lines:
            found[name] = PlanLine(name, EMBEDDING)
    return found


def _require_all_users(
    model: nn.Module, lines: Mapping[str, PlanLine], cut: set[nn.Parameter]
) -> None:
    """Refuse a cut weight that a module without a line uses, too."""
    for name, module in model.named_modules(remove_duplicate=False):
        if name not in lines and any(each in cut for each in module.parameters(recurse=False)):
            raise BadSpecError(
                f"tensor plan: {name or 'the model'} shares a weight that the plan cuts in another "
                "module: add a line for it, too",
            )
    for name, line in lines.items():
        module = model.get_submodule(name)
        if line.word == GATHERED and _reads_a_weight(module) and module.weight not in cut:
            raise BadSpecError(f"tensor plan: the weight that {name} ({line}) reads is not cut")


# --- what a module exchanges


def _exchange(module: nn.Module, line: PlanLine, group: TensorGroup) -> None:
    """Register the hooks of a module whose weight is cut."""
    if line.word == EMBEDDING:
        _around(module, *_embedding(module, group))
    elif line.word == ROWWISE:
        _around(module, *_rowwise(module, group))
    else:
        _around(module, *_colwise(module, group, gathers=line.word == GATHERED))


Before = Callable[[Tensor], Tensor]
After = Callable[[Tensor | None], Any]


def _around(module: nn.Module, before: Before, after: After) -> None:
    """Let ``before`` replace a module's input, and ``after`` its output; None after an error."""

    def enter(_: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        first, *others = arguments
        return before(first), *others

    def leave(_: nn.Module, __: tuple[Any, ...], output: Tensor | None) -> Any:
        return after(output)

    module.register_forward_pre_hook(enter)
    module.register_forward_hook(leave, always_call=True)


def _colwise(module: Any, group: TensorGroup, *, gathers: bool) -> tuple[Before, After]:
    conv1d, whole = _is_conv1d(module), getattr(module, "nf", 0)

    def before(x: Tensor) -> Tensor:
        if conv1d:
            module.nf = whole // group.size  # Its forward takes the shape of its output from this.
        return group.copied(x)

    def after(output: Tensor | None) -> Tensor | None:
        if conv1d:
            module.nf = whole
        return group.gathered(output) if gathers and output is not None else output

    return before, after


def _split_slices(parent: nn.Module, module: Any, line: PlanLine, size: int) -> None:
    """Let GPT-2's attention split the slice of its query, key and value.

    Its forward takes the width of each from an attribute, which has the width of the slice only
    while it runs.
    """
    whole = getattr(parent, "split_size", None)
    if line.word != PACKED or not _is_conv1d(module) or whole != module.nf // line.packs:
        return

    def enter(attention: Any, _: tuple[Any, ...]) -> None:
        attention.split_size = whole // size

    def leave(attention: Any, _: tuple[Any, ...], __: Any) -> None:
        attention.split_size = whole

    parent.register_forward_pre_hook(enter)
    parent.register_forward_hook(leave, always_call=True)


def _rowwise(module: Any, group: TensorGroup) -> tuple[Before, After]:
    """Add the bias after the sum: each rank would add it once before."""
    biases: list[Tensor] = []

    def before(x: Tensor) -> Tensor:
        if getattr(module, "bias", None) is not None:
            biases.append(module.bias)
            module._parameters["bias"] = torch.zeros_like(module.bias, requires_grad=False)
        return x

    def after(output: Tensor | None) -> Tensor | None:
        bias = biases.pop() if biases else None
        if bias is not None:
            module._parameters["bias"] = bias
        if output is None:
            return None
        whole = group.reduced(output)
        return whole if bias is None else whole + bias.to(whole.dtype)  # As autocast does.

    return before, after


def _embedding(module: Any, group: TensorGroup) -> tuple[Before, After]:
    """Look up the rows of this rank, and zeros for those of the others."""
    padding = module.padding_idx
    outside: list[Tensor] = []

    def before(ids: Tensor) -> Tensor:
        rows = module.weight.shape[0]
        first = group.index * rows
        here: Tensor = ids - first
        outside.append((here < 0) | (here >= rows))
        if padding is not None:
            # A row without a gradient, on the rank that holds it.
            module.padding_idx = padding - first if 0 <= padding - first < rows else None
        return here.masked_fill(outside[-1], 0)

    def after(output: Tensor | None) -> Tensor | None:
        mask = outside.pop()
        module.padding_idx = padding
        if output is None:
            return None
        return group.reduced(output.masked_fill(mask.unsqueeze(-1), 0))

    return before, after
