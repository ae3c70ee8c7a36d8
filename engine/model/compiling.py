"""``compile: true``: torch.compile of the person's model, inside of whatever a strategy wraps around it.

* The model alone is compiled, not DDP's wrapper: entering and leaving ``no_sync`` recompiles nothing (contract C44),
  while dynamo, which looks for a wrapper around it, still cuts the graph where DDP's buckets end, so that buckets are
  reduced while earlier layers are differentiated.
* The state dict, evaluation and passes that leave no trace use the model as it was. So the warm-up's single sample
  costs no compilation, and a batch that divides evenly is compiled for its one size. The first slot of another size
  compiles once more, for any size; a slot of one sample, which torch treats apart, may once again.

Not here: what a compiled model must not do (graph breaks only cost time).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from lockstep.domain.life.outcomes import Reason
from lockstep.engine.runtime.errors import EngineError, reason_of

BACKEND = "inductor"
"""What compiles. Tests use one that needs no compiler of C++."""


def compiled(model: nn.Module) -> nn.Module:
    """``model`` as it is called in training: compiled at its first call. It shares everything with ``model``."""
    module: nn.Module = torch.compile(model, backend=BACKEND)  # type: ignore[assignment] # a module gives a module
    return module


@contextmanager
def explained() -> Iterator[None]:
    """Say what to change where the model cannot be compiled."""
    try:
        yield
    except Exception as error:
        if reason_of(error) is Reason.OUT_OF_MEMORY or not _is_compilers(error):
            raise
        # The first line may say no more than which backend it was.
        said = " ".join([line.strip() for line in str(error).splitlines() if line.strip()][:2]) or type(error).__name__
        raise EngineError(
            Reason.BAD_SPEC,
            f"compile: true, but the model could not be compiled: {said} (needed on the node: a C++ compiler, "
            f"c++ or the one that CXX names, now {os.environ.get('CXX') or 'unset'}, and on GPUs Triton and a C "
            "compiler); install it, change what the message names, or write compile: false",
        ) from error


def _is_compilers(error: Exception) -> bool:
    """Whether the compiler raised this, and not the model that it ran."""
    # Imported by now if it did; at the top, they would cost every run a second.
    from torch._dynamo.exc import TorchDynamoException
    from torch._inductor.exc import InductorError

    return isinstance(error, TorchDynamoException | InductorError)
