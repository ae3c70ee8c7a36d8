"""``causal_lm``: a compact GPT that learns to predict the next token of text.

By default a token is a byte, so there is no tokenizer and the vocabulary is 256, and the text is
the Python standard library's own sources: real text that is on every machine, in an order that does
not depend on the file system.

Not here: how text becomes tokens (``engine.task.text``), the arguments and their limits
(``domain.spec.tasks.CausalLMArgs``).
"""

from __future__ import annotations

import math
import os
import sysconfig
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lockstep.domain.spec.tasks import CausalLMArgs, HfCausalLMArgs
from lockstep.engine.task import text
from lockstep.engine.task.dropout import Dropout
from lockstep.engine.task.interface import Task
from lockstep.engine.task.text import BYTES, IGNORED, Sequences, Windows


class Block(nn.Module):
    """One pre-norm transformer block.

    No biases: a key's bias has no gradient, and the others are not missed.
    """

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
        qkv = self.qkv(self.attention_norm(x_BTC)).view(B, T, 3, -1, C // self.heads)
        query_BHTD, key_BHTD, value_BHTD = qkv.permute(2, 0, 3, 1, 4)
        mixed_BHTD = F.scaled_dot_product_attention(
            query_BHTD, key_BHTD, value_BHTD, is_causal=True
        )
        mixed_BTC = self.attention_out(mixed_BHTD.transpose(1, 2).flatten(2))
        x_BTC = x_BTC + self.attention_dropout(mixed_BTC)
        hidden = F.gelu(self.mlp_in(self.mlp_norm(x_BTC)))
        return x_BTC + torch.as_tensor(self.mlp_dropout(self.mlp_out(hidden)))


class TokenHead(nn.Module):
    """Logits by the weight of an embedding, of which it has no other name."""

    def __init__(self, token: nn.Embedding):
        super().__init__()
        self._token = (token,)

    @property
    def weight(self) -> Tensor:
        return self._token[0].weight

    def forward(self, x_BTC: Tensor) -> Tensor:
        return F.linear(x_BTC, self.weight)


class GPT(nn.Module):
    """GPT-2's shape (Radford et al. 2019) with tied embeddings and without biases."""

    def __init__(
        self,
        *,
        context: int,
        layers: int,
        heads: int,
        width: int,
        dropout: float = 0.0,
        vocabulary: int = BYTES,
    ):
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(context, width)
        self.dropout = Dropout(dropout)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width, bias=False)
        self.head = TokenHead(self.token)
        for name, parameter in self.named_parameters():
            if parameter.ndim < 2:
                continue
            # Each block adds twice to the residual stream; the scaled outputs keep its variance
            # independent of depth.
            output = name.endswith(("attention_out.weight", "mlp_out.weight"))
            nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * layers) if output else 0.02)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Logits of shape (B, T, vocabulary)."""
        positions_T = torch.arange(tokens_BT.shape[1], device=tokens_BT.device)
        x_BTC = self.dropout(self.token(tokens_BT) + self.position(positions_T))
        for block in self.blocks:
            x_BTC = block(x_BTC)
        logits_BTV: Tensor = self.head(self.norm(x_BTC))
        return logits_BTV


class TextTask(Task):
    """Next-token prediction over windows of text; the loss is in nats per token."""

    unit: ClassVar[str] = "tokens"

    args: CausalLMArgs | HfCausalLMArgs

    def blank_sample(self) -> Sequences:
        """A sample of the dataset's shape, without reading any text."""
        blank_T = torch.zeros(self.args.context, dtype=torch.long)
        return blank_T, blank_T

    def weight(self, batch: Sequences) -> float:
        return float((batch[1] != IGNORED).sum())

    def loss(self, model: nn.Module, batch: Sequences) -> Tensor:
        tokens_BT, targets_BT = batch
        logits_BTV = self.logits(model, tokens_BT)
        return F.cross_entropy(
            logits_BTV.flatten(0, 1), targets_BT.flatten(), ignore_index=IGNORED, reduction="sum"
        )

    def logits(self, model: nn.Module, tokens_BT: Tensor) -> Tensor:
        """Shape (B, T, vocabulary)."""
        logits_BTV: Tensor = model(tokens_BT)
        return logits_BTV

    def finalize(self, totals: dict[str, float]) -> dict[str, float]:
        return {**totals, "perplexity": math.exp(min(totals["loss"], 700.0))}


class CausalLM(TextTask):
    """The compact GPT on text of one's own, or on the standard library's."""

    args: CausalLMArgs

    def __init__(self, **arguments: object):
        self.args = CausalLMArgs.model_validate(arguments)

    def prepare(self) -> None:
        if self.args.tokenizer is not None:
            _ = self._tokens  # Encoded by the node's first rank, and only mapped by the others.

    def model(self) -> nn.Module:
        return GPT(
            context=self.args.context,
            layers=self.args.layers,
            heads=self.args.heads,
            width=self.args.width,
            dropout=self.args.dropout,
            vocabulary=BYTES if self.args.tokenizer is None else self._tokenizer.get_vocab_size(),
        )

    def tensor_plan(self, model: nn.Module) -> dict[str, str]:  # noqa: ARG002 - of the interface
        return {
            "token": "embedding_rowwise",
            "blocks.*.qkv": "packed_colwise:3",
            "blocks.*.attention_out": "rowwise",
            "blocks.*.mlp_in": "colwise",
            "blocks.*.mlp_out": "rowwise",
            "head": "colwise_gather_output",
        }

    def dataset(self, split: str) -> Windows:
        return Windows(self._tokens, self.args.context, split=split)

    def finalize(self, totals: dict[str, float]) -> dict[str, float]:
        if self.args.tokenizer is not None:
            return super().finalize(totals)
        return {**totals, "bits_per_byte": totals["loss"] / math.log(2)}

    @cached_property
    def _tokenizer(self) -> Any:
        assert self.args.tokenizer is not None, "bytes need no tokenizer"
        return text.load_tokenizer(Path(self.args.tokenizer))

    @cached_property
    def _tokens(self) -> Tensor:
        args = self.args
        path = Path(args.path) if args.path else Path(sysconfig.get_path("stdlib"))
        if args.tokenizer is None:
            return text.byte_tokens(path, args.glob, args.max_bytes)
        return text.encoded_tokens(
            path,
            args.glob,
            args.max_bytes,
            encode=text.encoder(self._tokenizer),
            vocabulary=self._tokenizer.get_vocab_size(),
            identity=self._tokenizer.to_str().encode(),
            cache=token_cache(),
        )


def token_cache() -> Path:
    """Return the folder for encoded text on a node: the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "lockstep" / "tokens"
