"""A client alone says what to install before it starts anything."""

from __future__ import annotations

import pytest

from lockstep.client.errors import UsageError
from lockstep.client.local import installed


def test_what_is_missing_is_named_with_how_to_install_it() -> None:
    with pytest.raises(UsageError) as caught:
        installed.require(
            installed.SERVER + installed.NODE,
            find=lambda name: None if name in {"celery", "torch"} else name,
        )
    assert caught.value.message == "only the client is installed: celery, torch are missing"
    assert "pip install" in caught.value.next_step


def test_a_whole_installation_is_found_without_importing_it() -> None:
    installed.require(installed.SERVER + installed.NODE)
