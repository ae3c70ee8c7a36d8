"""What a strategy is: how ranks share one model's training, behind one interface.

The loop asks, the strategy answers; the loop never asks which strategy it is. A strategy that cannot keep an item of
the contract says so in its class attributes, and the plan and the documentation repeat it.

Not here: how a batch is weighted and accumulated (``engine.step.gradient``), which strategies there are (``engine.strategies``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from lockstep.domain.spec import job
from lockstep.engine.model import layout
from lockstep.engine.model.buffers import share_buffers
from lockstep.engine.model.objective import Objective
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.strategies.block_order import Usage
from lockstep.engine.task.interface import Batch

Groups = list[dict[str, Any]]
State = dict[str, Any]
Forward = tuple[Tensor, dict[str, Tensor]]
"""The scaled objective, and the unscaled sums by term."""


class Strategy:
    """One rank's part of one run's way of sharing gradients, parameters and optimizer state.

    Parameters
    ----------
    objective : Objective
        Model and loss, on the rank's device, with the weights to start from.
    ranks : Ranks
    options : domain.spec.Strategy
        The spec's section.
    usage : Usage, optional
        Observed before. By default every micro-batch is expected to use the whole model, and the order of blocks is
        not checked.
    """

    lost_promise: ClassVar[str] = ""
    """Why the gradient is not the whole batch's under this strategy; empty where it is."""
    repeats: ClassVar[bool] = False
    """Whether a step that ran out of memory on some rank can be abandoned and repeated by all (``drain``, ``reset``)."""
    saves_together: ClassVar[bool] = False
    """Whether all ranks must call ``model_state`` and ``optimizer_state``; otherwise rank 0 has everything."""
    replicated: ClassVar[bool] = True
    """Whether every rank holds the same, whole parameters after each step."""
    collective_forward: ClassVar[bool] = False
    """Whether ranks wait for each other in every forward, so that all of them must run equally many."""

    gathers_blocks: ClassVar[bool] = False
    """Whether ranks gather each block of the model together, so that all of them must call the same blocks in the same
    order, unless the strategy is made for a conditional model."""

    accumulates_in_float32: ClassVar[bool] = False
    """Whether gradients of parameters in a narrower format are added up in float32."""

    def __init__(self, objective: Objective, ranks: Ranks, options: job.Strategy, usage: Usage | None = None):
        self.objective, self.ranks, self.options = objective, ranks, options
        self.tracks_usage = usage is not None and usage.conditional
        """Whether ranks exchange which parameters a batch used. See :meth:`track_usage`."""
        self._used_so_far: list[bool] | None = None
        share_buffers(self.model, ranks)

    @property
    def warm_up_passes(self) -> int:
        """Masked passes after which what is reduced together does not change any more."""
        return 2

    @property
    def model(self) -> nn.Module:
        """The person's model. Its parameters are those that the optimizer moves."""
        return self.objective.model

    # --- the gradient

    def forward(self, batch: Batch, scales: Mapping[str, float] | None, *, penalize: bool) -> Forward:
        """Run the objective's forward. All ranks must call this for a micro-batch that synchronises."""
        raise NotImplementedError

    def backward(self, objective: Tensor) -> None:
        """Differentiate what the last forward gave, scaled or not."""
        objective.backward()  # type: ignore[no-untyped-call]

    def local(self) -> AbstractContextManager[None]:
        """Forward and backward inside it add to this rank's own gradient only."""
        return nullcontext()

    def factor(self, whole: float, own: float) -> float:  # noqa: ARG002 - what strategies with local steps divide by
        """What a term's sum is multiplied by before backward, so that the optimizer sees the mean over the batch.

        Parameters
        ----------
        whole : float
            The term's weight over the whole batch, all ranks.
        own : float
            The term's weight in this rank's share.
        """
        return self.ranks.world_size / whole if whole > 0 else 0.0

    def begin_reduction(self) -> None:
        """Begin a step: what is launched from here on belongs to it."""
        self._used_so_far = None

    def finish_reduction(self) -> bool:
        """Finish the reduction after the last backward of a step. All ranks must call this.

        Returns
        -------
        bool
            False where this rank lacks a gradient that its peers expect: some parameter was not used. The peers may
            wait until this rank has called ``drain``, and the step is void. Always true once usage is tracked.
        """
        return True

    # --- parameters that a batch does not use

    def track_usage(self) -> None:
        """Exchange which parameters each batch used, from the next step on. All ranks must call this.

        A parameter that no sample of a batch uses then has no gradient on any rank, and the optimizer leaves it alone,
        as in a loop on one device. Without tracking every rank's gradient must be complete. Call ``reset`` before the
        next step.
        """
        self.tracks_usage = True

    @contextmanager
    def without_samples(self) -> Iterator[None]:
        """Enter around a micro-batch that has no samples: what it uses does not count as used."""
        if self.tracks_usage and self._used_so_far is None:
            self._used_so_far = self._have_gradients()
        yield

    def _used(self) -> list[bool]:
        """Report for each trainable parameter whether a sample of this rank used it in this step."""
        return self._have_gradients() if self._used_so_far is None else self._used_so_far

    def _have_gradients(self) -> list[bool]:
        return [parameter.grad is not None for parameter in self._trained]

    def warmed_up(self) -> None:
        """What is reduced together does not change any more. Called after the warm-up, on all ranks."""

    @property
    def carries(self) -> int:
        """How many numbers of each rank can travel with a step's gradient. Equal on all ranks."""
        return 0

    def tell(self, say: Callable[[], Sequence[float]] | None, meanwhile: Callable[[], None] | None = None) -> None:
        """Send what ``say`` returns along with the gradient, from now on. Only where ``carries``.

        It is asked in the backward that synchronises, when all of this rank's gradients are there, and by ``drain``.
        ``meanwhile`` is called in that backward, between sending and waiting for what the others send.
        """
        raise NotImplementedError(f"{type(self).__name__} sends gradients alone")

    @property
    def sent(self) -> bool:
        """Whether this step's gradient has left this rank, with what it told: too late to say that something failed."""
        return False

    @property
    def told(self) -> list[list[float]] | None:
        """What each rank sent along with this step's gradient, in rank order; None if nothing."""
        return None

    def discard(self) -> None:
        """Drop the gradient, so that the next slot starts a new one."""
        for parameter in self._parameters:
            parameter.grad = None

    @cached_property
    def _trained(self) -> tuple[nn.Parameter, ...]:
        """The model's trainable parameters, in its order."""
        return tuple(parameter for parameter in self.model.parameters() if parameter.requires_grad)

    @cached_property
    def _parameters(self) -> tuple[nn.Parameter, ...]:
        """The model's, from the first step on: a walk through its modules in every step takes as long as a layer."""
        return tuple(self.model.parameters())

    # --- a step that is abandoned

    def drain(self) -> None:
        """Take part in what the other ranks still reduce in this step, with zeros, so that none of them waits for ever.

        Called on a rank whose gradient did not reach the others, and on one that ran out of memory, where ``repeats`` is
        true.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot abandon a step")

    def reset(self) -> None:
        """Forget an abandoned step. All ranks must call this, and warm up again before the next micro-batch."""

    # --- the update

    def optimizer(self, build: Callable[[Groups], torch.optim.Optimizer], groups: Groups) -> torch.optim.Optimizer:
        """The optimizer over ``groups``. All ranks must call this."""
        return build(groups)

    def norm(self, gradients: list[Tensor], share: float) -> Tensor:  # noqa: ARG002 - for strategies with local steps
        """2-norm of the whole gradient, equal on all ranks. All ranks must call this.

        Parameters
        ----------
        gradients : list of Tensor
            Those of this rank's parameters.
        share : float
            This rank's part of the whole batch's weight, 0..1.
        """
        # What torch.nn.utils.get_total_norm computes, which on the CPU makes as many calls as there are parameters.
        return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients))) if gradients else torch.zeros(())

    def clip(self, parameters: list[nn.Parameter], limit: float, norm: Tensor) -> None:
        """Scale the gradient down to a 2-norm of ``limit``; ``norm`` is what :meth:`norm` gave, and finite."""
        # The 1e-6 is that of torch.nn.utils.clip_grads_with_norm_.
        factor: Tensor | float
        if norm.device.type == "cpu":
            factor = limit / (float(norm) + 1e-6)
            if factor >= 1.0:
                return  # It is known that there is nothing to do; a device would have to be asked.
        else:
            factor = (limit / (norm + 1e-6)).clamp(max=1.0)
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        torch._foreach_mul_(gradients, factor)

    def moves(self, share: float) -> bool:  # noqa: ARG002 - for strategies with local steps
        """Whether this rank's optimizer makes a step for its ``share`` of a batch that has weight."""
        return True

    def after_update(self, step: int, share: float) -> None:
        """At the end of each step, also of one whose batch had no weight. All ranks must call this.

        Parameters
        ----------
        step : int
            The step just made, counted from 0.
        share : float
            This rank's part of the whole batch's weight, 0..1; 0 for all where the batch has none.
        """

    # --- the model, whole

    def settled(self) -> AbstractContextManager[None]:
        """Inside it the model's parameters are those that a checkpoint would have now. All ranks must enter it."""
        return nullcontext()

    def settle(self) -> None:
        """After the last step: make the model what :meth:`settled` shows, for good. All ranks must call this."""

    def evaluate(self, batch: Batch) -> dict[str, tuple[Tensor, float]]:
        """The task's sums over one micro-batch of the eval split, without a gradient.

        All ranks must call this equally often where ``collective_forward``.
        """
        result: dict[str, tuple[Tensor, float]] = self.objective.evaluate(batch)
        return result

    # --- state

    def model_state(self) -> State:
        """The whole model's state dict. All ranks must call this where ``saves_together``; rank 0's result counts."""
        return self.model.state_dict()

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> State:
        """The whole optimizer's state dict, under the same rule."""
        return optimizer.state_dict()

    def load_optimizer(self, optimizer: torch.optim.Optimizer, state: State) -> None:
        """Restore what ``optimizer_state`` gave, also on another number of ranks. All ranks must call this."""
        optimizer.load_state_dict(state)
        layout.align_state(optimizer)

    def extra_state(self) -> State:
        """What else of the strategy must survive a restart (error feedback, outer momentum), of this rank.

        Gathered over all ranks; not used when the number of ranks changes.
        """
        return {}

    def load_extra(self, state: State) -> None:
        """Restore what ``extra_state`` gave on this rank."""

    def close(self) -> None:
        """Drop what must not outlive the process group."""
