"""Devices of a rank: the traits of each kind, and the operations that kinds do not share.

torch has a module for each kind (``torch.cuda``) with the same names for streams, events and
memory: :func:`module_of` returns it, so no other module of the engine names a kind.

Not here: the kinds that a spec and a node know (``domain.kinds.devices``), one for each row here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from lockstep.domain.kinds.devices import DEVICES
from lockstep.engine.runtime.errors import BadSpecError


@dataclass(frozen=True, kw_only=True)
class DeviceTraits:
    """Traits of a kind in the engine."""

    backend: str
    """Backend of the ranks' collectives on tensors of the device."""
    roundings: int
    """Largest relative difference between two equal calls, in roundings."""
    check_flops_max: float
    """Model FLOPs of the check before step 1: about 10 s on one core."""
    has_tf32: bool = False
    """True if float32 products may be computed with fewer digits."""
    has_sync_batch_norm: bool = False
    """True if torch's ``SyncBatchNorm`` runs on it with several ranks."""
    environment: tuple[tuple[str, str], ...] = ()
    """Environment variables of a deterministic run, read at the first use of the device."""
    store_in_file: bool = False
    """True if ranks of one node exchange their addresses in a file. For NCCL this is not tested."""
    in_one_process: bool = False
    """True if ``nn.DataParallel`` can drive several from one process."""


TRAITS: Final[dict[str, DeviceTraits]] = {
    "cpu": DeviceTraits(backend="gloo", roundings=8, check_flops_max=1e12, store_in_file=True),
    "cuda": DeviceTraits(
        backend="nccl",
        roundings=1024,
        check_flops_max=2e13,
        # cuBLAS reads it. Without it, deterministic matrix products raise.
        environment=(("CUBLAS_WORKSPACE_CONFIG", ":4096:8"),),
        has_tf32=True,
        has_sync_batch_norm=True,
        in_one_process=True,
    ),
}
"""Traits by the name of the kind."""


def traits_of(device: torch.device) -> DeviceTraits:
    """Return the traits of a device.

    Raises
    ------
    EngineError
        ``bad_spec``, if the kind is unknown: it is not taken for another.
    """
    if device.type not in TRAITS:
        raise BadSpecError(
            f"Lockstep does not train on devices of the kind {device.type}: use "
            f"{' or '.join(TRAITS)}",
        )
    return TRAITS[device.type]


def is_accelerator(device: torch.device) -> bool:
    """Return whether work on the device is queued, and has memory of its own."""
    return device.type != "cpu"


def module_of(device: torch.device) -> Any:
    """Return torch's module for an accelerator: ``torch.cuda``."""
    return torch.get_device_module(device)


def kind_here() -> str:
    """Return the kind of device that this machine offers to a run without a service."""
    accelerators = (name for name, kind in DEVICES.items() if not kind.is_slot)
    found = (name for name in accelerators if torch.get_device_module(name).is_available())
    return next(found, "cpu")


def generator_of(device: torch.device) -> torch.Generator:
    """Return the default generator of an accelerator."""
    module = module_of(device)
    index = device.index if device.index is not None else module.current_device()
    generator: torch.Generator = module.default_generators[index]
    return generator


def to_device(batch: Any, device: torch.device) -> Any:
    """Return a batch with its tensors on ``device``; values without tensors stay as they are."""
    if not is_accelerator(device):
        return batch
    if isinstance(batch, Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, Mapping):
        return {key: to_device(value, device) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(to_device(value, device) for value in batch))
    if isinstance(batch, tuple | list):
        return type(batch)(to_device(value, device) for value in batch)
    return batch.to(device) if hasattr(batch, "to") else batch
