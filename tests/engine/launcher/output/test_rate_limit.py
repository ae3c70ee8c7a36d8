"""A flood of lines is bounded on the node without delay; its head, its tail and the count of
dropped lines are kept.

Not here: ordinary output (``tests.engine.launcher.output.test_logs``).
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lockstep.domain import limits
from lockstep.domain.life import attempt as files
from lockstep.domain.life.attempt import EngineEvent, UploadedFile
from lockstep.domain.life.outcomes import Reason
from lockstep.engine.launcher.bounds import Bounds
from lockstep.engine.launcher.output.lines import LineCutter
from lockstep.engine.launcher.output.rate_limit import RateLimits, TimedLine
from tests.harness.attempts import Attempt
from tests.harness.drills import Drill
from tests.harness.processes import until

LEFT_OUT = re.compile(r"… ([\d,]+) lines \(.*\) left out: (.*) …")
COST = 10 + limits.LOG_STAMP_BYTES
"""Bytes of the quota that one line of these tests uses."""


class World:
    """Rate limit with a clock, a quota of ten lines per window, and its reports."""

    def __init__(self, streams: int = 1, lines: int = 10, **bounds: float) -> None:
        self.now = 100.0
        self.messages: list[str] = []
        limited = Bounds(
            log_bytes_per_second=lines * COST, log_window_seconds=1.0, held_lines=3, **bounds
        )  # type: ignore[arg-type]  # sizes are whole
        self.rate_limits = RateLimits(limited, self.messages.append, clock=lambda: self.now)
        self.flows = [self.rate_limits.flow() for _ in range(streams)]
        self.rate_limits.turn(full=False)

    def write(self, count: int, *, flow: int = 0, full: bool = False, start: int = 0) -> int:
        """Write ``count`` lines of ten bytes; return the number that pass."""
        lines = [TimedLine(self.now, f"{number:010d}") for number in range(start, start + count)]
        return len(self.rate_limits.take(self.flows[flow], lines, full=full))

    def later(self, *, full: bool = False) -> bool:
        self.now += 1.0
        return self.rate_limits.turn(full=full)

    def release(self, flow: int = 0) -> list[str]:
        return [line.text for line in self.rate_limits.release(self.flows[flow])]


@pytest.mark.parametrize(("lines", "passed"), [(9, 9), (10, 10), (11, 10), (100, 10)])
def test_a_window_takes_its_quota_and_not_a_line_more(lines: int, passed: int) -> None:
    world = World()
    assert world.write(lines) == passed
    assert len(world.messages) == (lines > passed)


def test_the_quota_counts_bytes_and_not_characters() -> None:
    world = World()
    lines = [TimedLine(world.now, "é" * 5)] * 100
    assert len(world.rate_limits.take(world.flows[0], lines, full=False)) == 10
    world.later()
    assert world.release()[0].startswith("… 87 lines (870.0 B) left out")


def test_the_newest_lines_follow_the_count_of_dropped_lines() -> None:
    world = World()
    world.write(1_000_020)
    assert world.write(1, start=2_000_000) == 0, "no line passes one that is held back"
    assert not world.rate_limits.turn(full=False)
    assert world.later()
    assert world.release() == [
        "… 1,000,008 lines (9.5 MiB) left out: the job writes faster than 1.1 KiB/s …",
        f"{1_000_018:010d}",
        f"{1_000_019:010d}",
        f"{2_000_000:010d}",
    ]
    assert world.write(1) == 1
    assert world.release() == []


def test_lines_held_back_for_a_moment_only_are_not_marked() -> None:
    world = World()
    world.write(12)
    world.later()
    assert world.release() == [f"{10:010d}", f"{11:010d}"]


def test_lines_of_a_quiet_rank_pass_during_another_ranks_flood() -> None:
    world = World(streams=2, lines=20)
    assert world.write(100, flow=0) == 20
    assert world.write(10, flow=1) == 10, "its share of the quota, for any use of the rest"
    assert world.write(1, flow=1) == 0


def test_lines_are_held_until_there_is_room() -> None:
    world = World()
    assert world.write(5, full=True) == 0
    assert not world.later(full=True)
    assert world.write(5, full=False) == 0
    assert world.later(full=False)
    assert world.release()[0] == (
        "… 7 lines (70.0 B) left out: they arrived faster than they could be stored …"
    )
    assert world.release() == []
    assert world.messages[0].startswith(
        "logs limited: the job writes lines faster than they can be stored"
    )


def test_a_flood_is_reported_once_per_quiet_window() -> None:
    world = World()
    for _ in range(5):
        world.write(50)
        world.later()
        world.release()
    assert len(world.messages) == 1
    assert world.messages[0].startswith("logs limited: the job writes more than 1.1 KiB per second")
    for _ in range(2):
        world.write(5)
        world.later()
    assert world.messages[1:] == ["logs no longer limited: 185 lines (1.8 KiB) were left out"]
    world.write(50)
    assert len(world.messages) == 2, "a repeated flood does not fill the page"
    world.now += Bounds().flood_silence_seconds
    world.write(50)
    assert len(world.messages) == 3


def test_a_line_longer_than_the_buffer_is_kept_as_newest() -> None:
    world = World(held_bytes=100)
    world.write(11)
    world.rate_limits.take(world.flows[0], [TimedLine(1.0, "x" * 1_000)], full=False)
    world.later()
    assert world.release()[1:] == ["x" * 1_000]


def test_skipped_lines_are_counted_and_the_last_ones_are_whole() -> None:
    cutter = LineCutter(100)
    assert cutter.feed(b"begun") == []
    rest, lines, size = cutter.skip(b" before\n1\n2\n3\n4\nbegun", 2)
    assert (lines, size) == (3, len("begun before\n1\n2\n"))
    assert cutter.feed(rest) == ["3", "4"]
    assert cutter.skip(b" and\nended\n", 2) == (b" and\nended\n", 0, 0)
    assert cutter.feed(b" and\nended\n") == ["begun and", "ended"]


def _on_disk(attempt: Attempt) -> int:
    return sum(path.stat().st_size for path in (attempt.folder / files.LOGS).glob("*.jsonl"))


def _warnings(attempt: Attempt) -> list[str]:
    lines = (attempt.folder / files.EVENTS).read_text().splitlines()
    return [str(EngineEvent.model_validate_json(line).data["message"]) for line in lines]


@pytest.mark.row
def test_a_flood_from_two_ranks_keeps_head_tail_and_count(attempt: Attempt, drill: Drill) -> None:
    drill.begin("F29", "600,000 lines at once from two ranks")
    drill.injected += 1
    count = 300_000
    source = (
        f"import os\nfor number in range({count}): print(os.environ['RANK'], number)\nprint('last "
        f"words')"
    )
    attempt.script(source, ranks=2).start(log_bytes_per_second=20_000)
    assert attempt.outcome().reason is Reason.SUCCEEDED
    for rank in (0, 1):
        lines = attempt.lines(rank, "stdout")
        left = [
            int(found[1].replace(",", "")) for line in lines if (found := LEFT_OUT.fullmatch(line))
        ]
        assert left
        drill.lost += count + 1 - (len(lines) - len(left) + sum(left))
        assert drill.lost == 0
        assert lines[0] == f"{rank} 0"
        assert lines[-2:] == [f"{rank} {count - 1}", "last words"]
    assert _on_disk(attempt) < 2_000_000
    assert [text.partition(":")[0] for text in _warnings(attempt)] == [
        "logs limited",
        "logs no longer limited",
    ]


def test_ranks_never_wait_for_a_log_that_is_not_uploaded(
    attempt: Attempt,
) -> None:
    source = "for number in range(200_000): print('flood', number)\nprint('last words')"
    attempt.script(source).start(backlog_bytes_max=200_000, segment_bytes=50_000)
    # Nothing is uploaded before the end: a rank that waited for that would exceed the time limit.
    assert attempt.outcome().reason is Reason.SUCCEEDED
    assert (
        _on_disk(attempt) < 200_000 + 65_536 * 10
    )  # one read of 64 KiB of short lines may still exceed it
    lines = attempt.lines()
    assert any("arrived faster than they could be stored" in line for line in lines)
    assert lines[-1] == "last words"


def test_the_log_continues_once_there_is_room_again(attempt: Attempt) -> None:
    source = """
