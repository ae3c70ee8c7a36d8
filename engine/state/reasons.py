"""Reasons why state is not saved or not restored, and the sentences about them.

Not here: the reasons of a run (``engine.state.inventory``).
"""

from __future__ import annotations

from typing import Final

NAMED_MAX: Final = 5
LISTED_MAX: Final = 20
Reasons = dict[str, str]
"""Name of a value → why it is not saved or not restored."""


def a(name: str) -> str:
    """Return a noun with its article."""
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def listed(reasons: Reasons) -> list[str]:
    """Return the first reasons, each with its name, and the number of the others."""
    more = len(reasons) - LISTED_MAX
    shown = [f"{name}: {why}" for name, why in list(reasons.items())[:LISTED_MAX]]
    return [*shown, f"and {more:,} more"] if more > 0 else shown


def other_value(before: str, now: str) -> str:
    """Return the reason for a value that never moved, with its marks."""
    if " " in before or " " in now:
        return "it is built with other values at each start"
    return f"{before} at the checkpoint, {now} now"


def not_saved(unsaved: Reasons) -> str:
    """Return the warning before step 1."""
    return (
        f"not saved, so a resumed run is not exact: {_listed(unsaved)}; list attributes of the "
        "task that training does not depend on in its not_state"
    )


def not_exact(lost: Reasons) -> str:
    """Return the warning of a run that resumes without some state."""
    return f"this resumed run is not exact: {_listed(lost)}"


def _listed(reasons: Reasons) -> str:
    more = len(reasons) - NAMED_MAX
    shown = [f"{name} ({why})" for name, why in list(reasons.items())[:NAMED_MAX]]
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
