"""``powersgd``: low-rank gradient compression on ``ddp``.

PowerSGD (Vogels et al. 2019, arXiv 1905.13727) sends each matrix M of n × m numbers as P Qᵀ with r
columns each, (n + m) r numbers instead of n m. Vectors and small matrices are sent whole. The
residual of the product is added to the gradient of the next step (error feedback). The residual and
the Q that the next step starts from are state of the run: each rank has its own, and the checkpoint
holds them. An abandoned step has already changed them, so a run under ``powersgd`` cannot repeat a
step that ran out of memory. A batch of weight zero does not change them. A step that is skipped
because it is not finite has sent a part of the residual that is applied nowhere: the residual and Q
of the step before are put back. They are kept until the update, one more gradient in memory.

This module works around two problems of torch's hook:

* Its three operations per bucket are chained in callbacks. On Gloo the callbacks of two buckets can
  run in another order on each rank, and the operations no longer match. Each bucket is therefore
  completed before the next one begins. (On CUDA the hook itself waits for the device.)
* A gradient of zeros makes Q zero, and every later product is then zero. Zeros in Q are replaced by
  random numbers that are equal on all ranks.

Not here: rounding to 16 bits (``engine.strategies.compression``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

from lockstep.domain.spec import job
from lockstep.engine.strategies.base import State
from lockstep.engine.strategies.ddp import DDP
from lockstep.engine.strategies.reducer import Reducer

_EPSILON: Final = 1e-8
"""Added to the norms that PowerSGD divides by. Avoids NaN for a gradient of zeros."""
_SEED: Final = 0
"""Seed of the first Q. It must be equal on all ranks, because their products are summed."""

Future = torch.futures.Future[Tensor]


class PowerSGD(DDP):
    """``ddp`` that sends gradients as low-rank products."""

    lost_promise: ClassVar[str] = (
        "powersgd sends gradients as products of low-rank matrices, and adds the error to the "
        "next step's gradient: a step's gradient is not the whole batch's"
    )
    repeats: ClassVar[bool] = False
    saves_together: ClassVar[bool] = True

    _memory: _Memory | None = None

    def add_hook(self, reducer: Reducer) -> None:
        if self._memory is None:
            self._memory = _Memory(
                reducer.group, self.options, self.ranks.device, warm_up_passes=self.warm_up_passes
            )
            self.rank_state = self
        self._memory.begin_warm_up()
        # DDP checks a hook's annotations and rejects types as strings; a lambda has none.
        reducer.ddp.register_comm_hook(self._memory, lambda memory, bucket: memory.reduce(bucket))

    def reset(self, *, track_usage: bool = False) -> None:
        super().reset(track_usage=track_usage)
        if self._reducer is None:
            self.rank_state = None  # Gradients are not compressed any more.

    def begin_reduction(self, *, counted: bool = False) -> None:
        if self._memory is not None:
            self._memory.begin_step(counted=counted)
        super().begin_reduction(counted=counted)

    def after_update(
        self, step: int, share: float, *, refused: bool | Tensor, last: bool = False
    ) -> None:
        super().after_update(step, share, refused=refused, last=last)
        if self._memory is not None:
            self._memory.end_step(refused=refused)

    def save(self) -> State:
        """Return the error feedback of this rank."""
        return {} if self._memory is None else self._memory.state()

    def load(self, state: State) -> None:
        """Restore the result of ``save``, if the buckets have the same sizes."""
        assert self._memory is not None
        assert self._reducer is not None
        sizes = [bucket.buffer().numel() for bucket in self._reducer.buckets()]
        errors = [state["error"][index].numel() for index in sorted(state["error"])]
        if errors and sizes != errors:
            raise ValueError("its gradients are in other buckets")
        self._memory.load(state)


class _Memory:
    """PowerSGD state between steps, and the reduction of a bucket with it."""

    def __init__(
        self,
        group: dist.ProcessGroup,
        options: job.Strategy,
        device: torch.device,
        *,
        warm_up_passes: int,
    ):
        self._group, self._device, self._warm_up_passes = group, device, warm_up_passes
        self._starts = options.powersgd_starts
        # torch's own count of uncompressed steps would include warm-up passes. This class counts
        # the steps instead, and torch's count starts as completed.
        self._inner = powerSGD_hook.PowerSGDState(
            group,
            matrix_approximation_rank=options.powersgd_rank or 1,
            start_powerSGD_iter=warm_up_passes,
            orthogonalization_epsilon=_EPSILON,
            random_seed=_SEED,
        )
        self._inner.iter = warm_up_passes
        self._passes = self._steps = 0
        self._counted = True
        self._fill: dict[int, Tensor] = {}
        self._before: list[dict[int, Tensor]] = []
        """Residual and Q at the begin of the step."""

    def begin_warm_up(self) -> None:
        """Start the masked warm-up passes, which do not change the state."""
        self._passes = 0

    def begin_step(self, *, counted: bool) -> None:
        """Begin a step. ``counted`` is True if its batch has weight, and equal on all ranks.

        A batch of weight zero updates nothing, so the residual that its step sends would be lost.
        """
        self._counted = counted
        # torch replaces a residual, and writes into Q.
        self._before = [
            dict(self._inner.error_dict),
            {index: q.clone() for index, q in self._inner.q_memory_dict.items()},
        ]

    def end_step(self, *, refused: bool | Tensor) -> None:
        """Put residual and Q back if the step moved no parameter.

        Parameters
        ----------
        refused : bool or Tensor
            A number on the device is not read by the host.
        """
        before, self._before = self._before, []
        if refused is False:
            return
        for memory, old in zip(
            (self._inner.error_dict, self._inner.q_memory_dict), before, strict=bool(before)
        ):
            for index, now in memory.items():
                former = old[index] if index in old else torch.zeros_like(now)
                memory[index] = (
                    former if refused is True else torch.where(refused.bool(), former, now)
                )

    def reduce(self, bucket: GradBucket) -> Future:
        """Return the exact or compressed mean of one bucket over the ranks.

        DDP calls this on all ranks in the same order.
        """
        whole = (
            self._passes < self._warm_up_passes or self._steps < self._starts or not self._counted
        )
        if bucket.is_last():
            self._steps += self._passes >= self._warm_up_passes
            self._passes += 1
        if whole:
            return default_hooks.allreduce_hook(self._group, bucket)
        self._mend(bucket.index())
        reduced = powerSGD_hook.powerSGD_hook(self._inner, bucket)
        reduced.wait()
        return reduced

    def _mend(self, index: int) -> None:
        """Zero the non-finite numbers of the error, and replace the zeros of Q.

        The replacement is equal on all ranks. The host does not wait for the device.
        """
        if index in self._inner.error_dict:
            self._inner.error_dict[index].nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
        q = self._inner.q_memory_dict.get(index)
        if q is not None:
            if index not in self._fill:
                generator = torch.Generator().manual_seed(_SEED + 1 + index)
                self._fill[index] = torch.randn(q.shape, dtype=q.dtype, generator=generator).to(
                    q.device
                )
            q.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
            torch.where(q == 0, self._fill[index], q, out=q)

    def state(self) -> State:
        """Return the whole state on the host, in the form of the checkpoint."""
        return {"steps": self._steps} | {
            name: {index: value.cpu() for index, value in memory.items()}
            for name, memory in self._remembered()
        }

    def load(self, state: State) -> None:
        """Restore the result of :meth:`state`."""
        self._steps = state["steps"]
        for name, memory in self._remembered():
            memory.clear()
            memory.update(
                {index: value.to(self._device, copy=True) for index, value in state[name].items()}
            )

    def _remembered(self) -> Iterator[tuple[str, dict[int, Tensor]]]:
        """Yield each state by name, as tensors by bucket.

        P is overwritten in each step, but torch checks that it is present.
        """
        yield "error", self._inner.error_dict
        yield "p", self._inner.p_memory_dict
        yield "q", self._inner.q_memory_dict
