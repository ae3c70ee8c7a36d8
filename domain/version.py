"""Which version this is: the one place, from which the package is built too.

A constant, because reading an installed package's metadata takes longer than anything else that ``lockstep --version`` does.

Not here: the versions of nodes, which they report themselves.
"""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
