"""The strategies, by the names that specs use.

Not here: what a strategy must do (``engine.strategies.base``).
"""

from __future__ import annotations

from typing import Final

from domain import spec
from engine.strategies.base import Strategy
from engine.strategies.compression import RoundedDDP
from engine.strategies.data_parallel import DataParallel
from engine.strategies.ddp import DDP
from engine.strategies.diloco import DiLoCo
from engine.strategies.fsdp import FSDP
from engine.strategies.local_sgd import LocalSGD
from engine.strategies.manual import Manual
from engine.strategies.powersgd import PowerSGD
from engine.strategies.zero1 import Zero1

STRATEGIES: Final[dict[str, type[Strategy]]] = {
    "ddp": DDP,
    "manual": Manual,
    "data_parallel": DataParallel,
    "zero1": Zero1,
    "fsdp": FSDP,
    "local_sgd": LocalSGD,
    "diloco": DiLoCo,
}
_COMPRESSED: Final[dict[str, type[Strategy]]] = {"fp16": RoundedDDP, "bf16": RoundedDDP, "powersgd": PowerSGD}


def strategy_for(options: spec.Strategy) -> type[Strategy]:
    """The class that a spec's section asks for. What keeps less of the contract than plain ``ddp`` is a class of its own."""
    return _COMPRESSED.get(options.compression) or STRATEGIES[options.name]
