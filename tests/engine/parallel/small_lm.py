"""A small language model whose layers can be cut, its task, and a plain loop that trains it.

The loop imports nothing of the engine: masks of dropout, weights, norm and clipping are written
here from the contract.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCABULARY, CONTEXT, WIDTH, HEADS, RATE = 12, 6, 16, 4, 0.2
ITEMS = 31
PLAN = {
    "token": "embedding_rowwise",
    "blocks.*.qkv": "packed_colwise:3",
    "blocks.*.query_norm": "replicated_with_grad_allreduce",
    "blocks.*.out": "rowwise",
    "blocks.*.up": "colwise",
    "blocks.*.down": "rowwise",
    "head": "colwise_gather_output",
}


class Block(nn.Module):
    """Takes its number of heads from its activations, and drops inside the cut MLP, too."""

    def __init__(self, drop: Callable[[float], nn.Module]):
        super().__init__()
        self.norm, self.query_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH // HEADS)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.hidden_drop, self.drop = drop(RATE), drop(RATE)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.qkv(self.norm(x)).unflatten(-1, (3, -1, WIDTH // HEADS))
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        scores = self.query_norm(query) @ key.transpose(-1, -2) / math.sqrt(WIDTH // HEADS)
        future = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
        mixed = scores.masked_fill(future, -math.inf).softmax(-1) @ value
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.drop(self.down(self.hidden_drop(torch.tanh(self.up(x)))))


class SmallLM(nn.Module):
    def __init__(self, drop: Callable[[float], nn.Module], *, blocks: int = 2, tied: bool = True):
        super().__init__()
        self.token, self.position = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block(drop) for _ in range(blocks))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        if tied:
            self.head.weight = self.token.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def initial(drop: Callable[[float], nn.Module]) -> SmallLM:
    torch.manual_seed(7)
    return SmallLM(drop).double()


def deep(drop: Callable[[float], nn.Module], *, blocks: int = 3, tied: bool = True) -> SmallLM:
    torch.manual_seed(7)
    return SmallLM(drop, blocks=blocks, tied=tied).double()


def item(index: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return (id, tokens, targets): between none and all of the targets count."""
    generator = torch.Generator().manual_seed(500 + index)
    text = torch.randint(VOCABULARY, (CONTEXT + 1,), generator=generator)
    targets = text[1:].clone()
    targets[index % (CONTEXT + 1) :] = -100
    return torch.tensor(index), text[:-1], targets


def loss_of(model: nn.Module, tokens: Tensor, targets: Tensor) -> Tensor:
    found = model(tokens)
    logits = getattr(found, "logits", found)  # Models of transformers return an object.
    return F.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=-100, reduction="sum"
    )


class Masked(nn.Module):
    """Dropout by the documented formula, with numpy's integers."""

    def __init__(self, rate: float):
        super().__init__()
        self.dropped = round(rate * 65536)
        self.key = 0

    def forward(self, x: Tensor) -> Tensor:
        count, size = x.shape[0], x[0].numel()
        with np.errstate(over="ignore"):
            rows = np.uint64(self.key) + np.arange(count, dtype=np.uint64) * ROW
            words = np.arange(-(-size // 4), dtype=np.uint64) * COLUMN
            mixed = (rows[:, None] + words).view(np.int64)
            mixed = (mixed ^ (mixed >> 32)) * np.uint64(0xBF58476D1CE4E5B9).view(np.int64)
            mixed = (mixed ^ (mixed >> 29)) * np.uint64(0x94D049BB133111EB).view(np.int64)
        keep = mixed.view(np.int16)[:, :size] >= self.dropped - 32768
        return x * torch.from_numpy(keep.reshape(x.shape)) * (65536 / (65536 - self.dropped))


ROW, COLUMN = np.uint64(0xD1342543DE82EF95), np.uint64(0x9E3779B97F4A7C15)


def digest(content: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


@dataclass
class Expected:
    weights: dict[str, Tensor] = field(default_factory=dict)
    norms: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)


def reference(
    settings: dict[str, Any],
    seed: int,
    batches: list[list[int]],
    build: Callable[[], nn.Module] = lambda: initial(Masked),
) -> Expected:
    """Train one whole model on these batches, each in one forward."""
    torch.set_num_threads(1)
    model, expected = build(), Expected()
    decayed = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    options = settings["optimizer"]
    optimizer = torch.optim.AdamW(
        [{"params": decayed}, {"params": others, "weight_decay": 0.0}],
        lr=options["lr"],
        betas=tuple(options["betas"]),
        weight_decay=options["weight_decay"],
    )
    for step, ids in enumerate(batches):
        for name, module in model.named_modules():
            if isinstance(module, Masked):
                key = digest(struct.pack("<3q", 6, seed, step)) >> 1
                module.key = (key + digest(name.encode())) % 2**64
        _, tokens, targets = (torch.stack(parts) for parts in zip(*map(item, ids), strict=True))
        loss = loss_of(model, tokens, targets) / (targets != -100).sum()
        optimizer.zero_grad()
        loss.backward()
        norm = math.sqrt(sum(float((p.grad**2).sum()) for p in model.parameters()))
        for parameter in model.parameters():
            parameter.grad *= min(1.0, settings["clip_grad_norm"] / (norm + 1e-6))
        optimizer.step()
        expected.norms.append(norm)
        expected.losses.append(loss.item())
    expected.weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    return expected
