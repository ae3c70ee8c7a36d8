r"""Bytes of one stream into lines.

A program that rewrites its line with ``\r`` (a progress bar) has, on a terminal, one line; so it
has here: of what stands between carriage returns the last is the line. While it runs, its state can
be asked for now and then, so that a bar that takes hours is seen to move, and ten thousand rewrites
are not ten thousand lines. Colours and other escapes are kept.

Not here: the pipes (``engine.launcher.output.streams``).
"""

from __future__ import annotations


class LineCutter:
    """Splits one stream into lines of at most ``bytes_max``.

    The excess is counted and reported, not kept.
    """

    def __init__(self, bytes_max: int):
        self._bytes_max = bytes_max
        self._kept = bytearray()
        self._dropped = 0
        self._returned = False
        """True after a carriage return: the next text replaces the line."""
        self._rewritten = False
        """True if a part of this line was replaced."""
        self._shown: bytes | None = None
        """Part of this line that was returned as its state."""

    def feed(self, chunk: bytes) -> list[str]:
        """Return the lines that ``chunk`` completes."""
        add = self._rewrite if self._returned or b"\r" in chunk else self._add
        *ends, rest = chunk.split(b"\n")
        lines = []
        for end in ends:
            add(end)
            if not self._is_shown():
                lines.append(self._text())
            self._clear()
        add(rest)
        return lines

    def skip(self, chunk: bytes, keep: int) -> tuple[bytes, int, int]:
        """Skip all complete lines of ``chunk`` but the last ``keep``; return rest and counts.

        Most of a flood is omitted; decoding it first would take the processor from the ranks.
        """
        end = len(chunk)
        for _ in range(keep + 1):
            end = chunk.rfind(b"\n", 0, end)
            if end < 0:
                return chunk, 0, 0
        size = len(self._kept) + self._dropped + end + 1
        self._clear()
        return chunk[end + 1 :], chunk.count(b"\n", 0, end + 1), size

    def state(self) -> str | None:
        """Return the current state of the line that is being rewritten.

        None without such a line, or if this state was returned before.
        """
        if not self._rewritten or not self._kept or self._is_shown():
            return None
        self._shown = bytes(self._kept)
        return self._text()

    def finish(self) -> list[str]:
        """Return the last line, if the stream ended without a newline."""
        lines = [self._text()] if self._kept and not self._is_shown() else []
        self._clear()
        return lines

    def _add(self, part: bytes) -> None:
        room = self._bytes_max - len(self._kept)
        self._kept += part[:room]
        self._dropped += max(0, len(part) - room)

    def _rewrite(self, part: bytes) -> None:
        """Add a part that may contain carriage returns or follow one.

        Otherwise like :meth:`_add`.
        """
        written = part.rstrip(b"\r")
        if written:
            start = written.rfind(b"\r") + 1
            if start or self._returned:
                self._kept.clear()
                self._dropped = 0
                self._rewritten = True
            self._add(written[start:])
            self._returned = False
        self._returned = self._returned or len(written) < len(part)

    def _is_shown(self) -> bool:
        return self._shown is not None and self._shown == self._kept

    def _text(self) -> str:
        text = self._kept.decode("utf-8", errors="replace")
        if self._dropped:
            text = (
                f"{text.removesuffix(chr(0xFFFD))} [truncated: {self._dropped} more bytes in this "
                f"line]"
            )
        return text

    def _clear(self) -> None:
        self._kept.clear()
        self._dropped = 0
        self._returned = self._rewritten = False
        self._shown = None
