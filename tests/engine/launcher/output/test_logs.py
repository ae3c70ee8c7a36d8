"""Lines of the ranks arrive complete, in order, bounded, and stamped with rank and stream.

Not here: more lines than can be stored (``tests.engine.launcher.output.test_rate_limit``), their
upload (``tests/worker``).
"""

from __future__ import annotations

import random
import resource
import sys
import textwrap
from pathlib import Path

import pytest

from lockstep.domain.life import attempt as files
from lockstep.domain.life.attempt import LogRecord, UploadedFile
from lockstep.domain.life.outcomes import Reason
from lockstep.engine.launcher.bounds import Bounds
from lockstep.engine.launcher.output.lines import LineCutter
from lockstep.engine.launcher.output.segments import LogFields, Segments
from tests.harness.attempts import Attempt


def test_no_line_of_two_busy_ranks_is_lost(attempt: Attempt) -> None:
    source = """
        import os, sys
        rank = os.environ["RANK"]
        for number in range(10_000):
            print(rank, "out", number)
            print(rank, "err", number, file=sys.stderr)
        """
    outcome = (
        attempt.script(textwrap.dedent(source), ranks=2).start(segment_bytes=100_000).outcome()
    )
    assert outcome.reason is Reason.SUCCEEDED
    for rank in (0, 1):
        assert attempt.lines(rank, "stdout") == [f"{rank} out {number}" for number in range(10_000)]
        assert attempt.lines(rank, "stderr") == [f"{rank} err {number}" for number in range(10_000)]
    sizes = [path.stat().st_size for path in (attempt.folder / "logs").glob("*.jsonl")]
    assert len(sizes) > 10
    assert max(sizes) <= 100_000


def test_the_last_line_needs_no_newline(attempt: Attempt) -> None:
    source = (
        "import os, sys\nos.write(1, b'first\\nlast words')\nos.write(2, b'cause')\nos._exit(4)"
    )
    assert attempt.script(source).start().outcome().exit_code == 4
    assert attempt.lines() == ["first", "last words"]
    assert attempt.lines(stream="stderr") == ["cause"]


def test_late_output_of_a_child_behind_a_wrapper_is_kept(attempt: Attempt) -> None:
    attempt.command("sh", "-c", "(sleep 0.2; echo late) & echo early").start(linger_seconds=5)
    assert attempt.outcome().reason is Reason.SUCCEEDED
    assert attempt.lines() == ["early", "late"]


def test_bytes_that_are_not_utf8_are_replaced(attempt: Attempt) -> None:
    attempt.script("import os\nos.write(1, b'caf\\xe9 \\xe2\\x82\\xac\\n')").start().outcome()
    assert attempt.lines() == ["caf\ufffd €"]


def test_a_long_line_is_cut_and_marked(attempt: Attempt) -> None:
    attempt.script("print('x' * 200_000)\nprint('after')").start(line_bytes_max=1_000).outcome()
    assert attempt.lines() == [
        "x" * 1_000 + " [truncated: 199000 more bytes in this line]",
        "after",
    ]


def test_a_cut_does_not_split_a_character() -> None:
    assert LineCutter(4).feed("ab€uro\n".encode()) == ["ab [truncated: 4 more bytes in this line]"]


def test_a_line_is_put_together_from_any_pieces() -> None:
    cutter = LineCutter(100)
    assert [line for byte in "é\n\nz".encode() for line in cutter.feed(bytes([byte]))] == ["é", ""]
    assert cutter.finish() == ["z"]


def _as_a_terminal_shows(line: bytes) -> str:
    """Return the final state of a line whose parts are written over each other."""
    return ([part for part in line.split(b"\r") if part] or [b""])[-1].decode()


@pytest.mark.parametrize("seed", range(20))
def test_a_rewritten_line_keeps_its_last_state(
    seed: int,
) -> None:
    draw = random.Random(seed)
    written = (
        b"".join(
            draw.choices((b"\r", b"\n", b"\r\n", b"a", b"50%", b"\x1b[32m|\x1b[0m", b" "), k=200)
        )
        + b"\n"
    )
    cutter, lines = LineCutter(1_000), []
    at = 0
    while at < len(written):
        size = draw.randrange(1, 30)
        lines += cutter.feed(written[at : at + size])
        at += size
    assert lines == [_as_a_terminal_shows(line) for line in written.split(b"\n")[:-1]]
    assert cutter.finish() == []


