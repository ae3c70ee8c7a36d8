"""What counts as a secret, and what is left of a line that holds one."""

from __future__ import annotations

import pytest

from lockstep.system.redaction import Redactor, is_secret, secrets_of


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
def test_a_name_that_says_so_is_a_secrets(name: str) -> None:
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
