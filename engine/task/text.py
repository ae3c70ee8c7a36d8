"""Text as tokens: files, tokenizers, memory-mapped tokens, and training windows.

Bytes are tokens themselves: one file is mapped directly, and the files of a folder are read in
sequence. With a tokenizer the text is encoded once per node into a file of numbers that every rank
maps, so no rank holds the text in memory. The file's name is a digest of text and tokenizer, so a
change of either encodes again.

Not here: the tasks that train on windows (``engine.task.causal_lm``, ``engine.task.hf_causal_lm``).
"""

from __future__ import annotations

import fcntl
import hashlib
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import Dataset

from lockstep.domain.packages import with_extra
from lockstep.engine.runtime.errors import BadSpecError

BYTES: Final = 256
"""Different tokens where each byte is one."""
IGNORED: Final = -100
"""Target of a position that is not counted: the padding of the text's last window."""
EVAL_EVERY: Final = 20
"""One window in so many belongs to the eval split. Spread over the text, because its first files
differ from its last."""
_NOT_TEXT: Final = frozenset({"site-packages", "dist-packages", "__pycache__"})
_BLOCK_BYTES: Final = 1 << 20
"""Bytes of text encoded at a time, up to the next end of a line; tokens do not cross blocks."""

Sequences = tuple[Tensor, Tensor]
"""Tokens (B, T) and the tokens that follow them (B, T)."""
Encode = Callable[[str], list[int]]


def text_files(path: Path, pattern: str) -> Iterator[Path]:
    """The files under ``path`` that match, in the order of their relative names.

    ``path`` itself if it is a file.

    Installed packages are left out: which of them a machine has is no property of the text.
    """
    if path.is_file():
        yield path
        return
    found = {
        file.relative_to(path).as_posix(): file
        for folder in _folders(path)
        for file in folder.glob(pattern)
        if file.is_file() and _NOT_TEXT.isdisjoint(file.relative_to(path).parts)
    }
    for name in sorted(found):
        yield found[name]


def _folders(path: Path) -> Iterator[Path]:
    """Yield ``path`` and the folders below it that may hold text, without links."""
    for folder, inner, _ in os.walk(path):
        inner[:] = [name for name in inner if name not in _NOT_TEXT]
        yield Path(folder)


def read_text(path: Path, pattern: str, max_bytes: int) -> bytes:
    """The first ``max_bytes`` bytes of the files, one after the other."""
    text = bytearray()
    for block in _blocks(path, pattern, max_bytes):
        text += block
    if len(text) < 2:
        raise BadSpecError(
            f"task_args.path: the files {pattern} under {path} have {len(text)} bytes; at least 2 "
            f"are required",
        )
    return bytes(text)


def byte_tokens(path: Path, pattern: str, max_bytes: int) -> Tensor:
    """The text's bytes as tokens, shape (length,), uint8. One file alone is mapped, not read."""
    if path.is_file() and path.stat().st_size > 1:
        size = min(path.stat().st_size, max_bytes)
        return torch.from_numpy(np.memmap(path, dtype=np.uint8, mode="c", shape=(size,)))
    return torch.frombuffer(bytearray(read_text(path, pattern, max_bytes)), dtype=torch.uint8)


def encoded_tokens(
    path: Path,
    pattern: str,
    max_bytes: int,
    *,
    encode: Encode,
    vocabulary: int,
    identity: bytes,
    cache: Path,
) -> Tensor:
    """The text's tokens, shape (length,), mapped from the file that holds them.

    It is written first where it is missing.

    Parameters
    ----------
    path, pattern, max_bytes
        The text.
    encode : callable
        Token ids of a piece of text.
    vocabulary : int
        Different tokens: decides how many bytes one takes.
    identity : bytes
        Of the tokenizer; another one gives another file.
    cache : Path
        Folder of such files. A text is known by its bytes: unpacked code has files of one age and
        often of one size.
    """
    dtype = np.dtype(np.uint16 if vocabulary <= 1 << 16 else np.int32)
    digest = hashlib.sha256(f"{dtype} {len(identity)} ".encode() + identity)
    for block in _blocks(path, pattern, max_bytes):
        digest.update(b"%d " % len(block) + block)
    target = cache / f"{digest.hexdigest()[:32]}.tokens"
    if not target.is_file():
        cache.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_suffix(".part")
        with unfinished.open("ab") as out:
            fcntl.flock(
                out, fcntl.LOCK_EX
            )  # Another job of the node may be at the same text: its tokens will do.
            if not target.is_file():
                out.truncate(0)  # One that was killed may have begun.
                for block in _blocks(path, pattern, max_bytes):
                    out.write(np.array(encode(block.decode("utf-8", "replace")), dtype).tobytes())
                out.flush()
                os.fsync(out.fileno())
                unfinished.replace(target)
            unfinished.unlink(missing_ok=True)
    if target.stat().st_size < 2 * dtype.itemsize:
        raise BadSpecError(f"task_args.path: the text under {path} has fewer than 2 tokens")
    return torch.from_numpy(np.memmap(target, dtype=dtype, mode="c"))


def load_tokenizer(file: Path) -> Any:
    """A tokenizer of the ``tokenizers`` library, from its JSON file."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise BadSpecError(
            f"task_args.tokenizer needs the package tokenizers on the node: {with_extra('hf')}, "
            f"or leave it out "
            "to train on bytes",
        ) from None
    if not file.is_file():
        raise BadSpecError(f"task_args.tokenizer: file {file} does not exist")
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # noqa: BLE001 - the library raises bare Exception for a file that it cannot read
        raise BadSpecError(
            f"task_args.tokenizer: {file} is not a tokenizer file: {error}"
        ) from None


def encoder(tokenizer: Any) -> Encode:
    """Return a function that encodes running text with a tokenizer of the ``tokenizers`` library.

    It encodes all of the text, without special tokens at the ends of blocks. A saved tokenizer may
    truncate or pad its texts; both are turned off.
    """
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def encode(text: str) -> list[int]:
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    return encode


class Windows(Dataset[Sequences]):
    """Consecutive windows of T + 1 tokens, of which the first T are read and the last T predicted.

    The last window may be short: it is padded with targets that are not counted, so that no token
    is left out.
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


def _existing(path: Path, pattern: str) -> Iterator[Path]:
    if not path.exists():
        raise BadSpecError(
            f"task_args.path: no text found at {path}; expected a file or a folder on the node",
        )
    return text_files(path, pattern)


def _blocks(path: Path, pattern: str, max_bytes: int) -> Iterator[bytes]:
    """The text in pieces that end with a line, where a line ends at all."""
    left = max_bytes
    for file in _existing(path, pattern):
        with file.open("rb") as text:
            while left > 0 and (block := text.read(min(_BLOCK_BYTES, left))):
                if len(block) < left:
                    block += text.readline(left - len(block))
                left -= len(block)
                yield block
        if left <= 0:
            return
