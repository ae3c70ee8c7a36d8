"""Optimizer of a spec, its learning rate at each step, and gradient clipping.

All of it counts optimizer steps and uses the reduced gradient of the whole batch, never that of a
micro-batch or a rank.

* A step whose loss or gradient is not finite changes neither parameters, moments nor counters
  (contract C17). On the CPU the host checks; on CUDA the fused kernel gets a flag on the device,
  and the host does not wait.

Not here: the gradient (``engine.step.gradient``), the formula of the rate
(``engine.step.schedule``), the optimizer classes (``engine.step.kernels``), the reaction to a step
that is not finite (``engine.loop.non_finite``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.domain.life.outcomes import Reason
from lockstep.domain.spec.optimizer import OptimizerClass
from lockstep.domain.spec.train import Train
from lockstep.engine.model.layout import require_agreement
from lockstep.engine.parallel.staged import StageParallel
from lockstep.engine.parallel.tensor import TensorParallel
from lockstep.engine.runtime import randomness
from lockstep.engine.runtime.control import Sums, numbers_of
from lockstep.engine.runtime.device import is_accelerator
from lockstep.engine.runtime.errors import BadSpecError, EngineError, reason_of
from lockstep.engine.step import kernels
from lockstep.engine.step.independence import check_independence
from lockstep.engine.step.schedule import learning_rate
from lockstep.engine.strategies.base import Norm, Strategy
from lockstep.engine.task.interface import Task


class Optimizer:
    """A torch optimizer driven by the step number."""

    def __init__(
        self,
        train: Train,
        task: Task,
        strategy: Strategy,
        *,
        steps: int,
        tensor: TensorParallel | None = None,
        stage: StageParallel | None = None,
    ):
        self._train, self._strategy, self._steps = train, strategy, steps
        self._tensor, self._stage = tensor, stage
        if stage is None:
            # Copies: a task that changes its own later would do so once per micro-batch, and no
            # more after a resume.
            groups = [dict(group) for group in task.param_groups(strategy.model)]
        else:
            groups = stage.groups(strategy.model)
        _check_groups(groups, strategy.model)
        # Each group's rate relative to the spec's; the schedule multiplies it.
        self._relative = [
            group.get("lr", train.optimizer.lr) / train.optimizer.lr for group in groups
        ]
        self._kernels: list[torch.optim.Optimizer] = []
        """Optimizers that change this rank's parameters: ``inner``, or the one inside a sharding
        ``inner``."""
        self.inner = strategy.optimizer(self._build, groups)
        self._parameters = [parameter for group in groups for parameter in group["params"]]
        on_device = any(is_accelerator(parameter.device) for parameter in self._parameters)
        self._masks = on_device and all(
            group.get("fused") for kernel in self._kernels for group in kernel.param_groups
        )
        """True if a step that is not finite is masked on the device."""

    def require_layout(self) -> None:
        """Check that gradients and moments have the memory layout of their parameters.

        Raises
        ------
        EngineError
            ``bad_spec``.
        """
        require_agreement(self._strategy.model.named_parameters(), self._kernels)

    def require_independence(self) -> None:
        """Check that ranks can share the work of a class that the engine does not know.

        Raises
        ------
        EngineError
            ``bad_spec``.
        """
        section = self._train.optimizer
        if isinstance(section, OptimizerClass):
            check_independence(
                section.name,
                lambda groups: kernels.build(section, groups),
                self._parameters,
                self._needs(),
            )

    def _needs(self) -> str:
        """Return the independence that the division of the work requires."""
        if self._tensor is not None:
            return "elements"
        needs = self._strategy.kind.optimizer_needs or ""
        return needs or ("parameters" if self._stage is not None else "")

    def make_state(self) -> None:
        """Let a class that makes its state in the first step do so, to measure its memory.

        The step changes the model, and belongs to a model that is not trained.
        """
        if self.inner.state:
            return
        for parameter in self._parameters:
            parameter.grad = torch.zeros_like(parameter)
        self.inner.step()
        self._strategy.discard(reuse=False)

    def rate(self, step: int) -> float:
        """The spec's learning rate at ``step``, counted from 0."""
        return learning_rate(
            self._train.schedule, lr=self._train.optimizer.lr, step=step, steps=self._steps
        )

    def norm(self, share: float) -> Norm:
        """Return the 2-norm of the gradient. All ranks must call this.

        Parameters
        ----------
        share : float
            This rank's part of the whole batch's weight, 0..1.
        """
        if self._stage is not None:
            whole = self._stage.norm(self._parameters, self._parameters[0].dtype)
            return Norm(whole, whole)
        if self._tensor is not None:
            found = self._strategy.norm(self._tensor.counted(self._parameters), share)
            whole = self._tensor.norm(found.whole, self._parameters[0].dtype)
            return Norm(whole, whole)
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        return self._strategy.norm(gradients, share)

    def update(self, step: int, sums: Sums, norm: Norm) -> bool | Tensor:
        """Clip the gradient if requested, and update the parameters if all is finite.

        Returns whether the update was refused, on CUDA as a number on the device, for which the
        host does not wait.

        Parameters
        ----------
        step : int
            Counted from 0.
        sums : Sums
            Loss of the whole batch.
        norm : Norm
            Result of :meth:`norm`.
        """
        refused: bool | Tensor = False
        if norm.own is None:
            return True
        if self._masks and isinstance(sums, Tensor):
            # A number minus itself is 0, unless it is infinite or NaN: four small kernels, and
            # nothing is read.
            total = sums.sum() + norm.whole
            refused = (total - total).ne(0).to(torch.float32)
            for kernel in self._kernels:
                kernel.found_inf = refused  # type: ignore[attr-defined] # torch.amp.GradScaler sets it the same way
        elif not (math.isfinite(norm.whole) and all(map(math.isfinite, numbers_of(sums)))):
            return True
        if self._train.clip_grad_norm is not None:
            clip(self._parameters, self._train.clip_grad_norm, norm.own)
        rate = self.rate(step)
        for group, relative in zip(self.inner.param_groups, self._relative, strict=True):
            group["lr"] = rate * relative
        if isinstance(self._train.optimizer, OptimizerClass):
            # Equal on all ranks, for a class that adds noise.
            seed = randomness.seed_of(randomness.UPDATE, self._train.seed, step)
            randomness.seed_host(seed)
            randomness.seed_device(seed, self._parameters[0].device)
        try:
            self.inner.step()
        except Exception as error:
            if reason_of(error) is not Reason.OUT_OF_MEMORY:
                raise
            raise EngineError(
                Reason.OUT_OF_MEMORY,
                f"step {step + 1} ran out of memory in the optimizer, which has updated only some "
                "of the parameters: resume from the last checkpoint, with a smaller "
                "batch.micro_size or activation_checkpointing: true, or with strategy zero1 or "
                "fsdp, under which ranks share the optimizer's state",
            ) from error
        return refused

    def _build(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        """The optimizer over ``groups``, with its state."""
        section = self._train.optimizer
        kernel = kernels.build(section, groups)
        try:
            kernels.allocate(section, kernel)
        except Exception as error:
            if reason_of(error) is not Reason.OUT_OF_MEMORY:
                raise
            raise EngineError(
                Reason.OUT_OF_MEMORY,
                f"the state of the optimizer, {self._train.optimizer.name}, does not fit into "
                f"memory beside the model: use "
                "a smaller model, devices with more memory, strategy zero1 or fsdp, under which "
                "ranks share it, or sgd, "
                "which keeps less",
            ) from error
        self._kernels.append(kernel)
        return kernel


def clip(parameters: Iterable[nn.Parameter], limit: float, norm: Tensor) -> None:
    """Scale the gradient down to a 2-norm of at most ``limit``.

    Parameters
    ----------
    parameters : iterable of Parameter
    limit : float
    norm : Tensor
        Norm of their gradient, finite.
    """
    # The 1e-6 is taken from torch.nn.utils.clip_grads_with_norm_.
    if not is_accelerator(norm.device):
        number = limit / (float(norm) + 1e-6)
        if number >= 1.0:
            return  # Only on the CPU: reading the norm from a device would synchronise with it.
        # As a tensor once: torch makes one of a number for each gradient. Narrow formats are
        # multiplied in float32.
        wide = torch.float64 if norm.dtype == torch.float64 else torch.float32
        factor = torch.scalar_tensor(number, dtype=wide)
    else:
        factor = (limit / (norm + 1e-6)).clamp(max=1.0)
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    torch._foreach_mul_(gradients, factor)


def _check_groups(groups: list[dict[str, Any]], model: nn.Module) -> None:
    """Raise unless every trainable parameter is in one group and the groups hold no other.

    A missing one would silently never be trained. An additional one would be trained on each rank's
    part of the batch, and reset when the run resumes.
    """
    given = {id(parameter) for group in groups for parameter in _listed(group)}
    left_out = [
        name
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and id(parameter) not in given
    ]
    if left_out:
        raise BadSpecError(
            f"param_groups() omits {', '.join(left_out[:5])}: put each trainable parameter "
            "into a group, or freeze it with requires_grad_(False)",
        )
    if foreign := given - {id(parameter) for parameter in model.parameters()}:
        raise BadSpecError(
            f"param_groups() names {len(foreign)} parameter{'s' if len(foreign) > 1 else ''} that "
            f"the model does not have: "
            "make it part of what model() returns, so that ranks share its gradient and "
            "checkpoints hold its value",
        )


def _listed(group: dict[str, Any]) -> Iterable[nn.Parameter]:
    """A group's parameters, kept as a list: a generator would be empty the second time."""
    group["params"] = list(group["params"])
    listed: list[nn.Parameter] = group["params"]
    return listed
