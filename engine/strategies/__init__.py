"""Registry of the strategies by the names that specs use.

Not here: the interface of a strategy (``engine.strategies.base``).
"""

from __future__ import annotations

from typing import Final

from lockstep.domain.spec import job
from lockstep.engine.strategies.base import Strategy
from lockstep.engine.strategies.compression import RoundedDDP
from lockstep.engine.strategies.ddp import DDP
from lockstep.engine.strategies.experimental.data_parallel import DataParallel
from lockstep.engine.strategies.experimental.diloco import DiLoCo
from lockstep.engine.strategies.experimental.local_sgd import LocalSGD
from lockstep.engine.strategies.experimental.powersgd import PowerSGD
from lockstep.engine.strategies.fsdp import FSDP
from lockstep.engine.strategies.manual import Manual
from lockstep.engine.strategies.zero1 import Zero1

STRATEGIES: Final[dict[str, type[Strategy]]] = {
    "ddp": DDP,
    "manual": Manual,
    "data_parallel": DataParallel,
    "zero1": Zero1,
    "fsdp": FSDP,
    "local_sgd": LocalSGD,
    "diloco": DiLoCo,
}
_COMPRESSED: Final[dict[str, type[Strategy]]] = {
    "fp16": RoundedDDP,
    "bf16": RoundedDDP,
    "powersgd": PowerSGD,
}


def strategy_for(options: job.Strategy) -> type[Strategy]:
    """Return the strategy class for a spec's section.

    A compression that keeps less of the contract than plain ``ddp`` has a class of its own.
    """
    return _COMPRESSED.get(options.compression) or STRATEGIES[options.name]
