"""Number format of forward and backward, and loss scaling for a narrow one.

``bf16`` and ``fp16`` are autocast over float32 parameters: operations that gain from the narrow
format run in it; sums, weights and the gradients that micro-batches add up stay in float32
(contract C12: 256 micro-batches added up in bfloat16 are off by 2 %). Parameters in a narrow format
would have narrow gradients, and are refused, unless the strategy adds up in float32.

``fp16`` has five bits of exponent, so small gradients would become zero. The objective is
multiplied by a scale before backward, and the gradient divided by it once per step, after the
reduction and before its norm. An infinity means that the scale was too large. The same batch is
then run again at half the scale, on all ranks, so no data is lost and a step is always at the same
offset in the data (contract C15). The usual alternative, to skip the batch, shifts every later one.
All scales are powers of two, so scaling alone changes no digit.

Not here: a step whose gradient is not finite at any scale (``engine.loop.non_finite``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, Literal

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from lockstep.engine.runtime.control import StepDecision, numbers_of
from lockstep.engine.runtime.device import traits_of
from lockstep.engine.runtime.errors import BadSpecError

Name = Literal["fp32", "bf16", "fp16"]

FORMATS: Final = {"bf16": torch.bfloat16, "fp16": torch.float16}
NARROW: Final = frozenset(FORMATS.values())
_NO_CAST: Final = nullcontext()


class Precision:
    """Number format of one run.

    Parameters
    ----------
    name : str
        As in the spec.
    device : torch.device
    """

    def __init__(self, name: Name = "fp32", device: torch.device | None = None):
        self.name = name
        self._format = FORMATS.get(name)
        self._device_type = device.type if device is not None else "cpu"
        self._scaler = Scaler() if name == "fp16" else None

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the context of the task's loss and of evaluation.

        It is local to the thread that enters it, so it is entered inside the module that strategies
        wrap.
        """
        if self._format is None:
            return _NO_CAST
        return torch.autocast(self._device_type, dtype=self._format)

    def scaled(self, objective: Tensor) -> Tensor:
        """The objective as backward gets it."""
        return objective if self._scaler is None else objective * self._scaler.scale

    def unscale(self, parameters: Iterable[nn.Parameter]) -> bool:
        """Divide the reduced gradient by the scale. Once per step.

        On CUDA this waits for the device, under ``fp16`` only: the host must decide whether to run
        the batch again.

        Returns
        -------
        bool
            True if this rank's gradient has infinities or NaNs.
        """
        return self._scaler is not None and self._scaler.unscale(parameters)

    def repeats(self, decision: StepDecision) -> bool:
        """Return whether to run the last batch again at a smaller scale. Equal on all ranks.

        Call it once after each run of a batch that fitted into memory.
        """
        return self._scaler is not None and self._scaler.repeats(decision)

    @property
    def loss_scale(self) -> float | None:
        """The scale of the next step; None without one."""
        return self._scaler.scale if self._scaler is not None else None

    def state(self) -> dict[str, float]:
        """Return the state for a checkpoint; equal on all ranks."""
        return {} if self._scaler is None else self._scaler.state()

    def load(self, state: dict[str, float]) -> None:
        """Restore the result of ``state``. The state of another precision is ignored."""
        if self._scaler is not None and state:
            self._scaler.load(state)


