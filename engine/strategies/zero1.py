"""``zero1``: ``ddp`` with the optimizer's state shared out over the ranks (ZeRO stage 1, arXiv 1910.02054).

Every rank has the whole model and the whole reduced gradient, and moves only its own part of the parameters; then each
rank broadcasts its part. So a rank keeps 1/W of the moments, for one more broadcast of the parameters in each step. The
parts are whole parameters: one that is larger than a W-th of the model makes them unequal.

The state that is saved is the one that a plain optimizer would have, gathered on rank 0: it resumes on any number of
ranks, and under ``ddp``, too.

Not here: the gradient, which is ``ddp``'s (``engine.strategies.ddp``).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, ClassVar, cast

import torch
from torch import nn

from lockstep.domain.life.outcomes import Reason
from lockstep.engine.model import layout
from lockstep.engine.runtime.errors import EngineError
from lockstep.engine.strategies.base import Groups, State
from lockstep.engine.strategies.ddp import DDP


class Zero1(DDP):
    """torch's ZeroRedundancyOptimizer over DDP."""

    saves_together: ClassVar[bool] = True

    def optimizer(self, build: Callable[[Groups], torch.optim.Optimizer], groups: Groups) -> torch.optim.Optimizer:
        _require_one_format(self.model)
        if self.ranks.world_size == 1:
            return build(groups)
        with warnings.catch_warnings():
            # It compiles TorchScript versions of optimizers that are not used here: deprecated in torch 2.13, and more
            # than a second, so it is imported by the runs that need it.
            warnings.simplefilter("ignore", DeprecationWarning)
            from torch.distributed.optim import ZeroRedundancyOptimizer
        return ZeroRedundancyOptimizer(
            groups,
            optimizer_class=cast(type[torch.optim.Optimizer], build),  # It is only called.
            process_group=self.ranks.device_group,
            # One message per rank: parameters become views of one tensor per rank, instead of a broadcast for each.
            # Such a view is contiguous whatever the parameter was, and its gradient and moments would keep the old strides.
            parameters_as_bucket_view=all(parameter.is_contiguous() for parameter in self._trained),
        )

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> State:
        if self.ranks.world_size == 1:
            return super().optimizer_state(optimizer)
        sharded: Any = optimizer
        sharded.consolidate_state_dict(to=0)
        if not self.ranks.first:
            return {}
        state: State = sharded.state_dict()
        # Or rank 0 would keep the whole state until the next checkpoint: what this strategy is there to avoid.
        sharded._all_state_dicts = []
        return state

    def load_optimizer(self, optimizer: torch.optim.Optimizer, state: State) -> None:
        if self.ranks.world_size == 1:
            super().load_optimizer(optimizer, state)
            return
        optimizer.load_state_dict(state)
        optimizer.state.clear()  # The rank's own part is in the optimizer inside; this is a second copy.
        inside: torch.optim.Optimizer = cast(Any, optimizer).optim
        layout.align_state(inside)
        for group in inside.param_groups:
            for parameter in group["params"] if group["fused"] else ():
                # torch 2.13 puts every counter on the CPU, where the fused kernel does not read it (pytorch issue 124133).
                if "step" in (kept := inside.state[parameter]):
                    kept["step"] = kept["step"].to(parameter.device)


def _require_one_format(model: nn.Module) -> None:
    formats = sorted({str(parameter.dtype).removeprefix("torch.") for parameter in model.parameters()})
    if len(formats) > 1:
        raise EngineError(
            Reason.BAD_SPEC,
            f"strategy zero1 needs parameters of one number format, and the model has {' and '.join(formats)}: convert "
            "them in model(), or write strategy: {name: ddp}",
        )
