"""Open a name below a folder without following a link.

The kernel does it by one call (``openat2``, Linux 5.6). Where it refuses that, each part of the
name is opened without following a link.

Not here: the kinds and sizes of files (``system.untrusted``).
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from typing import Final, Literal

Why = Literal["link", "not_regular", "too_large", "too_many", "too_deep", "unreadable"]

_OPENAT2: Final = 437
"""The number of the system call, equal on all machines."""
_BENEATH_WITHOUT_LINKS: Final = 0x08 | 0x04 | 0x02
"""``RESOLVE_BENEATH``, ``RESOLVE_NO_SYMLINKS`` and ``RESOLVE_NO_MAGICLINKS``."""
_TEXTS: Final[dict[Why, str]] = {
    "link": "is a symbolic link, or lies behind one",
    "not_regular": "is not a regular file",
    "too_large": "is larger than it may be",
    "too_many": "has more entries than it may have",
    "too_deep": "has a name that is too long",
    "unreadable": "cannot be read by this user",
}
_REFUSALS: Final[dict[int, Why]] = {
    errno.ELOOP: "link",
    errno.ENXIO: "not_regular",  # a socket, or a pipe without a reader
    errno.ENODEV: "not_regular",
    errno.EISDIR: "not_regular",
    errno.EACCES: "unreadable",
    errno.ENAMETOOLONG: "too_deep",
}
_libc: Final = ctypes.CDLL(None, use_errno=True)
_renameat2: Final = getattr(_libc, "renameat2", None)
"""None in an old C library."""
_RENAME_EXCHANGE: Final = 2


class UnsafeFileError(OSError):
    """A name below the folder that is refused."""

    def __init__(self, name: str, why: Why):
        super().__init__(f"{name} {_TEXTS[why]}")
        self.name = name
        self.why = why


class _OpenHow(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


class KernelCalls:
    """System calls of this kernel."""

    has_openat2 = True
    """False once the kernel has refused the call, and in tests."""


def opened(top: int, name: str, flags: int) -> int:
    """Open a name below an open folder, or the folder itself for an empty name.

    Raises
    ------
    UnsafeFileError
        If a part of the name is a symbolic link, or the name may not be opened with these flags.
    OSError
        As the kernel's ``open``.
    """
    try:
        return _opened(top, checked(name) if name else ".", flags)
    except OSError as error:
        if error.errno in _REFUSALS:
            raise UnsafeFileError(name, _REFUSALS[error.errno]) from None
        raise


def _opened(top: int, name: str, flags: int) -> int:
    if KernelCalls.has_openat2:
        mode = 0o600 if flags & os.O_CREAT else 0
        how = _OpenHow(flags, mode, _BENEATH_WITHOUT_LINKS)
        descriptor: int = _libc.syscall(
            ctypes.c_long(_OPENAT2),
            ctypes.c_long(top),
            ctypes.c_char_p(os.fsencode(name)),
            ctypes.byref(how),
            ctypes.c_size_t(ctypes.sizeof(how)),
        )
        if descriptor >= 0:
            return descriptor
        number = ctypes.get_errno()
        # EPERM: a container's filter may refuse the call with this number.
        if number not in {errno.ENOSYS, errno.EPERM}:
            raise OSError(number, os.strerror(number), name)
        KernelCalls.has_openat2 = number != errno.ENOSYS
    return _part_by_part(top, name, flags)


def exchanged(folder: int, one: str, other: str) -> bool:
    """Exchange the names of two files of an open folder at once; return whether that was possible.

    It needs neither space nor an inode. Not each file system can do it.
    """
    try:
        mode = os.stat(other, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(mode) or _renameat2 is None:
        return False
    names = os.fsencode(one), os.fsencode(other)
    return bool(_renameat2(folder, names[0], folder, names[1], _RENAME_EXCHANGE) == 0)


def checked(name: str) -> str:
    """Return a relative name without empty parts, ``.`` and ``..``.

    Raises
    ------
    ValueError
    """
    if "\0" in name or {"", ".", ".."} & set(name.split("/")):
        raise ValueError(f"{name!r} is not a name below a folder")
    return name


def _part_by_part(top: int, name: str, flags: int) -> int:
    *above, last = name.split("/")
    here = os.dup(top)
    try:
        for part in above:
            folder = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            below = _without_a_link(here, part, folder)
            os.close(here)
            here = below
        return _without_a_link(here, last, flags | os.O_NOFOLLOW)
    finally:
        os.close(here)


def _without_a_link(folder: int, part: str, flags: int) -> int:
    try:
        return os.open(part, flags, 0o600, dir_fd=folder)
    except NotADirectoryError:  # The answer to O_DIRECTORY for a link, too.
        if stat.S_ISLNK(os.stat(part, dir_fd=folder, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), part) from None
        raise
