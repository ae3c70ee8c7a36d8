"""Names and argument schemas of the built-in tasks.

The api checks arguments with them, without torch.

The engine has a class of the same name for each (``engine.task.builtin``); ``tests/engine`` checks
that the two lists agree. A user's own task is named ``path/to/file.py:ClassName``; its constructor
checks its arguments, on the node.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from lockstep.domain.errors import at_field
from lockstep.domain.spec.fields import NO_BOOL

OWN_TASK: Final = re.compile(r"^(?!/)(?!.*\.\.)[\w./-]+\.py:[A-Za-z_]\w*$")
"""``file.py:Class``, relative to the job's code folder."""


class _Args(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class CausalLMArgs(_Args):
    """A compact GPT on text files.

    By default the text is the Python standard library's own sources: real text that is on every
    machine.
    """

    path: str | None = None
    """A text file, or a folder read recursively, on the node or relative to the job's code. None:
    the standard library."""
    glob: str = "*.py"
    """Pattern of the files of a folder to read."""
    max_bytes: Annotated[int, Field(ge=1_000), NO_BOOL] = 4_000_000
    """Bytes of text used, in file-name order."""
    tokenizer: str | None = None
    """A file of the ``tokenizers`` library (``tokenizer.json``), like ``path``. None: each byte is
    a token."""
    context: Annotated[int, Field(ge=8, le=8_192), NO_BOOL] = 128
    """T, tokens in one sequence. A sample is T + 1 consecutive tokens."""
    layers: Annotated[int, Field(ge=1, le=96), NO_BOOL] = 4
    """Transformer blocks."""
    heads: Annotated[int, Field(ge=1, le=128), NO_BOOL] = 4
    """Attention heads per block."""
    width: Annotated[int, Field(ge=8, le=16_384), NO_BOOL] = 128
    """Features of the residual stream; a multiple of ``heads``."""
    dropout: Annotated[float, Field(ge=0, le=0.95), NO_BOOL] = 0.0
    """Part of the activations that is zeroed, after the embeddings and after each attention and
    MLP; not in evaluation."""

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Self:
        if self.width % self.heads:
            nearest = max(self.heads, round(self.width / self.heads) * self.heads)
            raise at_field(
                ("width",), f"expected a multiple of heads ({self.heads})", f"use {nearest}"
            )
        return self


class HfCausalLMArgs(_Args):
    """Fine-tuning of a causal language model of Hugging Face's transformers.

    Nodes need the extra ``lockstep-jobs[hf]``.
    """

    model: Annotated[str, Field(min_length=1)]
    """Folder of the model and its tokenizer, as ``save_pretrained`` writes them, on the node or in
    the job's code."""
    path: Annotated[str, Field(min_length=1)]
    """A text file, or a folder read recursively, on the node or relative to the job's code."""
    glob: str = "*.txt"
    """Pattern of the files of a folder to read."""
    max_bytes: Annotated[int, Field(ge=1_000), NO_BOOL] = 1_000_000_000
    """Bytes of text used, in file-name order."""
    context: Annotated[int, Field(ge=8, le=131_072), NO_BOOL] = 512
    """T, tokens in one sequence; at most the model's positions."""
    tensor_plan: dict[str, str | None] | None = None
    """``parallel.tensor``: lines that are added to the plan of transformers for the model, or
    correct it: a module's name and a word (docs/strategies.md); null removes a line."""
    from_scratch: bool = False
    """Start from random weights of the model's shape instead of its trained ones."""


class ImageClassificationArgs(_Args):
    """A small convolutional net with GroupNorm on scikit-learn's handwritten digits."""

    width: Annotated[int, Field(ge=4, le=1_024), NO_BOOL] = 32
    """Channels of the first convolution; the second has twice as many."""
    eval_fraction: Annotated[float, Field(gt=0, lt=1), NO_BOOL] = 0.2
    """Part of the images kept for the ``eval`` split."""


BUILT_IN: Final[dict[str, type[_Args]]] = {
    "causal_lm": CausalLMArgs,
    "hf_causal_lm": HfCausalLMArgs,
    "image_classification": ImageClassificationArgs,
}


def is_own_task(name: str) -> bool:
    """Return whether ``name`` is a user's own ``file.py:Class`` instead of a built-in task."""
    return OWN_TASK.fullmatch(name) is not None


def parse_args(task: str, args: dict[str, Any]) -> _Args:
    """Arguments of a built-in task, checked and filled with defaults.

    Raises
    ------
    KeyError
        If there is no built-in task of that name.
    pydantic.ValidationError
        If an argument is unknown or out of range.
    """
    return BUILT_IN[task].model_validate(args)