import pathlib, sys, time
gate, over = map(pathlib.Path, sys.argv[1:])
for number in range(50_000): print("flood", number, flush=number % 1000 == 0)
sys.stdout.flush()
over.touch()
while not gate.exists(): time.sleep(0.01)
for number in range(20): print("after", number)
"""
    gate, over = attempt.folder / "gate", attempt.folder / "over"
    attempt.script(source, str(gate), str(over)).start(
        backlog_bytes_max=200_000,
        segment_bytes=50_000,
        log_window_seconds=0.2,
        log_bytes_per_second=10**9,
    )
    attempt.saw("logs limited: the job writes lines faster than they can be stored")
    # The rest of the flood would fill the space that is freed here: nothing is uploaded after the
    # loop below.
    until(over.exists, seconds=60, what="end of the flood")

    def uploaded() -> bool:
        _upload_all(attempt.folder)
        return any("left out" in line for line in attempt.lines())

    until(uploaded, seconds=60, what="the log goes on")
    gate.touch()
    assert attempt.outcome().reason is Reason.SUCCEEDED
    assert attempt.lines()[-20:] == [f"after {number}" for number in range(20)]


def test_a_flood_without_newlines_is_cut(attempt: Attempt) -> None:
    attempt.script(
        "import os\nfor _ in range(400): os.write(1, b'x' * 65536)\nos.write(1, b'\\nend\\n')"
    )
    attempt.start()
    assert attempt.outcome().reason is Reason.SUCCEEDED
    cut, end = attempt.lines()
    assert len(cut) < limits.LOG_LINE_BYTES_MAX + 100
    assert cut.endswith(
        f"[truncated: {400 * 65536 - limits.LOG_LINE_BYTES_MAX} more bytes in this line]"
    )
    assert end == "end"


def test_a_flood_does_not_delay_a_stop(attempt: Attempt) -> None:
    attempt.command("yes").start(log_bytes_per_second=20_000)
    attempt.saw("logs limited")
    attempt.stop("cancelled", grace_seconds=0.5)
    assert attempt.outcome().reason is Reason.CANCELLED  # the flood itself never ends
    assert _on_disk(attempt) < 2_000_000


def _upload_all(folder: Path) -> None:
    newest = max((folder / files.LOGS).glob("*.jsonl"))
    place = UploadedFile(segment=int(newest.stem), offset=newest.stat().st_size)
    (folder / files.UPLOADED).with_suffix(".tmp").write_text(place.model_dump_json())
    (folder / files.UPLOADED).with_suffix(".tmp").replace(folder / files.UPLOADED)
