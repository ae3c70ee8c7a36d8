"""Programs that cannot be run: the outcome names the true cause and the next step."""

from __future__ import annotations

import pytest

from lockstep.domain.life.outcomes import Reason
from tests.harness.attempts import Attempt

CRLF, NO_X = "has Windows line ends", "is not executable; run chmod +x"


@pytest.mark.parametrize(
    ("text", "mode", "command", "message"),
    [
        ("#!/bin/bash\r\necho x\r\n", 0o755, "./run.sh", CRLF),
        ("#!/no/such/python\nx\n", 0o755, "./run.sh",
         "is run by '/no/such/python', which is not on this"),
        ("#!/bin/sh\n", 0o644, "./run.sh", NO_X),
        ("#!/etc\n", 0o755, "./run.sh", "is run by '/etc', which may not be executed"),
        ("\x7fELF garbage", 0o755, "./run.sh", "is a program for another processor"),
        ("\xef\xbb\xbf#!/bin/sh\n", 0o755, "./run.sh", "save it as UTF-8 without a BOM"),
        ("echo x\n", 0o755, "./run.sh", "a script needs a first line such as #!/bin/sh"),
        ("#!/bin/sh\n", 0o755, "run.sh", "was not found on PATH, where a name without a slash"),
        ("#!/bin/sh\n", 0o755, "run.sh", "write ./run.sh for the file in "),
        ("#!/bin/sh\n", 0o755, "./bin", "is a folder; name the file in it that is to be run"),
        ("#!/bin/sh\n", 0o755, "bin", "is a folder; name the file in it that is to be run"),
        ("#!/bin/sh\n", 0o644, "on_path.sh", NO_X),
        ("#!/bin/sh\n", 0o755, "./gone.sh", "was not found in "),
        ("#!/bin/sh\n", 0o755, "dir.py", "is a folder; name the file in it that is to be run"),
        ("#!/bin/sh\n", 0o755, f"./run.sh {'x' * 200_000}",
         "its arguments and its environment are longer than the system allows"),
        ("print()\n", 0o755, f"run.sh.py {'x' * 200_000}", "its arguments and its environment"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_run_is_refused_with_its_cause(
    attempt: Attempt, text: str, mode: int, command: str, message: str
) -> None:
    code = attempt.folder / "code"
    for folder in (code / "bin", code / "dir.py"):
        folder.mkdir(parents=True)
    for file in (code / "run.sh", code / "run.sh.py", code / "bin/on_path.sh"):
        file.write_bytes(text.encode("latin-1"))
        file.chmod(mode)
    attempt.command(*command.split(), env={"PATH": f"{code / 'bin'}:/usr/bin:/bin"})
    outcome = attempt.start().outcome()
    assert outcome.reason is Reason.BAD_SPEC
    assert message in (outcome.exception or "")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("LD_LIBRARY_PATH", "{code}", "libc.so.6: file too short"),
        ("PYTHONHOME", "{code}", "Fatal Python error: init_fs_encoding"),
        ("PYTHONHASHSEED", "x", "Fatal Python error: config_init_hash_seed"),
    ],
)
def test_a_variable_that_keeps_the_program_from_starting_is_in_the_log(
    attempt: Attempt, name: str, value: str, message: str
) -> None:
    value = value.format(code=attempt.folder / "code")
    attempt.script("print('up')", env={name: value})
    (attempt.folder / "code/libc.so.6").touch()
    outcome = attempt.start().outcome()
    assert outcome.reason is Reason.BAD_SPEC
    assert message in outcome.message
    assert message in (outcome.log_excerpt or "")
    assert name in outcome.advice or "PYTHON" in name
