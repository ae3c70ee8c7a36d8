"""Version of Lockstep, from which the package is built too.

It is a constant because reading an installed package's metadata takes longer than anything else in
``lockstep --version``.

Not here: the versions of nodes, which they report themselves.
"""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
