"""Manifest of a checkpoint: its files and their digests.

It is written last and read first: a folder without one is no checkpoint. The engine writes and
checks it, the api serves files by it, and the client verifies downloads with it.

Not here: reading files and hashing them (``engine.checkpoints.checkpoint``,
``client.files.checkpoints``).
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, Field, StringConstraints, ValidationError

FORMAT: Final = 1
STATE: Final = "state.json"
"""State of a training, without its tensors."""
TENSORS: Final = "state.safetensors"
"""Tensors of the state."""
FORMER_STATE: Final = "state.pt"
"""Both in one file, in checkpoints of the versions before."""

FILE_NAME: Final = r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}$"
FileName = Annotated[str, StringConstraints(pattern=FILE_NAME)]
"""No path: the client writes files of these names when it downloads a checkpoint."""
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class _Part(BaseModel, frozen=True):
    """A part of the manifest."""


class ManifestFile(_Part):
    """One file as it was written."""

    bytes: Annotated[int, Field(ge=0)]
    sha256: Sha256


class ManifestMetric(_Part):
    """Metric of the checkpoint, if ``keep_best`` requests it."""

    name: str
    value: float | Literal["NaN", "Infinity", "-Infinity"] | None
    """None where its step did not measure it."""


class Manifest(_Part):
    """All of it."""

    format: Literal[1] = FORMAT
    step: Annotated[int, Field(ge=0)]
    files: Annotated[dict[FileName, ManifestFile], Field(min_length=1)]
    metric: ManifestMetric | None = None


class ManifestError(ValueError):
    """It cannot be read as a manifest. The message gives the reason."""


def read_manifest(text: bytes) -> Manifest:
    """A manifest from its file's bytes.

    Raises
    ------
    ManifestError
    """
    try:
        return Manifest.model_validate_json(text)
    except ValidationError as error:
        line = error.errors()[0]
        where = "/".join(map(str, line["loc"]))
        if where == "format":
            raise ManifestError(f"has format {line['input']!r}; expected {FORMAT}") from None
        raise ManifestError(
            f"cannot be read ({where + ': ' if where else ''}{line['msg']})"
        ) from None
