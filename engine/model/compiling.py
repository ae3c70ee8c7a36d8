"""``compile: true``: torch.compile of the user's model, inside the wrapper of a strategy.

* Only the model is compiled, not DDP's wrapper. Entering and leaving ``no_sync`` recompiles nothing
  (contract C44), and dynamo, which searches for a wrapper, still splits the graph at the ends of
  DDP's buckets, so buckets are reduced during backward of earlier layers.
* The state dict, evaluation and masked passes use the uncompiled model. The warm-up's single sample
  therefore costs no compilation, and a batch that divides evenly is compiled for its one size. The
  first micro-batch of another size compiles once more, for any size; a micro-batch of one sample, a
  special case of torch, may compile once again.

Graph breaks are permitted, because they cost only time.

Not here: the specs that may not set it (``domain.spec.train``, ``domain.spec.parallel``), and the
choice of the model for each pass (``engine.model.objective``).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from lockstep.domain.life.outcomes import Reason
from lockstep.engine.runtime.errors import BadSpecError, reason_of

BACKEND = "inductor"
"""Compiler backend. Tests use one that needs no C++ compiler."""


def compiled(model: nn.Module) -> nn.Module:
    """Return the form of ``model`` that training calls. Its first call compiles it.

    It shares all parameters, buffers and submodules with ``model``.
    """
    module: nn.Module = torch.compile(model, backend=BACKEND)  # type: ignore[assignment] # a module gives a module
    return module


@contextmanager
def explained() -> Iterator[None]:
    """Raise an error with advice if the model cannot be compiled."""
    try:
        yield
    except Exception as error:
        if reason_of(error) is Reason.OUT_OF_MEMORY or not _is_compilers(error):
            raise
        # The first line may only name the backend.
        reason = (
            " ".join([line.strip() for line in str(error).splitlines() if line.strip()][:2])
            or type(error).__name__
        )
        raise BadSpecError(
            f"compile: true, but the model could not be compiled: {reason} (needed on the node: a "
            "C++ compiler, c++ or the one that CXX names, now "
            f"{os.environ.get('CXX') or 'unset'}, and on GPUs Triton and a C compiler); install "
            "it, fix the cause named in the message, or set compile: false",
        ) from error


def _is_compilers(error: Exception) -> bool:
    """Return whether the compiler raised this error, not the compiled model."""
    # These imports cost a second. The compiler has already done them if it raised the error.
    from torch._dynamo.exc import TorchDynamoException
    from torch._inductor.exc import InductorError

    return isinstance(error, TorchDynamoException | InductorError)
