"""Names and kinds of a code archive's members: all must stay inside its own tree.

Files, folders and symbolic links are accepted, each name once. Links are followed part by part
instead of by normalizing their text: with ``d/up -> ..`` in the archive, the text ``d/up/x`` looks
harmless and is not. No path may lead *through* a link.

Not here: reading an archive (``api.jobs.archives`` before it is stored, ``worker.launch.code``
before it is used), writing one (``client.archive``).
"""

from __future__ import annotations

import tarfile
from collections.abc import Collection
from typing import Final

NAME_BYTES_MAX: Final = 255
"""One part of a path, as in every usual file system."""
PATH_BYTES_MAX: Final = 2_048
"""A path or the target of a link. The kernel's limit is 4,095 with the node's folder before it."""

GIT_POINTER_BYTES_MAX: Final = 1_024
_GIT_POINTERS: Final = (b"version https://git-lfs.github.com/spec/", b"/annex/objects/")


class UnsafeMemberError(Exception):
    """A member leads out of the archive's tree, or through a link. The message names it."""

    def __init__(self, message: str, name: str):
        super().__init__(message)
        self.name = name


class ArchiveTree:
    """Paths of an archive, added as its members are read.

    A member that contradicts an earlier one is refused at once, so a reader may unpack each member
    after adding it, into a new folder. Rules that depend on later members are checked by
    :meth:`check`.
    """

    def __init__(self) -> None:
        self.paths: set[tuple[str, ...]] = set()
        self._links: dict[tuple[str, ...], str] = {}
        self._files: set[tuple[str, ...]] = set()
        self._folders: set[tuple[str, ...]] = set()
        """Also those that only have members."""

    @property
    def links(self) -> Collection[tuple[str, ...]]:
        """Paths of the symbolic links."""
        return self._links.keys()

    def add(self, member: tarfile.TarInfo) -> tuple[str, ...]:
        """Note a member; returns the parts of its name, none for the archive's own folder.

        Raises
        ------
        UnsafeMemberError
        UnicodeEncodeError
            If the name is not UTF-8.
        """
        name, parts = member.name, parts_of(member.name)
        if not (member.isreg() or member.isdir() or member.issym()):
            raise UnsafeMemberError(
                f"member {name!r} is a {_kind_of(member)}; only files, folders and symbolic links "
                f"are accepted",
                name,
            )
        if not parts and not member.isdir():
            raise UnsafeMemberError("a member of the archive has no name", name)
        if not parts:
            return parts
        self._check_place(name, parts, is_folder=member.isdir())
        self.paths.add(parts)
        self._folders.update(parts[:end] for end in range(1, len(parts)))
        if member.isdir():
            self._folders.add(parts)
        elif member.issym():
            self._check_target(parts, member.linkname)
            self._links[parts] = member.linkname
        else:
            self._files.add(parts)
        return parts

    def check(self) -> None:
        """Check after all members that no target of a link passes another link.

        Raises
        ------
        UnsafeMemberError
        """
        for parts, target in self._links.items():
            self._check_target(parts, target)
            self._check_loop(parts)

    def _check_place(self, name: str, parts: tuple[str, ...], *, is_folder: bool) -> None:
        if parts in self.paths:
            raise UnsafeMemberError(f"member {name!r} is twice in the archive", name)
        above = [parts[:end] for end in range(1, len(parts))]
        if not self._links.keys().isdisjoint(above):
            raise UnsafeMemberError(
                f"member {name!r} has a symbolic link of the archive in its path", name
            )
        if not self._files.isdisjoint(above) or (not is_folder and parts in self._folders):
            raise UnsafeMemberError(
                f"member {name!r} makes the same name a folder and something else", name
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
        if not 0 < len(target.encode(errors="surrogateescape")) <= PATH_BYTES_MAX or "\0" in target:
            raise UnsafeMemberError(
                f"member {name!r} links to a path that is empty, has a NUL character, or is longer "
                f"than {PATH_BYTES_MAX:,} bytes",
                name,
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
    size = len(name.encode())
    if size > PATH_BYTES_MAX or "\0" in name:
        message = (
            f"member {name[:80]!r}… has a path of more than {PATH_BYTES_MAX:,} bytes, or with a "
            f"NUL character"
        )
        raise UnsafeMemberError(message, name[:80])
    if name.startswith("/"):
        raise UnsafeMemberError(f"member {name!r} has an absolute path", name)
    parts = tuple(part for part in name.split("/") if part not in {"", "."})
    long = next((part for part in parts if len(part.encode()) > NAME_BYTES_MAX), None)
    if long is not None:
        raise UnsafeMemberError(
            f"member {long[:80]!r}… has a name of more than {NAME_BYTES_MAX} bytes, which no node "
            f"can store",
            long[:80],
        )
    if ".." in parts:
        raise UnsafeMemberError(f"member {name!r} is outside the archive's folder", name)
    return parts


def is_git_pointer(content: bytes) -> bool:
    """Return whether a file only names content that git keeps elsewhere (LFS, git-annex)."""
    return len(content) <= GIT_POINTER_BYTES_MAX and content.startswith(_GIT_POINTERS)


def _kind_of(member: tarfile.TarInfo) -> str:
    if member.islnk():
        return "hard link"
    if member.isfifo():
        return "named pipe"
    return "device" if member.isdev() else "member of an unknown type"
