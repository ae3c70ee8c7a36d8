"""``fsdp``: torch's ``fully_shard`` (FSDP2).

Each of W ranks keeps 1/W of the parameters, gradients and optimizer state. With ``shard: S``, S
neighbours keep a copy of the model (HSDP), and copies sum their gradients once per step.

Repeated blocks (elements of a ``ModuleList``, ``ModuleDict`` or ``Sequential``) are gathered one at
a time, in forward and again in backward. The rest of the model is gathered once per micro-batch,
around the whole objective. A loss may therefore call the model any number of times, and also those
of its methods that read the other parameters. The parameters of a block are whole only inside the
block's forward. For a penalty all parameters are gathered, until the end of the backward.

Ranks gather a block together, so all of them must call the same blocks in the same order, forward
and backward. Each rank checks its own order (``engine.strategies.block_order``). A conditional
model (experts, LayerDrop, one head per task) is gathered as a whole instead, around the objective.
It needs the memory of all parameters in each micro-batch.

Gradients are reduced in the last micro-batch of a step. Until then each rank keeps a gradient of
the whole model's size, or with ``reduce: each_micro_batch`` its part alone, reduced within a copy
each time. A parameter without a gradient on this rank contributes zeros. All-gathers run in every
micro-batch, so all ranks must run the same number of them. In a pipeline a stage gathers its
parameters in the first micro-batch of a step, and keeps them whole until the last backward: gathers
in each forward and each backward would be many times as many. A step that ran out of memory cannot
be abandoned, because the peers wait inside a collective that cannot be drained.

Checkpoints have whole tensors under the model's own names, which rank 0 writes as the ranks send
their shards; a resume reads the rows of each rank. Any strategy on any number of ranks can resume
from them. At the start each rank builds the whole model on its device before it is sharded.

Not here: selection of blocks, conversion of shards (``engine.strategies.shards``); equal numbers of
evaluation micro-batches per rank (``engine.loop.evaluation``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method

from lockstep.domain.spec import job
from lockstep.engine.model import layout
from lockstep.engine.model.objective import Objective
from lockstep.engine.runtime.errors import BadSpecError
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.runtime.scattered import Scattered
from lockstep.engine.strategies import shards
from lockstep.engine.strategies.base import Evaluate, Forward, Norm, State, Strategy
from lockstep.engine.strategies.block_order import ModelUsage, OrderCheck, watch
from lockstep.engine.task.interface import Batch


class FSDP(Strategy):
    """FSDP2 around the objective and around each repeated block of the model."""

    saves_together: ClassVar[bool] = True
    replicated: ClassVar[bool] = False
    gathers_blocks: ClassVar[bool] = True

    def __init__(
        self,
        objective: Objective,
        ranks: Ranks,
        options: job.Strategy,
        usage: ModelUsage | None = None,
    ):
        super().__init__(objective, ranks, options, usage)
        self._of_one_copy: dist.ProcessGroup | None = None
        """Ranks that keep one copy of the model; None for a single rank."""
        self._gathers: dict[nn.Module, int] = {}
        """Hook of each unit that makes its parameters whole."""
        shards.require_support(self.model)
        # A model that is conditional in the preflight is gathered as a whole. A model that turns
        # out to be conditional later keeps its blocks.
        blocks = {} if self.tracks_usage else shards.blocks(self.model)
        self._units: list[FSDPModule] = (
            self._shard(list(blocks.values())) if ranks.world_size > 1 else []
        )
        """The blocks, followed by the objective. Empty on a single rank."""
        self._order = (
            OrderCheck(blocks, usage.train, usage.evaluation)
            if usage is not None and blocks
            else None
        )
        if usage is not None and usage.in_stages:
            self.keep_gathered()
        self._in_loss = False
        watch([self.model, *blocks.values()], self)
        self._arrived: set[int] = set()
        """Indices of the trainable parameters that received a gradient in this step."""
        self._has_samples, self._had_samples = True, False
        """True if the current micro-batch has samples; true if one of this step had."""
        if self._units:
            indices = {parameter: index for index, parameter in enumerate(self._trained)}
            for block in blocks.values():
                self._watch_arrivals(block, indices, set())
            inside = {module for block in blocks.values() for module in block.modules()}
            self._watch_arrivals(self.objective, indices, inside)

    def forward(
        self, batch: Batch, scales: Mapping[str, float] | None, *, penalize: bool
    ) -> Forward:
        self._had_samples |= self._has_samples
        self._in_loss = True
        try:
            with shards.explained(), self._checked():
                objective, sums = self.objective(batch, scales, penalize=penalize)
                shards.require_whole(objective)
                return objective if self._order is None else self._order.backward(objective), sums
        finally:
            self._in_loss = False

    def keep_gathered(self) -> None:
        for unit in self._units:
            unit.set_reshard_after_forward(False, recurse=False)

    def called(self, block: int) -> None:
        """Do nothing: a loss may call the model any number of times."""

    def reached(self, block: int) -> None:  # noqa: ARG002 - as in the protocol
        """Refuse a loss that differentiates through the model, on any number of ranks."""
        if self._in_loss:
            raise BadSpecError(
                "strategy fsdp cannot run a loss() that differentiates through the model (a "
                "gradient penalty, autograd.grad or backward), because each backward shards the "
                "parameters again: use strategy zero1 or ddp",
            )

    def begin_reduction(self, *, counted: bool = False) -> None:
        super().begin_reduction(counted=counted)
        self._arrived.clear()
        self._had_samples = False

    @contextmanager
    def micro_batch(self, *, last: bool, empty: bool = False) -> Iterator[None]:
        self._has_samples = not empty
        self._reduces(last)
        try:
            yield
        finally:
            self._has_samples = True
            self._reduces(True)

    @contextmanager
    def backward(self, *, last: bool, empty: bool = False) -> Iterator[None]:
        for unit in self._units:
            unit.set_reshard_after_backward(last, recurse=False)
            unit.set_is_last_backward(last)
        with self.micro_batch(last=last, empty=empty):
            yield

    def finish_reduction(self) -> bool:
        if not self._units:
            return True
        used = [index in self._arrived for index in range(len(self._trained))]
        if not self.tracks_usage:
            # The gradient is reduced in both cases, with zeros for missing gradients. But a
            # parameter that no rank used must have no gradient, which requires an exchange.
            return all(used) or not self._had_samples
        counts = torch.tensor(used, dtype=torch.float32, device=self.ranks.device)
        self.ranks.sum_on_device(counts)
        for parameter, ranks in zip(self._trained, counts.tolist(), strict=True):
            if not ranks:
                parameter.grad = None
        return True

    def drain(self) -> None:
        """Do nothing. The reduction is complete on every rank that reaches its end."""

    def norm(self, gradients: list[Tensor], share: float) -> Norm:  # noqa: ARG002 - as in the base class
        norm = torch.nn.utils.get_total_norm([shards.local(gradient) for gradient in gradients])
        squared = norm.double() ** 2
        if self._of_one_copy is not None:  # The other copies have the same gradient.
            dist.all_reduce(squared, group=self._of_one_copy)
        whole = squared.sqrt().to(norm.dtype)
        return Norm(whole, whole)

    @contextmanager
    def evaluation(self) -> Iterator[Evaluate]:
        def evaluate(batch: Batch) -> dict[str, tuple[Tensor, float]]:
            with shards.explained(), self._checked(evaluates=True):
                found: dict[str, tuple[Tensor, float]] = self.objective.evaluate(batch)
                shards.require_whole(*(total for total, _ in found.values()))
                return found

        try:
            yield evaluate
        finally:
            for unit in self._units:
                unit.reshard()  # FSDP reshards the last, or in a pipeline all, only in a backward.

    def model_state(self) -> State:
        known: dict[int, Scattered] = {}
        state: State = self.model.state_dict(keep_vars=True)  # Tied parameters are one object.
        state.update({name: shards.scattered(value, known) for name, value in state.items()})
        return state

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> State:
        state: State = shards.scattered(optimizer.state_dict(), {})
        return state

    def load_optimizer(self, optimizer: torch.optim.Optimizer, state: State) -> None:
        parameters = layout.parameters_of(optimizer)
        mine = {
            index: {
                name: shards.shard_like(value, parameters[index]) for name, value in values.items()
            }
            for index, values in state["state"].items()
        }
        optimizer.load_state_dict({**state, "state": mine})
        layout.align_state(optimizer)

    def _checked(self, *, evaluates: bool = False) -> AbstractContextManager[None]:
        return nullcontext() if self._order is None else self._order.forward(evaluates=evaluates)

    def _shard(self, blocks: list[nn.Module]) -> list[FSDPModule]:
        mesh, self._of_one_copy = self._mesh()
        units: list[FSDPModule] = []
        try:
            for module in (*blocks, self.objective):
                units.append(fully_shard(module, mesh=mesh))
                # Put before all others.
                self._gathers[module] = next(iter(module._forward_pre_hooks))
        except (ValueError, AssertionError, NotImplementedError) as error:
            raise BadSpecError(f"strategy fsdp cannot shard this model: {error}") from error
        for unit in units:
            # Gloo has no average operation, so the division by W is separate.
            unit.set_force_sum_reduction_for_comms(True)
            if hasattr(
                unit, "set_reduce_scatter_unused_params"
            ):  # Missing in some supported versions of torch.
                unit.set_reduce_scatter_unused_params(True, recurse=False)
        register_fsdp_forward_method(self.objective, "evaluate")
        self.objective.before_penalty = self._gather
        return units

    def _mesh(self) -> tuple[DeviceMesh, dist.ProcessGroup | None]:
        return shards.mesh_of(self.ranks, self.options)

    def _watch_arrivals(
        self, unit: nn.Module, indices: Mapping[nn.Parameter, int], inner: set[nn.Module]
    ) -> None:
        """Record each gradient of the sharded ``unit`` when it is accumulated.

        Gradients accumulate in the whole parameters, which FSDP creates in the unit's first forward
        and keeps. ``indices`` are those among the trainable parameters, and ``inner`` has the
        modules of other units.
        """
        places = [
            (module, name, indices[parameter])
            for module in unit.modules()
            if module not in inner
            for name, parameter in module.named_parameters(recurse=False)
            if parameter in indices
        ]

        def watch(*_: object) -> None:
            hook.remove()
            whole = {getattr(module, name): index for module, name, index in places}
            for parameter, index in whole.items():
                parameter.register_post_accumulate_grad_hook(partial(self._note_arrival, index))

        # Runs right after FSDP's own hook, which makes the parameters whole: the hook of a cut
        # layer puts another bias in the place of its own.
        hook = unit.register_forward_pre_hook(watch)
        hooks: Any = unit._forward_pre_hooks  # In their order; torch types it as a dict.
        later = [*hooks][[*hooks].index(self._gathers[unit]) + 1 : -1]
        for each in later:
            hooks.move_to_end(each)

    def _note_arrival(self, index: int, _parameter: Tensor) -> None:
        if self._has_samples:
            self._arrived.add(index)

    def _gather(self) -> None:
        """Gather all parameters. The next backward shards them again."""
        for unit in self._units:
            unit.unshard()

    def _reduces(self, reduces: bool) -> None:
        within_copy = reduces or self.options.reduce == "each_micro_batch"
        for unit in self._units:
            unit.set_requires_gradient_sync(within_copy, recurse=False)
            unit.set_requires_all_reduce(reduces, recurse=False)