class Scaler:
    """Loss scale of one run. All decisions use values that are equal on all ranks."""

    START: Final = 2.0**16
    GROW_AFTER: Final = 2000
    """Steps in a row without an infinity, after which the scale is doubled."""
    REPEATS_MAX: Final = 20
    """Times that one batch is run again: enough to come from the start below a scale of 1."""

    def __init__(self) -> None:
        self.scale = self.START
        self._good_steps = 0
        self._repeats = 0
        self._before = self.scale
        """The scale before the batch was run again."""

    def unscale(self, parameters: Iterable[nn.Parameter]) -> bool:
        """Divide the gradients by the scale; whether some element is not finite."""
        by_format: dict[torch.dtype, list[Tensor]] = {}
        for parameter in parameters:
            if parameter.grad is not None:
                gradient = _local(parameter.grad)
                by_format.setdefault(gradient.dtype, []).append(gradient)
        found = [_unscale(gradients, 1.0 / self.scale) for gradients in by_format.values()]
        return any(float(one) > 0 for one in found)

    def repeats(self, decision: StepDecision) -> bool:
        """See :meth:`Precision.repeats`."""
        if decision.flags.unreduced:
            return False  # The step is repeated, whatever its scale.
        if not decision.flags.overflow:
            self._count_good_step()
            return False
        if self._repeats == 0:
            self._before = self.scale
        # A loss that is itself not finite is so at any scale. Rarely asked, so reading it from the
        # device costs little.
        if self._repeats == self.REPEATS_MAX or not all(
            map(math.isfinite, numbers_of(decision.sums))
        ):
            self.scale, self._repeats = self._before, 0
            return False
        self.scale /= 2
        self._good_steps = 0
        self._repeats += 1
        return True

    def _count_good_step(self) -> None:
        self._repeats = 0
        self._good_steps += 1
        if self._good_steps == self.GROW_AFTER:
            self.scale *= 2
            self._good_steps = 0

    def state(self) -> dict[str, float]:
        return {"scale": self.scale, "good_steps": self._good_steps}

    def load(self, state: dict[str, float]) -> None:
        self.scale, self._good_steps = float(state["scale"]), int(state["good_steps"])


def _unscale(gradients: list[Tensor], factor: float) -> Tensor:
    """Multiply in place; 1.0 where some element is infinite or NaN.

    One pass, the kernel of ``torch.amp.GradScaler``.
    """
    device = gradients[0].device
    found = torch.zeros(1, device=device)
    torch._amp_foreach_non_finite_check_and_unscale_(
        gradients, found, torch.full((1,), factor, device=device)
    )
    return found


def _local(gradient: Tensor) -> Tensor:
    """This rank's part of a sharded gradient; any other as it is."""
    to_local = getattr(gradient, "to_local", None)
    return gradient if to_local is None else to_local()


def require_wide_parameters(model: nn.Module, *, accumulates_in_float32: bool) -> None:
    """Refuse parameters whose gradients could not be added up exactly enough (contract C12).

    Parameters
    ----------
    model : nn.Module
    accumulates_in_float32 : bool
        Whether the strategy adds up gradients in float32, whatever the parameters are in.
    """
    if accumulates_in_float32:
        return
    narrow = [
        (name, p.dtype)
        for name, p in model.named_parameters()
        if p.requires_grad and p.dtype in NARROW
    ]
    if narrow:
        name, dtype = narrow[0]
        more = f" and {len(narrow) - 1} more" if len(narrow) > 1 else ""
        raise BadSpecError(
            f"model() returned trainable parameters in {dtype} ({name}{more}), which is too "
            "imprecise to accumulate gradients: return the model in float32 (model.float()) and "
            "set precision: bf16, or freeze these parameters with requires_grad_(False)",
        )


def use_tf32(device: torch.device, *, on: bool) -> None:
    """Turn TF32 on or off for float32 matrix products and convolutions on CUDA.

    TF32 has 10 bits of mantissa.
    torch enables it for convolutions by default. Both calls keep torch's older flags and its newer
    ``fp32_precision`` consistent: setting the newer ones makes ``torch.compile``, which reads the
    older, fail.
    """
    if traits_of(device).has_tf32:
        torch.set_float32_matmul_precision("high" if on else "highest")
        torch.backends.cudnn.allow_tf32 = on


class FormatRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch does not type it
    """Records the floating-point formats of the results of operations."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # neither this
        self.seen: set[torch.dtype] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for each in result if isinstance(result, list | tuple) else [result]:
            if isinstance(each, Tensor) and each.is_floating_point():
                self.seen.add(each.dtype)
        return result
