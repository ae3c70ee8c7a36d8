"""Git repositories with jobs' code: the commit of a ref, and the files of a commit.

A branch moves, and a job may restart after a week. A ref is therefore resolved once, at the submit,
and the job keeps the commit.

The machine's ``git`` runs with the machine's credentials (keys, credential helpers) and without
password prompts. Only the transports of ``domain.spec.fields`` are allowed: git has others that run
commands. Submodules are fetched by the same rules. Large files (LFS, git-annex) are not, and are
named.

Not here: the transfer of code to a node, and its failures (``worker.launch.code``).
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic_core import PydanticCustomError

from lockstep.domain import limits
from lockstep.domain.archive_tree import GIT_POINTER_BYTES_MAX, is_git_pointer
from lockstep.domain.spec.fields import COMMIT, GIT_TRANSPORTS, git_url

LOOK_SECONDS: Final = 15.0
"""For a server to list its refs; a submit waits for it."""
FETCH_SECONDS: Final = 600.0
SUBMODULE_DEPTH_MAX: Final = 5
_SAID_CHARS_MAX: Final = 500
_NAMED_MAX: Final = 3


class RepositoryError(Exception):
    """The repository has no such ref or commit, or more in it than a job may bring.

    Trying again does not help.
    """


class RepositoryUnreachableError(OSError):
    """The repository does not answer, or not to this machine. That may pass."""


def commit_of(url: str, ref: str) -> str:
    """Return the current commit of a ref as 40 (or 64) hexadecimal digits.

    A commit id is returned without a request.

    Raises
    ------
    RepositoryError
        If the repository has no such ref.
    UnreachableError
        If it does not answer within ``LOOK_SECONDS``.
    """
    if re.fullmatch(COMMIT, ref):
        return ref
    answer = _git("ls-remote", "--", url, ref, f"{ref}^{{}}", seconds=LOOK_SECONDS)
    found = {
        name: commit for commit, _, name in (line.partition("\t") for line in answer.splitlines())
    }
    # As gitrevisions(7) orders them; of a tag with a message, the commit that it is for.
    for name in (ref, f"refs/{ref}", f"refs/tags/{ref}", f"refs/heads/{ref}"):
        commit = found.get(f"{name}^{{}}") or found.get(name)
        if commit:
            return commit
    raise RepositoryError(f"the repository {url} has no branch or tag {ref!r}")


def bring(url: str, commit: str, target: Path) -> None:
    """Write the files of a commit to the new folder ``target``.

    Raises
    ------
    RepositoryError
        If the repository has no such commit, or it holds more than an uploaded archive may.
    UnreachableError
        If it does not answer, or takes longer than ``FETCH_SECONDS``.
    """
    with tempfile.TemporaryDirectory(prefix=".git-", dir=target.parent) as folder:
        repository = Path(folder, "repository")
        _git("init", "--quiet", "--template=", str(repository))
        _fill(repository, url, commit, _Total(), depth=0)
        repository.rename(target)


@dataclass
class _Total:
    """Files and bytes of a commit with its submodules."""

    files: int = 0
    bytes: int = 0


def _fill(repository: Path, url: str, commit: str, total: _Total, *, depth: int) -> None:
    """Write the files of a commit and of its submodules into a new repository's folder."""
    inside = ("-C", str(repository))
    _fetch(url, commit, inside)
    entries = _git(*inside, "ls-tree", "-r", "-l", "-z", commit, seconds=FETCH_SECONDS)
    _check_size(entries, total)
    _git(*inside, "checkout", "--quiet", "--force", "--detach", commit, seconds=FETCH_SECONDS)
    links = [entry.split("\t", 1) for entry in entries.split("\0") if entry.startswith("160000 ")]
    addresses = _submodules(inside, repository) if links else {}
    shutil.rmtree(repository / ".git")
    for described, path in links:
        name = f"submodule {path!r} of {url}"
        if depth == SUBMODULE_DEPTH_MAX:
            raise RepositoryError(
                f"{name} is nested deeper than {SUBMODULE_DEPTH_MAX} levels; send the folder with "
                f"--code DIR"
            )
        if path not in addresses:
            raise RepositoryError(
                f"{name} has no address in .gitmodules; add it, or remove the link"
            )
        address = _absolute(url, addresses[path])
        try:
            git_url(address)
        except PydanticCustomError as error:
            raise RepositoryError(
                f"{name} has the address {address!r}: {error.message()}"
            ) from None
        if address.startswith("file:") and not url.startswith("file:"):
            raise RepositoryError(f"{name} is a folder of the node ({address}), which is not read")
        folder = repository / path
        if folder.is_symlink() or not folder.resolve().is_relative_to(repository.resolve()):
            raise RepositoryError(f"{name} lies behind a link")
        shutil.rmtree(folder, ignore_errors=True)
        _git("init", "--quiet", "--template=", str(folder))
        try:
            _fill(folder, address, described.split()[2], total, depth=depth + 1)
        except RepositoryUnreachableError as error:
            raise RepositoryUnreachableError(f"{name}: {error}") from None


