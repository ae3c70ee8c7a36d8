"""Names and symbolic links of a code archive: all must stay inside its own tree.

Links are followed part by part instead of by normalizing their text: with ``d/up -> ..`` in the
archive, the text ``d/up/x`` looks harmless and is not. No path may lead *through* a link.

Not here: reading an archive (``api.jobs.archives`` before it is stored, ``worker.launch.code``
before it is used), writing one (``client.archive``).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

PATH_CHARS_MAX: Final = 1_024


class UnsafeMemberError(Exception):
    """A member leads out of the archive's tree, or through a link. The message names it."""

    def __init__(self, message: str, name: str):
        super().__init__(message)
        self.name = name


class ArchiveTree:
    """Paths of an archive, added as its members are read.

    A member behind an earlier link is refused at once, so a reader may unpack each member after
    adding it. Rules that depend on later members are checked by :meth:`check`.
    """

    def __init__(self) -> None:
        self.paths: set[tuple[str, ...]] = set()
        self._links: dict[tuple[str, ...], str] = {}

    @property
    def links(self) -> Collection[tuple[str, ...]]:
        """Paths of the symbolic links."""
        return self._links.keys()

    def add(self, name: str, link_target: str | None = None) -> tuple[str, ...]:
        """Note a member, and the target if it is a symbolic link; returns the parts of its name.

        Raises
        ------
        UnsafeMemberError
        UnicodeEncodeError
            If the name is not UTF-8.
        """
        parts = parts_of(name)
        self._check_behind(parts)
        if parts in self._links:
            # A file of that name would be written to the link's target.
            raise UnsafeMemberError(
                f"member {name!r} follows a symbolic link of the same name", name
            )
        self.paths.add(parts)
        if link_target is not None:
            self._check_target(parts, link_target)
            self._links[parts] = link_target
        return parts

    def check(self) -> None:
        """Check after all members that none lies behind a link, and that no target passes a link.

        Raises
        ------
        UnsafeMemberError
        """
        for parts in self.paths:
            self._check_behind(parts)
        for parts, target in self._links.items():
            self._check_target(parts, target)
            self._check_loop(parts)

    def _check_behind(self, parts: tuple[str, ...]) -> None:
        if any(parts[:end] in self._links for end in range(1, len(parts))):
            name = "/".join(parts)
            raise UnsafeMemberError(
                f"member {name!r} has a symbolic link of the archive in its path", name
            )

    def _check_loop(self, link: tuple[str, ...]) -> None:
        seen, here = set(), link
        while here in self._links:
            if here in seen:
                name = "/".join(link)
                raise UnsafeMemberError(
                    f"member {name!r} links to {self._links[link]!r}, in a loop of links", name
                )
            seen.add(here)
            here = _followed(here, self._links[here])

    def _check_target(self, link: tuple[str, ...], target: str) -> None:
        name = "/".join(link)
        outside = UnsafeMemberError(
            f"member {name!r} links to {target!r}, outside the archive's folder", name
        )
        if target.startswith("/"):
            raise outside
        here = list(link[:-1])
        steps = [part for part in target.split("/") if part not in {"", "."}]
        for index, part in enumerate(steps):
            if part == "..":
                if not here:
                    raise outside
                here.pop()
                continue
            here.append(part)
            if index < len(steps) - 1 and tuple(here) in self._links:
                message = f"member {name!r} links to {target!r}, whose path contains another link"
                raise UnsafeMemberError(message, name)


def _followed(link: tuple[str, ...], target: str) -> tuple[str, ...]:
    """Return the path of a link's target, which stays inside."""
    here = list(link[:-1])
    for part in target.split("/"):
        if part == "..":
            here.pop()
        elif part not in {"", "."}:
            here.append(part)
    return tuple(here)


def parts_of(name: str) -> tuple[str, ...]:
    """The parts of a member's name, without ``.``.

    Raises
    ------
    UnsafeMemberError
    UnicodeEncodeError
        If the name is not UTF-8: such names come as surrogates.
    """
    name.encode()
    if name.startswith("/"):
        raise UnsafeMemberError(f"member {name!r} has an absolute path", name)
    if len(name) > PATH_CHARS_MAX or "\0" in name:
        message = (
            f"member {name[:80]!r}… has a path of more than {PATH_CHARS_MAX} characters, or with "
            f"a NUL character"
        )
        raise UnsafeMemberError(message, name[:80])
    parts = tuple(part for part in name.split("/") if part not in {"", "."})
    if ".." in parts:
        raise UnsafeMemberError(f"member {name!r} is outside the archive's folder", name)
    return parts
