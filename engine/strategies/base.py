"""Interface of the strategies by which ranks share the training of one model.

The loop depends on this interface only, never on the concrete strategy. A strategy that cannot keep
an item of the contract declares it in its class attributes. The plan and the documentation repeat
the declaration.

Not here: weighting and accumulation of a batch (``engine.step.gradient``), the registry
(``engine.strategies``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from lockstep.domain.spec import job
from lockstep.engine.model import layout
from lockstep.engine.model.buffers import share_buffers
from lockstep.engine.model.objective import Objective
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.strategies.block_order import ModelUsage
from lockstep.engine.task.interface import Batch

Groups = list[dict[str, Any]]
State = dict[str, Any]
Forward = tuple[Tensor, dict[str, Tensor]]
"""The scaled objective, and the unscaled sums by term."""
Evaluate = Callable[[Batch], dict[str, tuple[Tensor, float]]]
"""Function that returns the task's sums over one micro-batch of the eval split."""


class Norm(NamedTuple):
    """2-norms of the gradient of one step, each a scalar on the device."""

    whole: Tensor
    """Norm of the whole batch's gradient, equal on all ranks."""
    own: Tensor | None
    """Norm of the gradient that this rank's optimizer applies; None if it makes no step."""


class RankState(Protocol):
    """State of a strategy that each rank has for itself, such as error feedback."""

    def save(self) -> State:
        """Return the state of this rank. It is used again on the same number of ranks only."""

    def load(self, state: State) -> None:
        """Restore the result of ``save``. Raise ValueError if it does not fit."""