def _submodules(inside: tuple[str, str], repository: Path) -> dict[str, str]:
    """Return the address of each submodule by its path."""
    if not (repository / ".gitmodules").is_file() or (repository / ".gitmodules").is_symlink():
        return {}
    listing = _git(*inside, "config", "--file", ".gitmodules", "--no-includes", "--list", "--null")
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for line in filter(None, listing.split("\0")):
        key, _, value = line.partition("\n")
        section, _, field = key.rpartition(".")
        found[section][field] = value
    return {
        each["path"]: each["url"] for each in found.values() if "path" in each and "url" in each
    }


def _absolute(url: str, address: str) -> str:
    """Return the address of a submodule, which may be relative to its parent's."""
    if not address.startswith(("./", "../")):
        return address
    base = url.rstrip("/")
    while address.startswith(("./", "../")):
        if address.startswith("../"):
            before, separator, _ = base.rpartition("/")
            base = before if separator else base.rpartition(":")[0] + ":"
        address = address.partition("/")[2]
    return base + address if base.endswith(":") else f"{base}/{address}"


def elsewhere(folder: Path) -> str:
    """Return a clause about files whose content git keeps elsewhere (LFS, git-annex), or ""."""
    found = sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if _is_pointer(path)
    )
    if not found:
        return ""
    more = f" and {len(found) - _NAMED_MAX} more" if len(found) > _NAMED_MAX else ""
    named = ", ".join(found[:_NAMED_MAX])
    return (
        f"{named}{more} {'are pointers' if len(found) > 1 else 'is a pointer'} to content that git "
        f"keeps elsewhere (LFS, git-annex)"
    )


def _is_pointer(path: Path) -> bool:
    if path.is_symlink():
        return ".git/annex/objects/" in str(path.readlink())
    with contextlib.suppress(OSError):
        if path.is_file() and path.stat().st_size <= GIT_POINTER_BYTES_MAX:
            return is_git_pointer(path.read_bytes())
    return False


def _fetch(url: str, commit: str, inside: tuple[str, str]) -> None:
    try:
        _git(
            *inside,
            "fetch",
            "--quiet",
            "--depth=1",
            "--no-tags",
            "--",
            url,
            commit,
            seconds=FETCH_SECONDS,
        )
    except RepositoryUnreachableError:
        # Not every server serves a commit without a ref. Then everything is fetched; an absent
        # server fails again.
        every = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
        _git(*inside, "fetch", "--quiet", "--", url, *every, seconds=FETCH_SECONDS)
    try:
        _git(*inside, "cat-file", "-e", f"{commit}^{{commit}}")
    except RepositoryUnreachableError:
        raise RepositoryError(
            f"the repository {url} has no commit {commit}, or none on a branch or tag"
        ) from None


def _check_size(listing: str, total: _Total) -> None:
    entries = [entry.split(None, 4) for entry in listing.split("\0") if entry]
    total.files += len(entries)
    if total.files > limits.UPLOAD_FILES_MAX:
        raise RepositoryError(
            f"the commit has {total.files} files; expected at most {limits.UPLOAD_FILES_MAX}"
        )
    total.bytes += sum(
        int(size) for _, _, _, size, _ in entries if size.isdecimal()
    )  # "-" of a submodule
    if total.bytes > limits.UPLOAD_UNPACKED_BYTES_MAX:
        raise RepositoryError(
            f"the commit's files have {total.bytes} bytes; expected at most "
            f"{limits.UPLOAD_UNPACKED_BYTES_MAX}"
        )


def _git(*words: str, seconds: float = 60.0) -> str:
    """Return git's output.

    Every failure is an ``RepositoryUnreachableError``: git does not distinguish them.
    """
    environ = {
        name: value
        for name, value in os.environ.items()
        if name not in {"GIT_DIR", "GIT_WORK_TREE"}
    }
    environ |= {
        "GIT_ALLOW_PROTOCOL": ":".join(GIT_TRANSPORTS),
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_SSH_COMMAND": environ.get("GIT_SSH_COMMAND", "ssh -oBatchMode=yes"),
        "GIT_LFS_SKIP_SMUDGE": "1",
        "LC_ALL": "C",
    }
    try:
        done = subprocess.run(
            ["git", "-c", "core.hooksPath=/dev/null", "-c", "advice.detachedHead=false", *words],
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RepositoryUnreachableError(
            f"git {_verb(words)} took longer than {seconds:g} s"
        ) from None
    except FileNotFoundError:
        raise RepositoryUnreachableError("git is not installed on this machine") from None
    if done.returncode != 0:
        raise RepositoryUnreachableError(
            f"git {_verb(words)}: {done.stderr.strip()[-_SAID_CHARS_MAX:]}"
        )
    return done.stdout


def _verb(words: tuple[str, ...]) -> str:
    return words[2] if words[0] == "-C" else words[0]
