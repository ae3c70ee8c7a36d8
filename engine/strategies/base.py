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
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from lockstep.domain.kinds.strategies import StrategyKind
from lockstep.domain.spec import job
from lockstep.engine.model import layout
from lockstep.engine.model.buffers import share_buffers
from lockstep.engine.model.objective import Objective
from lockstep.engine.runtime.device import is_accelerator
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.strategies.block_order import ModelUsage
from lockstep.engine.task.interface import Batch

Groups = list[dict[str, Any]]
State = dict[str, Any]
Forward = tuple[Tensor, dict[str, Tensor]]
"""The scaled objective, and the unscaled sums by term."""


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

    def __init__(
        self,
        objective: Objective,
        ranks: Ranks,
        options: job.Strategy,
        usage: ModelUsage | None = None,
    ):
        self.objective, self.ranks, self.options = objective, ranks, options
        self.tracks_usage = usage is not None and usage.conditional
        """True if ranks exchange the used parameters of each batch. See :meth:`track_usage`."""
        self._used_so_far: list[bool] | None = None
        share_buffers(self.model, ranks)

    @property
    def kind(self) -> StrategyKind:
        """The row with the traits that other programs ask for, too."""
        return self.options.kind

    @property
    def warm_up_passes(self) -> int:
        """Number of masked passes after which the reduction buckets are final."""
        return 2

    @property
    def model(self) -> nn.Module:
        """The user's model. The optimizer updates its parameters."""
        return self.objective.model

    # --- the gradient

    def forward(
        self, batch: Batch, scales: Mapping[str, float] | None, *, penalize: bool
    ) -> Forward:
        """Run the objective's forward.

        All ranks must call this for a micro-batch that synchronises.
        """
        raise NotImplementedError

    def backward(self, objective: Tensor) -> None:
        """Run backward from the result of the last forward, loss-scaled or not."""
        objective.backward()  # type: ignore[no-untyped-call]

    def local(self) -> AbstractContextManager[None]:
        """Return a context in which forward and backward add only to this rank's own gradient."""
        return nullcontext()

    def factor(self, whole: float, own: float) -> float:  # noqa: ARG002 - for strategies with local steps
        """Return the factor of a term's sum before backward.

        With this factor the optimizer receives the gradient of the mean over the batch.

        Parameters
        ----------
        whole : float
            The term's weight over the whole batch, all ranks.
        own : float
            The term's weight in this rank's shard of the batch.
        """
        return self.ranks.world_size / whole if whole > 0 else 0.0

    def begin_reduction(self) -> None:
        """Begin a step. Reductions launched after this call belong to it."""
        self._used_so_far = None

    def finish_reduction(self) -> bool:
        """Finish the reduction after the last backward of a step. All ranks must call this.

        Returns
        -------
        bool
            False if this rank lacks a gradient that its peers expect, because it did not use some
            parameter. The peers may wait until this rank has called ``drain``, and the step is
            void. Always True once usage is tracked.
        """
        return True

    # --- parameters that a batch does not use

    def track_usage(self) -> None:
        """Exchange the used parameters of each batch from the next step on.

        All ranks must call this, and must call ``reset`` before the next step.

        A parameter that no sample of a batch uses then has no gradient on any rank, and the
        optimizer does not update it, as in a loop on one device. Without tracking, the gradient of
        every rank must be complete.
        """
        self.tracks_usage = True

    @contextmanager
    def without_samples(self) -> Iterator[None]:
        """Enter around a micro-batch that has no samples. Its parameters do not count as used."""
        if self.tracks_usage and self._used_so_far is None:
            self._used_so_far = self._have_gradients()
        yield

    def _used(self) -> list[bool]:
        """Return for each trainable parameter whether a sample of this rank used it."""
        return self._have_gradients() if self._used_so_far is None else self._used_so_far

    def _have_gradients(self) -> list[bool]:
        return [parameter.grad is not None for parameter in self._trained]

    def warmed_up(self) -> None:
        """Handle the end of the warm-up, after which the reduction buckets are final.

        Called on all ranks.
        """

    def discard(self) -> None:
        """Drop the gradient. The next micro-batch starts a new one."""
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

        Called on a rank that did not send its gradient and, where ``repeats`` is True, on a rank
        that ran out of memory.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot abandon a step")

    def reset(self) -> None:
        """Discard an abandoned step.

        All ranks must call this, and must warm up again before the next micro-batch.
        """

    # --- the update

    def optimizer(
        self, build: Callable[[Groups], torch.optim.Optimizer], groups: Groups
    ) -> torch.optim.Optimizer:
        """Build the optimizer over ``groups``. All ranks must call this."""
        return build(groups)

    def norm(self, gradients: list[Tensor], share: float) -> Tensor:  # noqa: ARG002 - for strategies with local steps
        """Return the 2-norm of the whole gradient, equal on all ranks. All ranks must call this.

        Parameters
        ----------
        gradients : list of Tensor
            Gradients of this rank's parameters.
        share : float
            This rank's part of the whole batch's weight, 0..1.
        """
        # Same result as torch.nn.utils.get_total_norm, which on the CPU makes one call per
        # parameter.
        return (
            torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
            if gradients
            else torch.zeros(())
        )

    def clip(self, parameters: list[nn.Parameter], limit: float, norm: Tensor) -> None:
        """Scale the gradient down to a 2-norm of at most ``limit``.

        ``norm`` is the result of :meth:`norm` and must be finite.
        """
        # The 1e-6 is taken from torch.nn.utils.clip_grads_with_norm_.
        factor: Tensor | float
        if not is_accelerator(norm.device):
            factor = limit / (float(norm) + 1e-6)
            if factor >= 1.0:
                return  # Only on the CPU: reading the norm from a device would synchronise with it.
        else:
            factor = (limit / (norm + 1e-6)).clamp(max=1.0)
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        torch._foreach_mul_(gradients, factor)

    def moves(self, share: float) -> bool:  # noqa: ARG002 - for strategies with local steps
        """Return whether this rank's optimizer steps for its ``share`` of a batch with weight."""
        return True

    def after_update(self, step: int, share: float, *, refused: bool | Tensor) -> None:
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
        """

    # --- the model, whole

    def settled(self) -> AbstractContextManager[None]:
        """Return a context in which the model has the parameters that a checkpoint would hold now.

        All ranks must enter it.
        """
        return nullcontext()

    def settle(self) -> None:
        """Make the parameters of :meth:`settled` permanent, after the last step.

        All ranks must call this.
        """

    def evaluate(self, batch: Batch) -> dict[str, tuple[Tensor, float]]:
        """Return the task's sums over one micro-batch of the eval split, without a gradient.

        Where ``kind.collective_forward`` is True, all ranks must call this equally often.
        """
        result: dict[str, tuple[Tensor, float]] = self.objective.evaluate(batch)
        return result

    # --- state

    def model_state(self) -> State:
        """Return the state dict of the whole model. Only the result of rank 0 is used.

        All ranks must call this where ``saves_together`` is True.
        """
        return self.model.state_dict()

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> State:
        """Return the state dict of the whole optimizer. Only the result of rank 0 is used.

        All ranks must call this where ``saves_together`` is True.
        """
        return optimizer.state_dict()

    def load_optimizer(self, optimizer: torch.optim.Optimizer, state: State) -> None:
        """Restore the result of ``optimizer_state``, also on another number of ranks.

        All ranks must call this.
        """
        optimizer.load_state_dict(state)
        layout.align_state(optimizer)

    def extra_state(self) -> State:
        """Return this rank's further state that must survive a restart.

        Examples are error feedback and outer momentum. The state is gathered over all ranks. It is
        not used when the number of ranks changes.
        """
        return {}

    def load_extra(self, state: State) -> None:
        """Restore the result of ``extra_state`` on this rank."""

    def close(self) -> None:
        """Release the objects that must not outlive the process group."""
