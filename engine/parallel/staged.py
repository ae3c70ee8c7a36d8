"""Pipeline of one run: what the loop needs beside strategies, which see one stage only.

Once per step, after the gradient was reduced over the copies, that of a weight that several stages
hold is summed over these. The norm is computed from one vector with an entry for each parameter of
the whole model, so its bits do not depend on the number of stages. Groups of parameters,
checkpoints and the order of moments are those of the whole model.

Not here: the cut (``engine.parallel.stages``), the step (``engine.parallel.pipeline``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from lockstep.domain.training.layout import RankPlace
from lockstep.engine.parallel.pipeline import Pipeline
from lockstep.engine.parallel.stages import StagePlan
from lockstep.engine.parallel.tensor import TensorParallel
from lockstep.engine.runtime.document import dtype_name, dtype_of
from lockstep.engine.runtime.errors import BadSpecError
from lockstep.engine.runtime.mesh import Mesh
from lockstep.engine.runtime.scattered import Scattered, identity

State = dict[str, Any]
Found = Tensor | Scattered
Groups = list[dict[str, Any]]


@dataclass(frozen=True)
class WholeModel:
    """Names of a model before it is cut into stages."""

    state: Mapping[str, str]
    """Name → first name of the same tensor, in the order of ``state_dict()``."""
    groups: list[tuple[dict[str, Any], list[str]]]
    """Options of each group of the optimizer, and the names of its parameters."""

    @classmethod
    def of(cls, model: nn.Module, groups: Groups) -> WholeModel:
        """Return the names of a model and of the groups of its parameters.

        Raises
        ------
        EngineError
            ``bad_spec``, for a module with state of another form.
        """
        first: dict[object, str] = {}
        state = {}
        for name, value in model.state_dict().items():
            if not isinstance(value, Tensor):
                raise BadSpecError(
                    f"parallel.pipeline: get_extra_state() of a module ({name}) is not supported",
                )
            state[name] = first.setdefault(identity(value), name)
        return replace(cls.of_groups(model, groups), state=state)

    @classmethod
    def of_groups(cls, model: nn.Module, groups: Groups) -> WholeModel:
        """Return the names of the groups alone, for a run that saves nothing."""
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        found = []
        for group in groups:
            options = {key: value for key, value in group.items() if key != "params"}
            found.append((options, [names.get(id(each), "") for each in group["params"]]))
        return cls({}, found)

    @property
    def order(self) -> list[str]:
        """Names of the parameters at their indices in the optimizer's state."""
        return [name for _, names in self.groups for name in names]


class StageCut(NamedTuple):
    """Result of a cut into stages."""

    plan: StagePlan
    pipeline: Pipeline
    whole: WholeModel


