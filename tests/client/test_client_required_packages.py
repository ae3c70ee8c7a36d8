"""A client alone names the missing package before it starts a program."""

from __future__ import annotations

import pytest

from lockstep.client.errors import UsageError
from lockstep.client.local import installed


def test_a_missing_package_is_named_with_its_install_command() -> None:
    with pytest.raises(UsageError) as caught:
        installed.require(
            installed.SERVER + installed.NODE,
            find=lambda name: None if name in {"celery", "torch"} else name,
        )
    assert caught.value.message == "only the client is installed: celery, torch are missing"
    assert "pip install" in caught.value.next_step


def test_a_whole_installation_is_found_without_importing_it() -> None:
    installed.require(installed.SERVER + installed.NODE)
