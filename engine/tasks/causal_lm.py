"""``causal_lm``: a compact GPT that learns to predict the next byte of text.

A token is a byte, so there is no tokenizer and the vocabulary is 256. By default the text is the Python standard
library's own sources: real text that is on every machine, in an order that does not depend on the file system.

Not here: the arguments and their limits (``domain.tasks.CausalLMArgs``).
"""

from __future__ import annotations

import math
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

from domain.tasks import CausalLMArgs
from engine.dropout import Dropout
from engine.task import Task

VOCABULARY: Final = 256
IGNORED: Final = -100
"""Target of a position that is not counted: the padding of the text's last window."""
EVAL_EVERY: Final = 20
"""One window in so many belongs to the eval split. Spread over the text, because its first files differ from its last."""
_NOT_TEXT: Final = frozenset({"site-packages", "dist-packages", "__pycache__"})

Sequences = tuple[Tensor, Tensor]
"""Tokens (B, T) and the tokens that follow them (B, T)."""


def text_files(path: Path, pattern: str) -> Iterator[Path]:
    """The files under ``path`` that match, in the order of their relative names; ``path`` itself if it is a file.

    Installed packages are left out: which of them a machine has is no property of the text.
    """
    if path.is_file():
        yield path
        return
    found = (file for file in path.rglob(pattern) if file.is_file())
    inside = ((file.relative_to(path), file) for file in found)
    yield from (
        file
        for _, file in sorted(
            (relative.as_posix(), file) for relative, file in inside if not _NOT_TEXT & {*relative.parts}
        )
    )


def read_text(path: Path, pattern: str, max_bytes: int) -> bytes:
    """The first ``max_bytes`` bytes of the files, one after the other."""
    if not path.exists():
        raise FileNotFoundError(f"causal_lm: there is no text at {path}; task_args.path names a file or a folder")
    text = bytearray()
    for file in text_files(path, pattern):
        text += file.read_bytes()
        if len(text) >= max_bytes:
            break
    if len(text) < 2:
        raise ValueError(f"causal_lm: the files {pattern} under {path} hold {len(text)} bytes; at least 2 are needed")
    return bytes(text[:max_bytes])


class Windows(Dataset[Sequences]):
    """Consecutive windows of T + 1 bytes, of which the first T are read and the last T predicted.

    The last window may be short: it is padded with targets that are not counted, so that no byte is left out.
    """

    def __init__(self, tokens: Tensor, context: int, *, split: str):
        windows = max(1, math.ceil((len(tokens) - 1) / context))
        held_out = torch.arange(windows) % EVAL_EVERY == EVAL_EVERY - 1
        if windows < EVAL_EVERY:
            held_out[-1] = windows > 1
        self._windows = torch.nonzero(held_out if split == "eval" else ~held_out).flatten()
        self._tokens, self._context = tokens, context

    def __len__(self) -> int:
        return len(self._windows)

    def __getitem__(self, item: int) -> Sequences:
        start = int(self._windows[item]) * self._context
        window_T = self._tokens[start : start + self._context + 1].long()
        missing = self._context + 1 - len(window_T)
        return F.pad(window_T[:-1], (0, missing)), F.pad(window_T[1:], (0, missing), value=IGNORED)


class Block(nn.Module):
    """One pre-norm transformer block. No biases: a key's bias has no gradient, and the others are not missed."""

    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width, bias=False)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.attention_out = nn.Linear(width, width, bias=False)
        self.mlp_norm = nn.LayerNorm(width, bias=False)
        self.mlp_in = nn.Linear(width, 4 * width, bias=False)
        self.mlp_out = nn.Linear(4 * width, width, bias=False)
        self.attention_dropout = Dropout(dropout)
        self.mlp_dropout = Dropout(dropout)

    def forward(self, x_BTC: Tensor) -> Tensor:
        B, T, C = x_BTC.shape
        qkv = self.qkv(self.attention_norm(x_BTC)).view(B, T, 3, self.heads, C // self.heads)
        query_BHTD, key_BHTD, value_BHTD = qkv.permute(2, 0, 3, 1, 4)
        mixed_BHTD = F.scaled_dot_product_attention(query_BHTD, key_BHTD, value_BHTD, is_causal=True)
        mixed_BTC = self.attention_out(mixed_BHTD.transpose(1, 2).reshape(B, T, C))
        x_BTC = x_BTC + self.attention_dropout(mixed_BTC)
        hidden = F.gelu(self.mlp_in(self.mlp_norm(x_BTC)))
        return x_BTC + torch.as_tensor(self.mlp_dropout(self.mlp_out(hidden)))


class GPT(nn.Module):
    """GPT-2's shape (Radford et al. 2019) with tied embeddings and without biases."""

    def __init__(self, *, context: int, layers: int, heads: int, width: int, dropout: float = 0.0):
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, width)
        self.position = nn.Embedding(context, width)
        self.dropout = Dropout(dropout)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.ndim < 2:
                continue
            # Each block adds twice to the residual stream; the scaled outputs keep its variance independent of depth.
            output = name.endswith(("attention_out.weight", "mlp_out.weight"))
            nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * layers) if output else 0.02)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Logits of shape (B, T, 256)."""
        positions_T = torch.arange(tokens_BT.shape[1], device=tokens_BT.device)
        x_BTC = self.dropout(self.token(tokens_BT) + self.position(positions_T))
        for block in self.blocks:
            x_BTC = block(x_BTC)
        return F.linear(self.norm(x_BTC), self.token.weight)


class CausalLM(Task):
    """Next-byte prediction; the loss is in nats per token."""

    unit: ClassVar[str] = "tokens"

    def __init__(self, **arguments: object):
        self.args = CausalLMArgs.model_validate(arguments)
        self._tokens: Tensor | None = None

    def model(self) -> nn.Module:
        return GPT(
            context=self.args.context,
            layers=self.args.layers,
            heads=self.args.heads,
            width=self.args.width,
            dropout=self.args.dropout,
        )

    def dataset(self, split: str) -> Windows:
        if self._tokens is None:
            path = Path(self.args.path) if self.args.path else Path(sysconfig.get_path("stdlib"))
            text = read_text(path, self.args.glob, self.args.max_bytes)
            self._tokens = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        return Windows(self._tokens, self.args.context, split=split)

    def weight(self, batch: Sequences) -> float:
        return float((batch[1] != IGNORED).sum())

    def loss(self, model: nn.Module, batch: Sequences) -> Tensor:
        tokens_BT, targets_BT = batch
        logits_BTV = model(tokens_BT)
        return F.cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten(), ignore_index=IGNORED, reduction="sum")

    def finalize(self, totals: dict[str, float]) -> dict[str, float]:
        return {**totals, "bits_per_byte": totals["loss"] / math.log(2)}
