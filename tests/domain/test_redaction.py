"""Detection of secrets, and the remainder of a line that contains one."""

from __future__ import annotations

import base64
import html
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lockstep.engine.launcher.output.lines import LineCutter
from lockstep.system.redaction import MASK, Redactor, is_secret, secrets_of

_TEXT = st.characters(exclude_categories=("Cs",), exclude_characters="\0")
SECRETS = st.text(_TEXT, min_size=8, max_size=40) | st.text(
    "ab\"'\\ $`%&<>\n\té😀/+=!~#,", min_size=8, max_size=30
)
ESCAPES = (
    json.dumps,
    lambda text: json.dumps(text, ensure_ascii=False),
    repr,
    ascii,
    lambda text: repr(text.encode()),
    shlex.quote,
    quote,
    quote_plus,
    html.escape,
)


def _printed(value: str) -> Iterator[str]:
    """Return the value as programs print it, also in a second form."""
    for escape in ESCAPES:
        yield escape(value)
        yield from (again(escape(value)) for again in ESCAPES)
    for around in (b"", b"x", b"xy"):
        for data in (around + value.encode(), around + value.encode() + around):
            yield base64.b64encode(data).decode()
            yield base64.urlsafe_b64encode(data).decode()
    yield value.encode().hex()


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "WANDB_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "password",
        "DB_PASSWORD_FILE",
        "GITHUB_PAT",
        "KEY",
        "TOKEN",
    ],
)
def test_names_that_indicate_a_secret_are_detected(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name", ["TOKENIZERS_PARALLELISM", "MAX_TOKENS", "KEYBOARD", "PATH", "KEY_COUNT", "MONKEY", ""]
)
def test_a_name_that_only_sounds_like_it_is_not(name: str) -> None:
    assert not is_secret(name)


def test_no_value_of_a_secret_is_left_in_a_line() -> None:
    environment = {
        "HF_TOKEN": "hf_abcdefgh",
        "OLD_TOKEN": "hf_abcdefghij",
        "SSH_KEY": "-----BEGIN-----\nMIIEvQIBADANBg\n-----END-----\n",
        "API_SECRET": "a b/c+d=e",
        "DATABASE": "postgresql://ada:l0velace!@db/x",
        "MODE": "ordinary-value",
    }
    clean = Redactor(secrets_of(environment)).clean
    assert clean("hf_abcdefgh hf_abcdefghij") == "*** ***"
    assert (
        clean("key: MIIEvQIBADANBg, and a%20b%2Fc%2Bd%3De or a b/c+d=e")
        == "key: ***, and *** or ***"
    )
    assert (
        clean("connected to postgresql://ada:l0velace!@db/x")
        == "connected to postgresql://ada:***@db/x"
    )
    assert clean("ordinary-value .*") == "ordinary-value .*"


def test_short_values_and_no_values_leave_lines_alone() -> None:
    assert secrets_of({"API_KEY": "true", "PASSWORD": "", "TOKEN": "1234567"}) == set()
    assert Redactor([]).clean("anything") == "anything"


@settings(max_examples=60, deadline=None)
@given(SECRETS)
@example('ab"cd\\ef-gh12')
@example("it's \\'a\"\\\\ secret")
@example(".a-secret")
@example("-a-secret")
def test_every_printed_form_of_a_secret_is_masked(value: str) -> None:
    value = value.strip()
    if len(value) < 8:
        return
    secrets = secrets_of({"A_TOKEN": value})
    if not secrets:  # for example a number
        assert re.fullmatch(r"[\W\d_eE]+", value), value
        return
    clean = Redactor(secrets).clean
    for line in _printed(value):
        # Quotes may remain, and characters that base64 has in common with the surrounding text.
        left = clean(line).replace(MASK, "", 1)
        assert MASK in clean(line), line
        assert len(left) <= 26, line


def test_the_forms_of_a_shell_are_masked() -> None:
    script = 'printf "%q\\n" "$1"; echo "${1@Q}"; declare -p V; PS4=; set -x; : "$1"'
    for value in ('it\'s a "$x" `y` \\ é', "tab\there!", "a,b;c&d|e(f)[g]{h}*"):
        for locale in ("C", "C.UTF-8"):
            done = subprocess.run(
                ["bash", "-c", script, "x", value],
                env={"LC_ALL": locale, "V": value, "PATH": "/usr/bin:/bin"},
                capture_output=True,
                check=True,
            )
            lines = (done.stdout + done.stderr).decode("utf-8", "replace").splitlines()
            clean = Redactor([value]).clean
            assert [line for line in lines if MASK not in clean(line)] == []


def test_a_form_that_is_split_over_two_writes_is_masked() -> None:
    value = 'ab"cd\\ef-gh12'
    line = (json.dumps({"k": value}) + "\n").encode()
    for at in range(len(line)):
        cutter = LineCutter(1_000)
        (text,) = [*cutter.feed(line[:at]), *cutter.feed(line[at:])]
        assert Redactor([value]).clean(text) == '{"k": "***"}'


def test_a_line_with_a_part_of_a_secret_takes_no_exponential_time() -> None:
    for pair in ('\\"', "\\'", "'\"", "%25", "\\n\n"):
        value = pair * 40 + "end"
        line = json.dumps(json.dumps(shlex.quote(value)))[:-12] * 3
        assert "end" not in Redactor([value]).clean(line)


def test_ordinary_lines_are_left_alone() -> None:
    clean = Redactor(["password", "aaaaaaaa", "----------x"]).clean
    line = "loss 0.25 lr 1e-4 at step 1000: YWFh 61616161 ---- pass word"
    assert clean(line) == line


def test_bytes_that_are_not_utf8_in_a_secret_are_no_error() -> None:
    assert Redactor(["abc\udce9defgh"]).clean("abc\ufffddefgh") == MASK
