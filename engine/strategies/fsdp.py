"""``fsdp``: torch's ``fully_shard`` (FSDP2). Each rank keeps 1/W of the parameters, gradients and optimizer state.

Repeated blocks (what the model keeps in a ``ModuleList``, ``ModuleDict`` or ``Sequential``) are gathered one at a time, in
forward and again in backward; the rest of the model is gathered once per micro-batch, around the whole objective. So a
loss may call the model any number of times, and methods of it that read those other parameters; a block's own parameters
are whole only inside the block's forward. For a penalty everything is gathered, from there to the end of the backward.

Before the last micro-batch of a step nothing is reduced: until then each rank keeps a gradient of the whole model's
size. A parameter that got no gradient takes part with zeros. All-gathers happen in every micro-batch, so ranks run equally
many, and a step that ran out of memory cannot be abandoned: its peers wait inside a collective that cannot be drained.

Checkpoints are whole and by the model's own names: any strategy on any number of ranks goes on from them. At the start
each rank builds the whole model on its device before its shard is cut from it.

Not here: which blocks are found, and how shards become whole (``engine.strategies.shards``); how an evaluation gives
each rank equally many micro-batches (``engine.evaluation``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method

from domain import spec
from domain.outcomes import Reason
from engine.errors import EngineError
from engine.objective import Objective
from engine.ranks import Ranks
from engine.strategies import shards
from engine.strategies.base import Forward, Groups, State, Strategy
from engine.task import Batch


class FSDP(Strategy):
    """FSDP2 around the objective and around each repeated block of the model."""

    saves_together: ClassVar[bool] = True
    replicated: ClassVar[bool] = False
    collective_forward: ClassVar[bool] = True

    def __init__(self, objective: Objective, ranks: Ranks, options: spec.Strategy):
        super().__init__(objective, ranks, options)
        self._units: list[FSDPModule] = self._shard() if ranks.world_size > 1 else []
        """The blocks, and the objective as the last one. Empty on a single rank."""

    def forward(self, batch: Batch, scales: Mapping[str, float] | None, *, penalize: bool) -> Forward:
        with shards.explained():
            result: Forward = self.objective(batch, scales, penalize=penalize)
            shards.require_whole(result[0])
            return result

    def evaluate(self, batch: Batch) -> dict[str, tuple[Tensor, float]]:
        with shards.explained():
            found = super().evaluate(batch)
            shards.require_whole(*(total for total, _ in found.values()))
            return found

    @contextmanager
    def local(self) -> Iterator[None]:
        self._reduces(False)
        try:
            yield
        finally:
            self._reduces(True)

    def optimizer(self, build: Callable[[Groups], torch.optim.Optimizer], groups: Groups) -> torch.optim.Optimizer:
        # Only now: in the warm-up before it, a parameter that the loss does not use must be seen to have no gradient.
        for unit in self._units:
            if hasattr(unit, "set_reduce_scatter_unused_params"):  # Not in every torch that is supported.
                unit.set_reduce_scatter_unused_params(True, recurse=False)
        optimizer = super().optimizer(build, groups)
        if self._units and isinstance(optimizer, torch.optim.SGD):
            for group in optimizer.param_groups:
                group["fused"] = None  # torch's choice: its fused kernel of SGD takes no sharded parameters.
        return optimizer

    def norm(self, gradients: list[Tensor], share: float) -> Tensor:  # noqa: ARG002 - as in the base class
        norm = torch.nn.utils.get_total_norm([shards.local(gradient) for gradient in gradients])
        squared = norm.double() ** 2
        self.ranks.sum_on_device(squared)
        return squared.sqrt().to(norm.dtype)

    @contextmanager
    def settled(self) -> Iterator[None]:
        try:
            yield
        finally:
            for unit in self._units[-1:]:
                unit.reshard()  # Only a backward does it by itself, and there was none.

    def model_state(self) -> State:
        whole: State = shards.whole(self.model.state_dict(), keep=self.ranks.first)
        return whole

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> State:
        whole: State = shards.whole(optimizer.state_dict(), keep=self.ranks.first)
        return whole

    def load_optimizer(self, optimizer: torch.optim.Optimizer, state: State) -> None:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        mine = {
            index: {name: shards.shard_like(value, parameters[index]) for name, value in values.items()}
            for index, values in state["state"].items()
        }
        optimizer.load_state_dict({**state, "state": mine})

    def _shard(self) -> list[FSDPModule]:
        formats = {parameter.dtype for parameter in self.model.parameters() if parameter.requires_grad}
        if len(formats) > 1:
            raise EngineError(
                Reason.BAD_SPEC,
                f"strategy fsdp takes parameters of one type, and the model has {sorted(map(str, formats))}: "
                "convert them in model(), or write strategy: {name: ddp}",
            )
        mesh = self._mesh()
        units: list[FSDPModule] = []
        try:
            for module in (*shards.blocks(self.model), self.objective):
                units.append(fully_shard(module, mesh=mesh))  # noqa: PERF401 - a module at a time
        except (ValueError, AssertionError, NotImplementedError) as error:
            raise EngineError(Reason.BAD_SPEC, f"strategy fsdp cannot shard this model: {error}") from error
        for unit in units:
            # Gloo knows no average: the division by W is a step of its own.
            unit.set_force_sum_reduction_for_comms(True)
        register_fsdp_forward_method(self.objective, "evaluate")
        self.objective.before_penalty = self._gather
        return units

    def _mesh(self) -> DeviceMesh:
        """The ranks that share the model."""
        assert self.ranks.device_group is not None, "more than one rank has a group"
        return DeviceMesh.from_group(self.ranks.device_group, self.ranks.device.type)

    def _gather(self) -> None:
        """Make all parameters whole until the backward, which shards them again."""
        for unit in self._units:
            unit.unshard()

    def _reduces(self, reduces: bool) -> None:
        for unit in self._units:
            unit.set_requires_gradient_sync(reduces, recurse=False)
