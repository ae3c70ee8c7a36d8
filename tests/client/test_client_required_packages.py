"""A client alone names the missing package before it starts a program."""

from __future__ import annotations

import subprocess
import sys

import pytest

from lockstep.client.errors import UsageError
from lockstep.client.local import required_packages
from lockstep.domain.packages import with_extra

FIND = """
import sys
from lockstep.client.local import required_packages
needed = required_packages.SERVER + required_packages.NODE
required_packages.require(needed)
print(sorted(set(needed) & set(sys.modules)))
"""


def test_a_missing_package_is_named_with_its_install_command() -> None:
    with pytest.raises(UsageError) as caught:
        required_packages.require(
            required_packages.SERVER + required_packages.NODE,
            find=lambda name: None if name in {"celery", "torch"} else name,
        )
    assert caught.value.message == "the service is not fully installed: celery, torch are missing"
    assert with_extra("all") in (caught.value.next_step or "")


def test_a_whole_installation_is_found_without_importing_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FIND], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout == "[]\n"