class Strategy:
    """Sharing of gradients, parameters and optimizer state between ranks, as seen by one rank.

    Parameters
    ----------
    objective : Objective
        Model and loss, on the rank's device, with the initial weights.
    ranks : Ranks
    options : domain.spec.Strategy
        The spec's section.
    usage : ModelUsage, optional
        Observed before training. By default every micro-batch is expected to use the whole model,
        and the order of blocks is not checked.
    """

    lost_promise: ClassVar[str] = ""
    """Reason why the gradient is not that of the whole batch; empty where it is."""
    repeats: ClassVar[bool] = False
    """True if all ranks can abandon and repeat a step that ran out of memory on one of them.

    See ``drain`` and ``reset``.
    """
    saves_together: ClassVar[bool] = False
    """True if all ranks must call ``model_state`` and ``optimizer_state``.

    Otherwise rank 0 holds the whole state.
    """
    replicated: ClassVar[bool] = True
    """True if every rank holds the same, whole parameters after each step."""
    gathers_blocks: ClassVar[bool] = False
    """True if ranks gather each block of the model together.

    All ranks must then call the same blocks in the same order, unless the strategy is constructed
    for a conditional model.
    """

    accumulates_in_float32: ClassVar[bool] = False
    """True if gradients of parameters in a narrower format are accumulated in float32."""
    steps_alone: ClassVar[bool] = False
    """True if each rank steps on the mean gradient of its own shard of the batch."""
    rank_state: RankState | None = None

    def __init__(
        self,
        objective: Objective,
        ranks: Ranks,
        options: job.Strategy,
        usage: ModelUsage | None = None,
    ):
        self.objective, self.ranks, self.options = objective, ranks, options
        self.model = objective.model
        """The user's model. The optimizer updates its parameters."""
        self.kind = options.kind
        """The row with the traits that other programs ask for, too."""
        self.warm_up_passes = 2
        """Number of masked passes after which the reduction buckets are final."""
        self.tracks_usage = usage is not None and usage.conditional
        """True if ranks exchange the used parameters of each batch.

        A parameter that no sample of a batch uses then has no gradient on any rank, and the
        optimizer does not update it, as in a loop on one device. Otherwise the gradient of every
        rank must be complete.
        """
        self._used_so_far: list[bool] | None = None
        share_buffers(self.model, ranks)

    # --- the gradient

    def forward(
        self, batch: Batch, scales: Mapping[str, float] | None, *, penalize: bool
    ) -> Forward:
        """Run the objective's forward.

        All ranks must call this for a micro-batch that synchronises.
        """
        raise NotImplementedError

    def micro_batch(self, *, last: bool, empty: bool = False) -> AbstractContextManager[None]:  # noqa: ARG002 - for overrides
        """Return the context of one micro-batch's forward and backward, to be entered at once.

        Parameters
        ----------
        last : bool
            True if this backward reduces the gradient of the step. Otherwise it adds only to this
            rank's own gradient.
        empty : bool
            True if the micro-batch has no samples. Its parameters do not count as used.
        """
        if empty and self.tracks_usage and self._used_so_far is None:
            self._used_so_far = self._have_gradients()
        return nullcontext()

    def backward(
        self,
        *,
        last: bool,  # noqa: ARG002 - for overrides
        empty: bool = False,  # noqa: ARG002 - likewise
    ) -> AbstractContextManager[None]:
        """Return the context of one backward in a pipeline, to be entered at once.

        There all forwards run as those of micro-batches that are not the last: a later backward
        would begin the reduction too early.

        Parameters
        ----------
        last, empty : bool
            As in ``micro_batch``.
        """
        return nullcontext()

    def keep_gathered(self) -> None:
        """Keep gathered parameters from the first forward of a step to its last backward."""

    def begin_reduction(self, *, counted: bool = False) -> None:  # noqa: ARG002 - for overrides
        """Begin a step. Reductions launched after this call belong to it.

        Parameters
        ----------
        counted : bool
            True if the batch has any weight; equal on all ranks. False in the warm-up.
        """
        self._used_so_far = None

    def finish_reduction(self) -> bool:
        """Finish the reduction after the last backward of a step. All ranks must call this.

        Returns
        -------
        bool
            False if this rank lacks a gradient that its peers expect, because it did not use some
            parameter. It has contributed zeros, and the step is void. Always True once usage is
            tracked.
        """
        return True

    def _used(self) -> list[bool]:
        """Return for each trainable parameter whether a sample of this rank used it."""
        return self._have_gradients() if self._used_so_far is None else self._used_so_far

    def _have_gradients(self) -> list[bool]:
        return [parameter.grad is not None for parameter in self._trained]

    def discard(self, *, reuse: bool) -> None:  # noqa: ARG002 - for overrides
        """Drop the gradient. The next micro-batch starts a new one.

        Parameters
        ----------
        reuse : bool
            True if the memory may stay, with zeros, for a step of several micro-batches.
        """
        for parameter in self._parameters:
            parameter.grad = None

    @cached_property
    def _trained(self) -> tuple[nn.Parameter, ...]:
        """Trainable parameters in the model's order."""
        return tuple(parameter for parameter in self.model.parameters() if parameter.requires_grad)

    @cached_property
    def _parameters(self) -> tuple[nn.Parameter, ...]:
        """Parameters of the model, cached at the first step.

        Traversing the modules in every step would take as long as a layer.
        """
        return tuple(self.model.parameters())

    # --- a step that is abandoned

    def drain(self) -> None:
        """Contribute zeros to the remaining reductions of this step, to unblock the other ranks.

        Called where ``repeats`` is True, on a rank that ran out of memory.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot abandon a step")

    def reset(self, *, track_usage: bool = False) -> None:
        """Discard an abandoned step; with ``track_usage``, set ``tracks_usage`` from now on.

        All ranks must call this, and must warm up again before the next micro-batch.
        """
        self.tracks_usage |= track_usage

    # --- the update

    def optimizer(
        self, build: Callable[[Groups], torch.optim.Optimizer], groups: Groups
    ) -> torch.optim.Optimizer:
        """Build the optimizer over ``groups``. All ranks must call this."""
        return build(groups)

    def norm(self, gradients: list[Tensor], share: float) -> Norm:  # noqa: ARG002 - for overrides
        """Return the 2-norm of the gradient. All ranks must call this.

        Parameters
        ----------
        gradients : list of Tensor
            Gradients of this rank's parameters.
        share : float
            This rank's part of the whole batch's weight, 0..1.
        """
        # Same result as torch.nn.utils.get_total_norm, which on the CPU makes one call per
        # parameter.
        norm = (
            torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
            if gradients
            else torch.zeros(())
        )
        return Norm(norm, norm)

    def after_update(
        self, step: int, share: float, *, refused: bool | Tensor, last: bool = False
    ) -> None:
        """Handle the end of a step, also of one whose batch had no weight.

        All ranks must call this.

        Parameters
        ----------
        step : int
            Index of the completed step, counted from 0.
        share : float
            This rank's part of the whole batch's weight, 0..1; 0 on all ranks for a batch without
            weight.
        refused : bool or Tensor
            Whether the parameters stay as they are; on CUDA a number on the device, equal on all
            ranks.
        last : bool
            True for the last step of the run.
        """

    # --- the model, whole

    @contextmanager
    def evaluation(self) -> Iterator[Evaluate]:
        """Yield the evaluation of the parameters that a checkpoint would hold now.

        All ranks must enter the context. Where ``kind.collective_forward`` is True, all ranks must
        call the function equally often.
        """
        yield self.objective.evaluate

    def model_state(self) -> State:
        """Return the state dict of the whole model, equal on all ranks where it is ``Scattered``.

        Rank 0's values are used. All ranks must call this where ``saves_together`` is True.
        """
        return self.model.state_dict()

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> State:
        """Return the state dict of the whole optimizer, in the form of :meth:`model_state`.

        All ranks must call this where ``saves_together`` is True.
        """
        return optimizer.state_dict()

    def load_optimizer(self, optimizer: torch.optim.Optimizer, state: State) -> None:
        """Restore the result of ``optimizer_state``, also on another number of ranks.

        The tensors of ``state`` are whole, and views of a file. All ranks must call this.
        """
        optimizer.load_state_dict(layout.own_copy(state, optimizer))
        layout.align_state(optimizer)

    def close(self) -> None:
        """Release the objects that must not outlive the process group."""
