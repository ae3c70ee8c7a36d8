"""Stdout and stderr of the ranks, from their pipes into the log.

Each stream of each rank is a named pipe under ``launch/``, opened for reading before the rank
exists, so the stub's opening for writing cannot block. One thread reads them all and stamps each
line. It never stops reading: ranks that wait for a log, because a disk, an agent or a database is
slow, would delay the run. Excess output is omitted and counted.

After the ranks have ended, the main thread reads the rest of the pipes (64 KiB each at most): the
last line before an exit is the most important one.

Not here: lines (``engine.launcher.output.lines``), files (``engine.launcher.output.segments``),
rate limits (``engine.launcher.output.rate_limit``).
"""

from __future__ import annotations

import contextlib
import os
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from lockstep.domain import limits
from lockstep.engine.launcher.bounds import Bounds
from lockstep.engine.launcher.output.lines import LineCutter
from lockstep.engine.launcher.output.rate_limit import RateLimit, RateLimits, TimedLine
from lockstep.engine.launcher.output.segments import LogFields, Segments
from lockstep.system.redaction import Redactor
from lockstep.system.untrusted import Untrusted

Stream = Literal["stdout", "stderr"]


class _Pipe:
    def __init__(self, path: Path, rank: int, stream: Stream, bounds: Bounds, flow: RateLimit):
        self.path = path
        self.flow = flow
        self.rank = rank
        self.stream = stream
        self.cutter = LineCutter(bounds.line_bytes_max)
        self.state_at = float("-inf")
        """Time at which the state of a rewritten line was last logged."""
        os.mkfifo(path, 0o600)
        self.descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


