"""Floating-point operations of training, and the part of the device's peak that a run reaches.

*Model FLOPs* count what forward and backward require by definition, not what the kernels execute:
twice the multiplications of every matrix product and convolution in forward, and twice that in
backward. Recomputation (activation checkpointing, the scores inside a fused attention's backward)
does not count, and causal attention counts in full. With N parameters in matrix products, L layers,
H heads of width Q and sequences of T tokens, a decoder takes

    6 N + 12 L H Q T   per token

(PaLM, Chowdhery et al. 2022, arXiv 2204.02311, appendix B). Then

    TFLOP/s = samples/s × FLOPs per sample / 10¹²        over all ranks
    MFU     = FLOP/s / (ranks × peak FLOP/s of a device)
    tokens/s = units of the step's batch / seconds of the step, without evaluation and checkpoints

FLOPs per sample are those of one sample; where samples differ in size, the true numbers differ too.

Not here: the measurement of a step's seconds (``engine.runtime.timeline``).
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Final, NamedTuple

import torch
from torch.utils.flop_counter import FlopCounterMode


class Peak(NamedTuple):
    """Dense FLOP/s of one device, by number format; None where it has no such units."""

    bf16: float | None
    fp16: float | None
    tf32: float | None
    fp32: float


PEAKS: Final[tuple[tuple[str, Peak], ...]] = (
    # Tensor-core numbers without structured sparsity: half of what the newer datasheets print in
    # large type. fp32 is
    # that of the ordinary cores. First match wins, so variants stand before their family.
    # NVIDIA HGX B200 datasheet (per GPU); NVIDIA H200 datasheet; NVIDIA H100 datasheet and Hopper
    # architecture white
    # paper (SXM5, PCIe, NVL).
    ("B200", Peak(bf16=2250e12, fp16=2250e12, tf32=1125e12, fp32=75e12)),
    ("H200 NVL", Peak(bf16=835.5e12, fp16=835.5e12, tf32=417.5e12, fp32=60e12)),
    ("H200", Peak(bf16=989.5e12, fp16=989.5e12, tf32=494.7e12, fp32=66.9e12)),
    ("GH200", Peak(bf16=989.5e12, fp16=989.5e12, tf32=494.7e12, fp32=66.9e12)),
    ("H100 NVL", Peak(bf16=835.5e12, fp16=835.5e12, tf32=417.5e12, fp32=60e12)),
    ("H100 PCIe", Peak(bf16=756.5e12, fp16=756.5e12, tf32=378e12, fp32=51.2e12)),
    ("H100", Peak(bf16=989.5e12, fp16=989.5e12, tf32=494.7e12, fp32=66.9e12)),
    # NVIDIA A100, A10 and A40 datasheets.
    ("A100", Peak(bf16=312e12, fp16=312e12, tf32=156e12, fp32=19.5e12)),
    (
        "A10G",
        Peak(bf16=70e12, fp16=70e12, tf32=35e12, fp32=35e12),
    ),  # as AWS states for its own variant of the A10
    ("A10", Peak(bf16=125e12, fp16=125e12, tf32=62.5e12, fp32=31.2e12)),
    ("A40", Peak(bf16=149.7e12, fp16=149.7e12, tf32=74.8e12, fp32=37.4e12)),
    # NVIDIA L40S and L4 datasheets.
    ("L40S", Peak(bf16=362e12, fp16=362e12, tf32=183e12, fp32=91.6e12)),
    ("L4", Peak(bf16=121e12, fp16=121e12, tf32=60e12, fp32=30.3e12)),
    # NVIDIA V100 (SXM2) and T4 datasheets: no bfloat16, no TF32.
    ("V100", Peak(bf16=None, fp16=125e12, tf32=None, fp32=15.7e12)),
    ("T4", Peak(bf16=None, fp16=65e12, tf32=None, fp32=8.1e12)),
)
"""Peaks by a word of the device's name as torch gives it."""


def peak_flops(device_name: str, precision: str, *, tf32: bool = False) -> float | None:
    """Return the peak dense FLOP/s of a device for a number format; None for an unknown device.

    Parameters
    ----------
    device_name : str
        As ``torch.cuda.get_device_name`` returns it: ``NVIDIA H200``.
    precision : str
        ``fp32``, ``bf16`` or ``fp16``: ``train.precision``.
    tf32 : bool
        True if float32 products may run on tensor cores.
    """
    words = device_name.upper().replace("-", " ").split()
    for name, peak in PEAKS:
        if all(word in words for word in name.upper().split()):
            if precision == "fp32":
                return peak.tf32 if tf32 and peak.tf32 is not None else peak.fp32
            return peak.bf16 if precision == "bf16" else peak.fp16
    return None


class FlopCount(NamedTuple):
    """FLOPs of a run and the peak of its devices."""

    flops_per_sample: float
    """Model FLOPs of forward and backward."""
    peak: float | None
    """FLOP/s of all ranks' devices together; None where it is not known, as for a CPU."""

    def rates(self, samples_per_second: float) -> dict[str, float]:
        """The metrics that follow from a throughput."""
        achieved = self.flops_per_sample * samples_per_second
        rates = {"throughput/tflops_per_second": achieved / 1e12}
        if self.peak is not None:
            rates["throughput/mfu"] = achieved / self.peak
        return rates


def count(run: Callable[[], object]) -> float:
    """Model FLOPs of ``run``, which does forward and backward; it may run under fake tensors."""
    with FlopCounterMode(display=False, custom_mapping=_MODEL_FLOPS) as counter:
        run()
    return float(counter.get_total_flops())


def _attention(query: torch.Size, key: torch.Size, value: torch.Size) -> int:
    """FLOPs of one attention's forward: queries times keys, and scores times values.

    Shapes (B, H, T, D); where keys have fewer heads than queries, each is used by several.
    """
    *batch_heads, queries, width = query
    return 2 * prod(batch_heads) * queries * key[-2] * (width + value[-1])


def _forward(query: torch.Size, key: torch.Size, value: torch.Size, *_: Any, **__: Any) -> int:
    return _attention(query, key, value)


def _backward(
    _grad: torch.Size, query: torch.Size, key: torch.Size, value: torch.Size, *_: Any, **__: Any
) -> int:
    # Not torch's own formula, which counts the scores that the kernel computes again: a fifth
    # product.
    return 2 * _attention(query, key, value)


_KERNELS: Final = (
    "flash_attention",
    "efficient_attention",
    "cudnn_attention",
    "flash_attention_for_cpu",
)
"""Fused attention kernels. torch's counter omits the one of the CPU."""


def _model_flops() -> dict[Any, Any]:
    formulas: dict[Any, Any] = {}
    for kernel in _KERNELS:
        forward = getattr(torch.ops.aten, f"_scaled_dot_product_{kernel}", None)
        backward = getattr(torch.ops.aten, f"_scaled_dot_product_{kernel}_backward", None)
        if forward is not None and backward is not None:
            formulas[forward], formulas[backward] = _forward, _backward
    return formulas


_MODEL_FLOPS: Final = _model_flops()