class StageParallel:
    """One stage of a model on this rank, between its strategy and the rest of the engine.

    Parameters
    ----------
    mesh : Mesh
    cut : StageCut
    model : nn.Module
        One stage, and wrapped by its strategy, which may replace the parameters.
    tensor : TensorParallel, optional
        If ranks hold slices of the stage.
    """

    def __init__(
        self,
        mesh: Mesh,
        cut: StageCut,
        model: nn.Module,
        tensor: TensorParallel | None = None,
    ):
        plan, self.pipeline, self.whole = cut
        self.pipeline.stage.receive_before_hooks()
        self._mesh, self._plan, self._tensor = mesh, plan, tensor
        self._names = {id(parameter): name for name, parameter in model.named_parameters()}
        self._at = {name: index for index, name in enumerate(self.whole.order)}
        by_name = dict(model.named_parameters())
        self._tied: list[tuple[list[nn.Parameter], dist.ProcessGroup]] = []
        for stages in plan.tied:
            group = mesh.groups_of_stages(stages)
            if group is not None:
                shared = [by_name[name] for name, each in plan.holders.items() if each == stages]
                self._tied.append((shared, group))
        exact = mesh.layout.tensor == 1 and not any(
            isinstance(parameter, DTensor) for parameter in by_name.values()
        )
        self._exact = exact
        """True if one rank holds all of a parameter."""

    @property
    def blocks(self) -> tuple[int, ...]:
        """Number of blocks of each stage."""
        return tuple(len(self._plan.own_blocks(stage)) for stage in range(self._plan.stages))

    def gather(self, value: Any) -> list[Any]:
        """Return every rank's value. All ranks must call this."""
        return self._mesh.world.gather(value)

    def of_last_stage(self, value: Any) -> Any:
        """Return the value of the last stage. All ranks must call this."""
        return self._mesh.from_last_stage(value)

    # --- the gradient

    def settle(self) -> None:
        """Sum the gradients of weights that several stages hold. All ranks must call this."""
        for parameters, group in self._tied:
            sum_gradients(parameters, group)

    def groups(self, model: nn.Module) -> Groups:
        """Return the groups of the whole model with the parameters of this stage."""
        by_name = dict(model.named_parameters())
        return [
            {**options, "params": [by_name[name] for name in names if name in by_name]}
            for options, names in self.whole.groups
        ]

    def norm(self, parameters: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
        """Return the norm of the whole model's gradient. All ranks must call this."""
        place, world = self._mesh.place, self._mesh.world
        entries = torch.zeros(len(self._at), dtype=torch.float64, device=world.device)
        at, found = [], []
        for parameter in parameters:
            name = self._names[id(parameter)]
            # One copy counts, unless copies hold different rows; so does one holder.
            first = not place.copy
            if isinstance(parameter, DTensor):
                found_at = parameter.device_mesh.get_coordinate()
                first = found_at is not None and not any(found_at[:-1])
            if not first or self._plan.holders[name][0] != place.stage:
                continue
            for gradient in self._counted(parameter):
                at.append(self._at[name])
                found.append(gradient)
        if found:
            norms = torch.stack(torch._foreach_norm(found)).double()
            entries[at] = norms if self._exact else norms**2
        world.sum_on_device(entries)
        if not self._exact:
            entries = entries.sqrt()
        norm: Tensor = torch.linalg.vector_norm(entries.to(dtype))
        return norm

    def _counted(self, parameter: Tensor) -> list[Tensor]:
        if self._tensor is not None:
            found = self._tensor.counted([parameter])
        else:
            found = [] if parameter.grad is None else [parameter.grad]
        return [each.to_local() if isinstance(each, DTensor) else each for each in found]

    # --- checkpoints

    def whole_model(self, state: State) -> State:
        """Return the state of the whole model, out of that of stages. All ranks must call this."""
        merged = self._merged(
            {name: value for name, value in state.items() if name in self.whole.state}
        )
        return {name: merged[first] for name, first in self.whole.state.items()}

    def whole_optimizer(self, state: State, names: list[str]) -> State:
        """Return the optimizer state of the whole model. All ranks must call this.

        Parameters
        ----------
        state : dict
        names : list of str
            Names of the parameters at their indices in the state.
        """
        mine = {
            f"{self._at[names[index]]} {key}": value
            for index, values in state["state"].items()
            for key, value in values.items()
        }
        moments: dict[int, dict[str, Any]] = {}
        for key, value in self._merged(mine).items():
            index, _, moment = key.partition(" ")
            moments.setdefault(int(index), {})[moment] = value
        starts = 0
        groups = []
        for group, (_, members) in zip(state["param_groups"], self.whole.groups, strict=True):
            groups.append({**group, "params": list(range(starts, starts + len(members)))})
            starts += len(members)
        return {**state, "state": moments, "param_groups": groups}

    def part_of_optimizer(self, state: State, names: list[list[str]]) -> State:
        """Return this stage's part of the whole optimizer state of a checkpoint.

        Parameters
        ----------
        state : dict
        names : list of list of str
            Names of this stage's parameters in each group.
        """
        moments, groups, index = {}, [], 0
        for group, members in zip(state["param_groups"], names, strict=True):
            groups.append({**group, "params": list(range(index, index + len(members)))})
            for name in members:
                if self._at[name] in state["state"]:
                    moments[index] = state["state"][self._at[name]]
                index += 1
        return {**state, "state": moments, "param_groups": groups}

    def _merged(self, mine: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of all stages, of several with the same key those of the first.

        Tensors are scattered: their parts stay where they are.
        """
        place, layout = self._mesh.place, self._mesh.layout
        described = []
        if not (place.copy or place.tensor):
            described = [[key, *self._described(value)] for key, value in mine.items()]
        merged: dict[str, Any] = {}
        for rank, rows in enumerate(self._mesh.world.gather(described)):
            stage = layout.place(rank).stage
            for key, dtype, shape, parts, columns in rows:
                if key in merged:
                    continue
                if dtype is None:
                    merged[key] = shape
                    continue
                own = mine.get(key) if stage == place.stage else None
                if isinstance(own, Scattered):
                    own = own.own
                elif self._mesh.world.rank != rank:
                    own = None
                holders = tuple((holder, count) for holder, count in parts)
                merged[key] = Scattered(
                    dtype_of(dtype), tuple(shape), holders, own, columns=columns
                )
        return merged

    def _described(self, value: Any) -> list[Any]:
        if not isinstance(value, Tensor | Scattered):
            return [None, value, None, None]
        parts: list[tuple[int, int]] = [(self._mesh.world.rank, math.prod(value.shape))]
        columns = None
        if isinstance(value, Scattered):
            parts, columns = list(value.parts), value.columns
            if self._tensor is None:  # Holders are copies.
                layout, stage = self._mesh.layout, self._mesh.place.stage
                parts = [(layout.rank(RankPlace(stage, copy, 0)), n) for copy, n in parts]
        return [dtype_name(value.dtype), list(value.shape), parts, columns]


def sum_gradients(parameters: Sequence[Tensor], group: dist.ProcessGroup) -> None:
    """Sum the gradients of parameters over a group, in place."""
    for parameter in parameters:
        gradient = parameter.grad
        if gradient is None:
            gradient = parameter.grad = torch.zeros_like(parameter)
        local = gradient.to_local() if isinstance(gradient, DTensor) else gradient
        dist.all_reduce(local, group=group)
