"""Git repositories with jobs' code: the commit of a ref, and the files of a commit.

A branch moves, and a job may restart after a week. A ref is therefore resolved once, at the submit,
and the job keeps the commit.

The machine's ``git`` runs with the machine's credentials (keys, credential helpers) and without
password prompts. Only the transports of ``domain.spec.fields`` are allowed: git has others that run
commands. Submodules are not fetched.

Not here: the transfer of code to a node, and its failures (``worker.launch.code``).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from lockstep.domain import limits
from lockstep.domain.spec.fields import COMMIT, GIT_TRANSPORTS

LOOK_SECONDS: Final = 15.0
"""For a server to list its refs; a submit waits for it."""
FETCH_SECONDS: Final = 600.0
_SAID_CHARS_MAX: Final = 500


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
        inside = ("-C", str(repository))
        _fetch(url, commit, inside)
        _check_size(_git(*inside, "ls-tree", "-r", "-l", "-z", commit, seconds=FETCH_SECONDS))
        _git(*inside, "checkout", "--quiet", "--force", "--detach", commit, seconds=FETCH_SECONDS)
        shutil.rmtree(repository / ".git")
        repository.rename(target)


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


def _check_size(listing: str) -> None:
    entries = [entry.split(None, 4) for entry in listing.split("\0") if entry]
    if len(entries) > limits.UPLOAD_FILES_MAX:
        raise RepositoryError(
            f"the commit has {len(entries)} files; expected at most {limits.UPLOAD_FILES_MAX}"
        )
    total_bytes = sum(
        int(size) for _, _, _, size, _ in entries if size.isdecimal()
    )  # "-" of a submodule
    if total_bytes > limits.UPLOAD_UNPACKED_BYTES_MAX:
        raise RepositoryError(
            f"the commit's files have {total_bytes} bytes; expected at most "
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