class Streams:
    """All pipes of the node's ranks."""

    def __init__(
        self,
        folder: Path,
        segments: Segments,
        bounds: Bounds,
        warn: Callable[[str], None],
        redactor: Redactor,
    ):
        self._folder = folder
        self._files = Untrusted(folder)
        self._rate_limits = RateLimits(bounds, warn, clock=time.monotonic)
        self._segments = segments
        self._redactor = redactor
        self._bounds = bounds
        self._pipes: list[_Pipe] = []
        self._tails: dict[tuple[int, Stream], str] = {}
        self._newest: dict[int, Stream] = {}
        """The stream on which each rank wrote last."""
        self._last_lines: dict[int, deque[str]] = {}
        self._lost = 0
        self.bytes_read = 0
        """Bytes that the ranks have written, with those of unfinished lines."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._read_while_running, name="streams", daemon=True
        )

    def open(self, rank: int) -> None:
        """Create a rank's pipes, before the rank is started."""
        streams: tuple[Stream, Stream] = ("stdout", "stderr")
        for stream in streams:
            self._pipes.append(
                _Pipe(
                    self._folder / f"{rank}.{stream}",
                    rank,
                    stream,
                    self._bounds,
                    self._rate_limits.flow(),
                )
            )

    def start(self) -> None:
        """Start the reading thread, once every pipe is open."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread. Afterwards the caller reads with :meth:`drain`."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def drain(self, seconds: float) -> None:
        """Read until all writers have closed their ends, or for ``seconds``."""
        deadline = time.monotonic() + seconds
        while self._pipes and time.monotonic() < deadline:
            silent = True
            for pipe in list(self._pipes):
                chunk = self._read(pipe)
                silent = silent and chunk is None
                if chunk == b"":
                    self._end(pipe)
            if silent:
                time.sleep(0.01)

    def close(self) -> None:
        """Log the last line of each stream and close the pipes."""
        for pipe in list(self._pipes):
            self._end(pipe)
        self._rate_limits.close()

    def tail(self, rank: int) -> str:
        """Return the end of a rank's stderr."""
        return self._tails.get((rank, "stderr"), "")

    def tail_of_stdout(self, rank: int) -> str:
        """Return the end of a rank's stdout; nothing if the rank wrote to stderr later."""
        is_newest = self._newest.get(rank) == "stdout"
        return self._tails.get((rank, "stdout"), "") if is_newest else ""

    def last_lines(self) -> dict[int, str]:
        """Return the last lines that each rank wrote to either stream, for its outcome."""
        return {
            rank: "\n".join(lines)[-limits.EXCERPT_CHARS_MAX :]
            for rank, lines in self._last_lines.items()
        }

    def _read_while_running(self) -> None:
        with selectors.DefaultSelector() as selector:
            for pipe in self._pipes:
                selector.register(pipe.descriptor, selectors.EVENT_READ, pipe)
            while selector.get_map() and not self._stopping.is_set():
                if self._rate_limits.turn(full=self._segments.is_full()):
                    for pipe in self._pipes:
                        self._write(pipe, self._rate_limits.release(pipe.flow))
                self._keep_states()
                for key, _ in selector.select(timeout=0.1):
                    if self._read(key.data) == b"":
                        selector.unregister(key.fd)
                        self._end(key.data)

    def _keep_states(self) -> None:
        """Log the states of rewritten lines, such as progress bars, at intervals."""
        now = time.monotonic()
        for pipe in self._pipes:
            if (
                now - pipe.state_at >= self._bounds.state_seconds
                and (state := pipe.cutter.state()) is not None
            ):
                pipe.state_at = now
                self._keep(pipe, [state])

    def _read(self, pipe: _Pipe) -> bytes | None:
        """Read once: available bytes, empty at the pipe's end, None if nothing was written."""
        try:
            chunk = os.read(pipe.descriptor, self._bounds.read_bytes)
        except BlockingIOError:
            return None
        self.bytes_read += len(chunk)
        rest = chunk
        if pipe.flow.held:
            rest, lines, size = pipe.cutter.skip(chunk, self._bounds.held_lines)
            self._rate_limits.leave_out(pipe.flow, lines, size)
            self._stopping.wait(self._bounds.flood_pause_seconds)
        self._keep(pipe, pipe.cutter.feed(rest))
        return chunk

    def _end(self, pipe: _Pipe) -> None:
        self._keep(pipe, pipe.cutter.finish())
        self._write(pipe, self._rate_limits.release(pipe.flow))
        os.close(pipe.descriptor)
        self._pipes.remove(pipe)
        with contextlib.suppress(OSError):
            self._files.remove(pipe.path.name, seconds=1.0)

    def _keep(self, pipe: _Pipe, texts: list[str]) -> None:
        if not texts:
            return
        # Before anything keeps them: the outcome quotes a rank's last lines, too.
        texts = [self._redactor.clean(text) for text in texts]
        now = time.time()
        passed = self._rate_limits.take(
            pipe.flow, [TimedLine(now, text) for text in texts], full=self._segments.is_full()
        )
        self._write(pipe, passed)
        last = self._last_lines.setdefault(pipe.rank, deque(maxlen=limits.EXCERPT_LINES_MAX))
        last.extend(
            text[: limits.EXCERPT_LINE_CHARS_MAX] for text in texts[-limits.EXCERPT_LINES_MAX :]
        )
        key = (pipe.rank, pipe.stream)
        tail = "\n".join((self._tails.get(key, ""), *texts))
        self._tails[key] = tail[-self._bounds.tail_chars :]
        self._newest[pipe.rank] = pipe.stream

    def _write(self, pipe: _Pipe, lines: Sequence[TimedLine]) -> None:
        if not lines:
            return
        try:
            if self._lost:
                lost = f"{self._lost} lines of output were lost: the node's disk was full."
                self._segments.write([LogFields(time.time(), -1, "launcher", lost)])
                self._lost = 0
            self._segments.write(
                LogFields(line.time, pipe.rank, pipe.stream, line.text) for line in lines
            )
        except OSError:
            self._lost += len(lines)  # Ranks must not wait for a disk, so reading continues.
