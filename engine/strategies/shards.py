"""Sharded parameters: their ranks, selection of blocks, parts of whole tensors, and error checks.

Not here: gathering of parameters and reduction of gradients (``engine.strategies.fsdp``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from lockstep.domain.spec import job
from lockstep.engine.runtime.errors import BadSpecError
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.runtime.scattered import Scattered


def blocks(model: nn.Module) -> dict[str, nn.Module]:
    """Return the repeated parts of a model by name: the outermost elements of its lists of modules.

    An element that shares a parameter with another part is left out, because both must be gathered
    together.
    """
    owners: dict[nn.Parameter, set[nn.Module]] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            owners.setdefault(parameter, set()).add(module)
    listed = set(_listed(model))
    found = {}
    for name, block in model.named_modules():
        parameters, inside = list(block.parameters()), set(block.modules())
        if (
            block in listed
            and parameters
            and all(owners[parameter] <= inside for parameter in parameters)
        ):
            found[name] = block
    return found


def _listed(module: nn.Module) -> Iterator[nn.Module]:
    keeps_a_list = isinstance(module, nn.ModuleList | nn.ModuleDict | nn.Sequential)
    for child in module.children():
        if keeps_a_list and not isinstance(child, nn.ModuleList | nn.ModuleDict):
            yield child
        else:
            yield from _listed(child)


def mesh_of(ranks: Ranks, options: job.Strategy) -> tuple[DeviceMesh, dist.ProcessGroup]:
    """Return the mesh of the ranks that share the model, and the group of one copy.

    All ranks must call this. The mesh has two dimensions, if there are several copies: the copies,
    and the ranks of each.
    """
    whole, shard = ranks.device_group, options.shard
    assert whole is not None, "more than one rank has a group"
    if shard is None or shard >= ranks.world_size:
        return DeviceMesh.from_group(whole, ranks.device.type), whole
    if not options.divides(ranks.world_size):
        raise BadSpecError(
            f"strategy fsdp with shard {shard} needs a multiple of {shard} ranks, and the run "
            f"has {ranks.world_size}: start another number, or set another shard",
        )
    copies = ranks.world_size // shard
    of_one_copy = ranks.part(
        lambda every: [every[copy * shard : (copy + 1) * shard] for copy in range(copies)]
    )
    of_one_part = ranks.part(lambda every: [every[part::shard] for part in range(shard)])
    mesh = DeviceMesh.from_group(
        [of_one_part, of_one_copy],
        ranks.device.type,
        mesh=torch.tensor(dist.get_process_group_ranks(whole)).view(-1, shard),
        mesh_dim_names=("copies", "ranks"),
    )
    return mesh, of_one_copy


def local(tensor: Tensor) -> Tensor:
    """Return this rank's shard of a tensor, or the tensor itself if it is not sharded."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def scattered(value: Any, known: dict[int, Scattered]) -> Any:
    """Return ``value`` with its sharded tensors as ``Scattered``. Nothing is sent.

    Parameters
    ----------
    value : dict, list, Tensor or anything else
    known : dict of int to Scattered
        Results by the ``id`` of their tensors: a tied parameter is one tensor.
    """
    if isinstance(value, DTensor):
        return known.setdefault(id(value), _scattered(value))
    if isinstance(value, Tensor):
        return value.detach()
    if isinstance(value, dict):
        return {key: scattered(each, known) for key, each in value.items()}
    return [scattered(each, known) for each in value] if isinstance(value, list) else value


def _scattered(tensor: DTensor) -> Scattered:
    rows = _rows(tensor)
    width = tensor.numel() // tensor.shape[0]
    # The first copy's ranks are the first ones.
    parts = tuple((rank, (last - first) * width) for rank, (first, last) in enumerate(rows))
    own, position = local(tensor.detach()), _position(tensor)
    first, last = rows[position[-1]]
    assert own.shape[0] == last - first, "torch divides the rows equally"
    held = tuple((rank, elements) for rank, elements in parts if elements)
    is_sent = last > first and not any(position[:-1])
    return Scattered(tensor.dtype, tuple(tensor.shape), held, own if is_sent else None)


