"""``powersgd``: gradient compression on ``ddp`` by products of thin matrices.

PowerSGD (Vogels et al. 2019, arXiv 1905.13727) sends each matrix M of n × m numbers as P Qᵀ with r columns each,
(n + m) r numbers instead of n m; vectors and small matrices are sent whole. What the product misses is added to the next
step's gradient (error feedback), so it arrives later, not never. This makes the error, and the Q that the next step
starts from, part of a run's state: each rank's own, and in the checkpoint. A step that was abandoned on the way has
already changed them, so a run under ``powersgd`` cannot repeat a step that ran out of memory. A batch of weight zero
leaves them as they are.

Two things of torch's hook are mended here. Its three operations per bucket follow one another in callbacks; on Gloo the
callbacks of two buckets overtake each other and the ranks' operations no longer match, so a bucket is waited for before
the next one is begun. (On CUDA the hook itself waits for the device.) And a gradient of zeros makes Q zero, after which
every later product is zero: such places are filled again with numbers that all ranks share.

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
"""Added to the norms that PowerSGD divides by, so that a gradient of zeros gives zeros and not NaN."""
_SEED: Final = 0
"""Of the first Q. Equal on all ranks, or their products would be of different matrices."""

Future = torch.futures.Future[Tensor]


class PowerSGD(DDP):
    """``ddp`` with gradients as products of thin matrices on their way."""

    lost_promise: ClassVar[str] = (
        "powersgd sends gradients as products of thin matrices, and what they miss with the next step's: a step's gradient "
        "is not the whole batch's"
    )
    repeats: ClassVar[bool] = False
    sends_exactly: ClassVar[bool] = False
    saves_together: ClassVar[bool] = True

    _memory: _Memory | None = None
    _weight = 0.0
    """Weight of the next step's batch, summed over its terms; 0 in the warm-up."""

    def add_hook(self, reducer: Reducer) -> None:
        if self._memory is None:
            self._memory = _Memory(reducer.group, self.options, self.ranks.device, warm_up_passes=self.warm_up_passes)
        self._memory.begin_warm_up()
        # DDP looks at a hook's annotations and takes no strings for types; this has none.
        reducer.ddp.register_comm_hook(self._memory, lambda memory, bucket: memory.reduce(bucket))

    def factor(self, whole: float, own: float) -> float:
        self._weight += whole
        return super().factor(whole, own)

    def begin_reduction(self) -> None:
        if self._memory is not None:
            self._memory.begin_step(counted=self._weight > 0)
        self._weight = 0.0
        super().begin_reduction()

    def extra_state(self) -> State:
        return {} if self._memory is None else self._memory.state()

    def load_extra(self, state: State) -> None:
        if self._memory is None or self._reducer is None:
            return
        sizes = [bucket.buffer().numel() for bucket in self._reducer.buckets()]
        if state["error"] and sizes != [state["error"][index].numel() for index in sorted(state["error"])]:
            raise ValueError("its gradients are in other buckets")
        self._memory.load(state)


class _Memory:
    """What PowerSGD remembers from step to step, and how it reduces a bucket with it."""

    def __init__(self, group: dist.ProcessGroup, options: job.Strategy, device: torch.device, *, warm_up_passes: int):
        self._group, self._device, self._warm_up_passes = group, device, warm_up_passes
        self._starts = options.powersgd_starts
        # Torch's own count of steps to send whole knows nothing of warm-up passes: it is kept here, and there it is over.
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

    def begin_warm_up(self) -> None:
        """The next passes are masked, and their buckets are not yet those of the steps: leave the memory alone."""
        self._passes = 0

    def begin_step(self, *, counted: bool) -> None:
        """The next buckets are one step's; ``counted`` where its batch has weight. Equal on all ranks.

        A batch of weight zero updates nothing, so whatever its step took from the error would be lost.
        """
        self._counted = counted

    def reduce(self, bucket: GradBucket) -> Future:
        """The mean over the ranks of one bucket, exact or nearly. DDP calls this on all ranks in the same order."""
        whole = self._passes < self._warm_up_passes or self._steps < self._starts or not self._counted
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
        """Take what is not finite out of the error, and zeros out of Q. Equal on all ranks, without a look from the host."""
        if index in self._inner.error_dict:
            self._inner.error_dict[index].nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
        q = self._inner.q_memory_dict.get(index)
        if q is not None:
            if index not in self._fill:
                generator = torch.Generator().manual_seed(_SEED + 1 + index)
                self._fill[index] = torch.randn(q.shape, dtype=q.dtype, generator=generator).to(q.device)
            q.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
            torch.where(q == 0, self._fill[index], q, out=q)

    def state(self) -> State:
        """All of it, on the host, as a checkpoint keeps it."""
        return {"steps": self._steps} | {
            name: {index: value.cpu() for index, value in memory.items()} for name, memory in self._remembered()
        }

    def load(self, state: State) -> None:
        self._steps = state["steps"]
        for name, memory in self._remembered():
            memory.clear()
            memory.update({index: value.to(self._device) for index, value in state[name].items()})

    def _remembered(self) -> Iterator[tuple[str, dict[int, Tensor]]]:
        """By name: tensors by bucket. What P holds is written anew in each step; torch asks whether it is there."""
        yield "error", self._inner.error_dict
        yield "p", self._inner.p_memory_dict
        yield "q", self._inner.q_memory_dict
