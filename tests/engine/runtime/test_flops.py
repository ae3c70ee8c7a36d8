"""Model FLOPs: counted, and compared with the formula of the papers."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel

from lockstep.engine.runtime.flops import count, peak_flops
from lockstep.engine.task.causal_lm import CausalLM

LAYERS, HEADS, WIDTH, CONTEXT, SEQUENCES = 3, 4, 64, 128, 2


def gpt_flops_per_token(backend: SDPBackend) -> float:
    task = CausalLM(context=CONTEXT, layers=LAYERS, heads=HEADS, width=WIDTH)
    model = task.model()
    batch = (
        torch.zeros(SEQUENCES, CONTEXT, dtype=torch.long),
        torch.zeros(SEQUENCES, CONTEXT, dtype=torch.long),
    )
    with sdpa_kernel(backend):
        return count(lambda: task.loss(model, batch).backward()) / (SEQUENCES * CONTEXT)


def formula() -> float:
    """Return 6 N + 12 L H Q T of appendix B of PaLM; N without parameters for lookup or
    normalisation alone."""
    model = CausalLM(context=CONTEXT, layers=LAYERS, heads=HEADS, width=WIDTH).model()
    products = sum(
        p.numel()
        for name, p in model.named_parameters()
        if p.ndim == 2 and not name.startswith("position")
    )
    return 6 * products + 12 * LAYERS * WIDTH * CONTEXT


@pytest.mark.parametrize("backend", [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH])
def test_flops_of_a_gpt_equal_the_formula_for_any_attention(
    backend: SDPBackend,
) -> None:
    assert gpt_flops_per_token(backend) == pytest.approx(formula(), rel=0.02)


def test_the_count_needs_no_values() -> None:
    with FakeTensorMode():
        found = gpt_flops_per_token(SDPBackend.FLASH_ATTENTION)
    assert found == gpt_flops_per_token(SDPBackend.FLASH_ATTENTION)


def test_a_product_counts_in_forward_and_for_each_gradient() -> None:
    linear = nn.Linear(32, 16, bias=False)
    rows = torch.zeros(8, 32, requires_grad=True)
    assert count(lambda: linear(rows).sum().backward()) == 3 * 2 * 8 * 32 * 16


def test_keys_of_several_heads_count_once_per_query() -> None:
    query = torch.zeros(2, 8, 16, 4, requires_grad=True)
    shared = torch.zeros(2, 2, 16, 4)
    whole = torch.zeros(2, 8, 16, 4)
    with sdpa_kernel(SDPBackend.MATH):
        few = count(lambda: F.scaled_dot_product_attention(query, shared, shared, enable_gqa=True))
        many = count(lambda: F.scaled_dot_product_attention(query, whole, whole))
    assert few == many == 2 * 2 * 8 * 16 * 16 * (4 + 4)


@pytest.mark.parametrize(
    ("device", "precision", "peak"),
    [
        ("NVIDIA H200", "bf16", 989.5e12),
        ("NVIDIA H100 80GB HBM3", "bf16", 989.5e12),
        ("NVIDIA H100 PCIe", "bf16", 756.5e12),
        ("NVIDIA A100-SXM4-80GB", "bf16", 312e12),
        ("NVIDIA A10G", "bf16", 70e12),
        ("NVIDIA A10", "fp32", 31.2e12),
        ("NVIDIA L4", "fp16", 121e12),
        ("Tesla V100-SXM2-16GB", "fp16", 125e12),
        ("Tesla V100-SXM2-16GB", "bf16", None),
        ("NVIDIA GeForce GTX 1080", "fp32", None),
        ("cpu", "fp32", None),
    ],
)
def test_a_device_has_the_peak_of_its_own_variant(
    device: str, precision: str, peak: float | None
) -> None:
    assert peak_flops(device, precision) == peak


def test_float32_on_tensor_cores_has_a_peak_of_its_own() -> None:
    assert peak_flops("NVIDIA H200", "fp32") == 66.9e12
    assert peak_flops("NVIDIA H200", "fp32", tf32=True) == 494.7e12
    assert peak_flops("Tesla T4", "fp32", tf32=True) == 8.1e12
