"""TensorBoard's own writer, on which PyTorch's ``SummaryWriter`` is based, and its reader.

For tests that need the real library.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest


def tensorboard() -> Any:
    """Return the real library's parts.

    Its imports warn, which must not fail our tests.
    """
    pytest.importorskip("tensorboard", reason="NOT RUN: tensorboard is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

    return SimpleNamespace(
        Loader=LegacyEventFileLoader,
        Event=Event,
        Summary=Summary,
        Tensor=TensorProto,
        Writer=EventFileWriter,
    )


def value(tag: str, number: float, kind: str = "simple") -> Any:
    """Return one scalar as PyTorch writes it.

    ``simple``, or in its new style as a tensor of ``float`` or ``double``.
    """
    real = tensorboard()
    if kind == "simple":
        return real.Summary.Value(tag=tag, simple_value=number)
    tensor = (
        real.Tensor(dtype=1, float_val=[number])
        if kind == "float"
        else real.Tensor(dtype=2, double_val=[number])
    )
    made = real.Summary.Value(tag=tag, tensor=tensor)
    made.metadata.plugin_data.plugin_name = "scalars"
    return made


def write(folder: Path, values: list[tuple[int, float, Any]]) -> Path:
    """Write steps, times and values with the real writer; return the file."""
    real = tensorboard()
    before = set(folder.glob("*tfevents*"))
    writer = real.Writer(str(folder))
    for step, time, each in values:
        writer.add_event(real.Event(step=step, wall_time=time, summary=real.Summary(value=[each])))
    writer.close()
    (path,) = set(folder.glob("*tfevents*")) - before
    return path
