"""The strategies, by the names that specs use.

Not here: what a strategy must do (``engine.strategies.base``).
"""

from __future__ import annotations

from typing import Final

from engine.strategies.base import Strategy
from engine.strategies.ddp import DDP

STRATEGIES: Final[dict[str, type[Strategy]]] = {"ddp": DDP}
