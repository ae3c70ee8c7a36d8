"""Which version this is, from the installed package's own metadata.

Not here: the versions of nodes, which they report themselves.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

VERSION: Final = version("lockstep")
