"""Engines of the kit, by their names on the command line.

Other engines are named ``package.module:Class``, a subclass of
``benchmarks.conformance.engines.base.Engine``.
"""

from __future__ import annotations

import importlib
from typing import Final

from benchmarks.conformance.engines.accelerate import Accelerate, AccelerateTokens
from benchmarks.conformance.engines.base import Engine
from benchmarks.conformance.engines.fabric import Fabric
from benchmarks.conformance.engines.lockstep import Lockstep
from benchmarks.conformance.engines.raw import Raw, RawSum

ENGINES: Final[dict[str, type[Engine]]] = {
    engine.name: engine for engine in (Raw, RawSum, Accelerate, AccelerateTokens, Fabric, Lockstep)
}


def engine_named(name: str) -> Engine:
    """Return the engine with a name of ``ENGINES`` or of the form ``package.module:Class``.

    Raises
    ------
    ValueError
        No engine has this name.
    """
    if name in ENGINES:
        return ENGINES[name]()
    module, colon, class_name = name.partition(":")
    if not colon:
        raise ValueError(
            f"no engine is named {name!r}: expected {', '.join(ENGINES)}, or package.module:Class"
        )
    found = getattr(importlib.import_module(module), class_name, None)
    if not (isinstance(found, type) and issubclass(found, Engine)):
        raise ValueError(f"{name} is no subclass of benchmarks.conformance.engines.base.Engine")
    return found()