def test_a_progress_bar_is_logged_only_when_it_changed() -> None:
    cutter = LineCutter(10)
    assert (cutter.feed(b"waiting"), cutter.state()) == (
        [],
        None,
    )  # not a bar: it may still become a line
    assert (cutter.feed(b"\n\r 10%"), cutter.state(), cutter.state()) == (["waiting"], " 10%", None)
    assert (cutter.feed(b"\r 20%\r"), cutter.state()) == ([], " 20%")
    assert cutter.feed(b"\r 20%\n") == []
    assert (cutter.feed(b"\r 30%\r 40%"), cutter.state(), cutter.feed(b"\r100%\nnext\n")) == (
        [],
        " 40%",
        ["100%", "next"],
    )
    assert (cutter.feed(b"\r 50%"), cutter.state(), cutter.finish()) == ([], " 50%", [])
    assert cutter.feed(b"0123456789abc\r1\n") == ["1"]


def test_a_running_progress_bar_is_logged_at_a_limited_rate(attempt: Attempt) -> None:
    source = """
        import sys, time
        for number in range(3_000):
            print(f"\\r{number:5d}/3000", end="", file=sys.stderr, flush=True)
            time.sleep(0.0002)
        print("\\r done", file=sys.stderr)
        print("after", file=sys.stderr)
        """
    attempt.script(textwrap.dedent(source)).start(state_seconds=0.2).outcome()
    *states, done, after = attempt.lines(stream="stderr")
    assert (done, after) == (" done", "after")
    assert 1 < len(states) < 100
    numbers = [int(state.split("/")[0]) for state in states]
    assert numbers == sorted(set(numbers))


def test_secrets_of_the_environment_are_redacted_in_log_and_outcome(
    attempt: Attempt,
) -> None:
    source = """
        import os, sys
        print("env:", dict(os.environ))
        print("password is", os.environ["DB_PASSWORD"], os.environ["DATASET"])
        sys.exit("refused: " + os.environ["https_proxy"])
        """
    env = {"DB_PASSWORD": "correct horse", "DATASET": "digits-of-pi"}
    attempt.script(textwrap.dedent(source))
    attempt.command(sys.executable, "train.py", env=env).start(
        environ={"https_proxy": "http://ada:from-the-node@proxy"}
    )
    outcome = attempt.outcome()
    assert outcome.exit_code == 1
    assert attempt.lines()[-1] == "password is *** digits-of-pi"
    assert attempt.lines(stream="stderr") == ["refused: http://ada:***@proxy"]
    texts = outcome.model_dump_json() + "".join(record.text for record in attempt.records())
    assert "http://ada:***@proxy" in outcome.model_dump_json()
    assert not [value for value in ("correct horse", "from-the-node") if value in texts]


def test_a_full_disk_leaves_no_partial_line_in_the_log(tmp_path: Path) -> None:
    segments = Segments(tmp_path, Bounds())
    segments.write([LogFields(1.5, 0, "stdout", "before")])
    (log,) = (tmp_path / files.LOGS).iterdir()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(
        resource.RLIMIT_FSIZE, (log.stat().st_size + 20, hard)
    )  # like a disk with room for 20 bytes
    try:
        with pytest.raises(OSError, match="too large"):
            segments.write([LogFields(1.5, 0, "stdout", "no room")])
        segments.log_line("no room for this either, and no error")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    segments.write([LogFields(1.5, 0, "stdout", "after")])
    segments.close()
    assert [LogRecord.model_validate_json(line).text for line in log.read_bytes().splitlines()] == [
        "before",
        "after",
    ]


def test_a_log_continues_after_existing_segments(tmp_path: Path) -> None:
    for text in ("before", "after"):
        segments = Segments(tmp_path, Bounds())
        segments.write([LogFields(1.5, 0, "stdout", text)])
        segments.close()
    names = sorted(path.name for path in (tmp_path / files.LOGS).iterdir())
    assert names == ["000000.jsonl", "000001.jsonl"]


def test_unsent_bytes_are_counted_from_the_uploaded_offset(tmp_path: Path) -> None:
    segments = Segments(tmp_path, Bounds(segment_bytes=100, backlog_bytes_max=150))
    segments.write(
        [LogFields(1.5, 0, "stdout", "x" * 40) for _ in range(4)]
    )  # one record a segment
    sizes = [path.stat().st_size for path in sorted((tmp_path / files.LOGS).iterdir())]
    assert len(sizes) == 4
    assert segments.is_full()
    (tmp_path / files.UPLOADED).write_text(
        UploadedFile(segment=2, offset=sizes[2]).model_dump_json()
    )
    assert not segments.is_full()
    assert sorted(segments._sizes) == [2, 3], "memory has no entry of uploaded segments either"
    segments.close()
