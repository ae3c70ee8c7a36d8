"""``zero1``: ``ddp`` with the optimizer state sharded over the ranks.

This is ZeRO stage 1 (arXiv 1910.02054). Every rank holds the whole model and the whole reduced
gradient, and updates only its own part of the parameters. Then each rank broadcasts its part. With
W ranks, a rank keeps 1/W of the moments, at the cost of one more broadcast of the parameters per
step. Parts consist of whole parameters, so they are unequal where one parameter is larger than 1/W
of the model.

The saved state is that of a plain optimizer: rank 0 writes it as the ranks send their parts. It
resumes on any number of ranks, and also under ``ddp``.

Not here: the gradient reduction (``engine.strategies.ddp``).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, ClassVar, cast

import torch
from torch import nn

from lockstep.engine.model import layout
from lockstep.engine.runtime.errors import BadSpecError
from lockstep.engine.strategies.base import Groups, State
from lockstep.engine.strategies.ddp import DDP


class Zero1(DDP):
    """torch's ZeroRedundancyOptimizer over DDP."""

    saves_together: ClassVar[bool] = True

    def optimizer(
        self, build: Callable[[Groups], torch.optim.Optimizer], groups: Groups
    ) -> torch.optim.Optimizer:
        _require_support(self.model, groups)
        if self.ranks.world_size == 1:
            return build(groups)
        with warnings.catch_warnings():
            # The import compiles TorchScript versions of optimizers that are not used here. That
            # is deprecated in torch 2.13 and takes more than a second, so the import is local.
            warnings.simplefilter("ignore", DeprecationWarning)
            from torch.distributed.optim import ZeroRedundancyOptimizer
        return ZeroRedundancyOptimizer(
            groups,
            optimizer_class=cast(
                type[torch.optim.Optimizer], build
            ),  # Only called, so a function will do.
            process_group=self.ranks.device_group,
            # Parameters become views of one tensor per rank, which is broadcast in one message
            # instead of one per parameter. A view is always contiguous, while the gradient and the
            # moments of a parameter that was not would keep the old strides.
            parameters_as_bucket_view=all(parameter.is_contiguous() for parameter in self._trained),
        )

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> State:
        if self.ranks.world_size == 1:
            return super().optimizer_state(optimizer)
        # Its own method gathers the whole state on rank 0, as pickles.
        groups = torch.optim.Optimizer.state_dict(optimizer)["param_groups"]
        inside: torch.optim.Optimizer = cast(Any, optimizer).optim
        indices = {
            parameter: index for index, parameter in enumerate(layout.parameters_of(optimizer))
        }
        own = {indices[parameter]: values for parameter, values in inside.state.items()}
        state = {
            index: values for part in self.ranks.of_each(own) for index, values in part.items()
        }
        return {"state": state, "param_groups": groups}

    def load_optimizer(self, optimizer: torch.optim.Optimizer, state: State) -> None:
        if self.ranks.world_size == 1:
            super().load_optimizer(optimizer, state)
            return
        inside: torch.optim.Optimizer = cast(Any, optimizer).optim
        optimizer.load_state_dict(layout.own_copy(state, optimizer, held_by=inside))
        optimizer.state.clear()  # The wrapped optimizer holds the rank's part; this is a copy.
        layout.align_state(inside)
        for group in inside.param_groups:
            for parameter in group["params"] if group.get("fused") else ():
                # torch 2.13 moves every counter to the CPU, where the fused kernel does not read it
                # (pytorch issue 124133).
                if "step" in (kept := inside.state[parameter]):
                    kept["step"] = kept["step"].to(parameter.device)


def _require_support(model: nn.Module, groups: Groups) -> None:
    """Refuse parameters of the groups that cannot be sent.

    Checked on a single rank as well, because the job may get more ranks later.
    """
    sent = {parameter for group in groups for parameter in group["params"]}
    for name, parameter in model.named_parameters():
        if parameter in sent and not layout.is_dense(parameter):
            raise BadSpecError(
                f"strategy zero1 needs parameters without gaps in memory, and {name} of shape "
                f"{tuple(parameter.shape)} has the strides {tuple(parameter.stride())}: clone it "
                "in model(), or set strategy: {name: ddp}",
            )
    formats = sorted({str(parameter.dtype).removeprefix("torch.") for parameter in sent})
    if len(formats) > 1:
        raise BadSpecError(
            "strategy zero1 needs parameters of one number format, and the model has "
            f"{' and '.join(formats)}: convert them in model(), or set strategy: {{name: ddp}}",
        )