def _rows(tensor: DTensor) -> list[tuple[int, int]]:
    """Return the first row of each rank's shard in a copy, and the one after its last."""
    *copies, placement = tensor.placements
    assert placement.is_shard(0), "fully_shard divides the first dimension"
    assert all(each.is_replicate() for each in copies)
    ranks, count = tensor.device_mesh.size(len(copies)), tensor.shape[0]
    most = -(-count // ranks)
    return [(min(rank * most, count), min((rank + 1) * most, count)) for rank in range(ranks)]


def _position(tensor: DTensor) -> list[int]:
    """Return this rank's copy, if there are several, and its place among the ranks of it."""
    found = tensor.device_mesh.get_coordinate()
    assert found is not None, "every rank is in the mesh"
    return list(found)


def shard_like(value: Any, parameter: Tensor) -> Any:
    """Return this rank's shard of a tensor of the shape of ``parameter``, such as a moment.

    Every rank reads its rows of the whole tensor, so nothing is sent. Of other tensors a copy is
    returned, and other values as they are.
    """
    if not isinstance(value, Tensor):
        return value
    if not isinstance(parameter, DTensor) or value.shape != parameter.shape:
        return value.clone()
    first, last = _rows(parameter)[_position(parameter)[-1]]
    # A strategy that keeps whole parameters may have saved it in another layout (channels_last).
    rows = value[first:last].to(parameter.device, copy=True).contiguous()
    return DTensor.from_local(
        rows,
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )


def require_whole(*tensors: object) -> None:
    """Raise if a tensor was computed from a shard, which torch would treat as the whole result."""
    if any(isinstance(tensor, DTensor) for tensor in tensors):
        raise RuntimeError("a result is a DTensor")


@contextmanager
def explained() -> Iterator[None]:
    """Turn the error of a task that reads sharded parameters into one with a remedy."""
    try:
        yield
    except RuntimeError as error:
        if "DTensor" not in str(error):
            raise
        raise BadSpecError(
            "under strategy fsdp the parameters of a block in a ModuleList, ModuleDict or "
            "Sequential are complete only inside that block's forward, and the task or the model "
            f"reads them outside of it: call the block, or use strategy zero1 or ddp ({error})",
        ) from error


def require_support(model: nn.Module) -> None:
    """Refuse models that torch cannot shard.

    Checked on a single rank as well, because the job may get more ranks later.
    """
    trained = {
        name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad
    }
    formats = {parameter.dtype for parameter in trained.values()}
    if len(formats) > 1:
        raise BadSpecError(
            "strategy fsdp needs parameters of one type, and the model has "
            f"{sorted(map(str, formats))}: convert them in model(), or set strategy: {{name: ddp}}",
        )
    for name, parameter in model.named_parameters():
        if not parameter.dim():
            raise BadSpecError(
                f"strategy fsdp cannot shard a scalar, and {name} has no dimension: give it the "
                "shape (1,) in model(), or set strategy: {name: ddp} or {name: zero1}",
            )
        if not parameter.numel():
            raise BadSpecError(
                f"strategy fsdp cannot shard a parameter without numbers, and {name} has the shape "
                f"{tuple(parameter.shape)}: leave it out in model(), or set strategy: "
                "{name: ddp} or {name: zero1}",
            )
        if not parameter.is_contiguous():
            raise BadSpecError(
                f"strategy fsdp needs contiguous parameters, and {name} of shape "
                f"{tuple(parameter.shape)} has the strides {tuple(parameter.stride())} "
                "(channels_last or a transposed view): convert it in model(), or set strategy: "
                f"{{name: ddp}} or {{name: zero1}}",
            )
