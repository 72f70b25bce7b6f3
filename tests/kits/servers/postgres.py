"""A PostgreSQL server for tests and benchmarks, with its data in a temporary folder."""

import itertools
import os
import pwd
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Self

from tests.kits.clock.waiting import attempts
from tests.kits.servers.ports import free_port
from tests.kits.servers.room import Address, UnavailableError

DEADLINE = 60.0
# Its members need their password, all others none.
_GUARDED = "guarded"
_HBA = f"""\
host all +{_GUARDED} 127.0.0.1/32 scram-sha-256
local all all trust
host all all 127.0.0.1/32 trust
"""
_READY = "database system is ready to accept connections"
_numbers = itertools.count(1)


def programs() -> Path:
    """Return the folder of ``initdb`` and ``postgres``: from PATH, else Debian's newest.

    Raises UnavailableError.
    """
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    versions = list(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not versions:
        raise UnavailableError("PostgreSQL is missing: `make test` installs it on Debian")
    return max(versions, key=lambda path: float(path.parent.parent.name)).parent


class PostgresServer:
    """A server on 127.0.0.1 and on a Unix socket. It starts again at the same port.

    ``reached_at``: of a server that another process has started. ``fsync``: as in production;
    without it a crash of the machine may lose data, a killed server loses none.
    """

    def __init__(self, *, fsync: bool = False, reached_at: Address | None = None) -> None:
        self._fsync = fsync
        self._process: subprocess.Popen[str] | None = None
        self._made: list[str] = []
        # PostgreSQL refuses to run as root.
        self._user = _other_user() if os.getuid() == 0 else None
        # A path of a Unix socket has at most 107 bytes; folders of pytest are for one user only.
        self.folder = Path(
            reached_at["folder"] if reached_at else tempfile.mkdtemp(prefix="oplog-pg-", dir="/tmp")
        )
        self.port: int = reached_at["port"] if reached_at else 0

    def reached_at(self) -> Address:
        return {"folder": str(self.folder), "port": self.port}

    def end_signal(self) -> tuple[int, int]:
        assert self._process is not None
        return signal.SIGQUIT, self._process.pid

    def start(self) -> None:
        """Start the server, and wait until it accepts connections."""
        is_new = not (self.folder / "data").exists()
        if is_new:
            self._create()
        self._start()
        if is_new:
            self.run(f"CREATE ROLE {_GUARDED}")

    def _start(self) -> None:
        for _ in range(10):
            port = self.port or free_port()
            if self._listens(port):
                self.port = port
                return
        raise AssertionError(f"PostgreSQL did not start:\n{self.log()}")

    def kill(self) -> None:
        """End all processes of the server at once: the next start recovers from its journal."""
        if self._process is None:
            return
        # Not SIGKILL: sessions that outlive the main process would prevent the next start.
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(DEADLINE)
        self._process = None

    def restart(self) -> None:
        self.kill()
        self.start()

    def new_database(self) -> str:
        """Create a database, and return its URL."""
        name = f"test_{os.getpid()}_{next(_numbers)}"
        self.run(f"CREATE DATABASE {name}")
        self._made.append(name)
        return self.url(name)

    def drop_databases(self) -> None:
        """Drop the databases that this process has made."""
        while self._made:
            self._drop(self._made[-1])
            self._made.pop()

    def _drop(self, name: str) -> None:
        """Drop a database. The server waits 5 s for its sessions, and a busy one needs longer."""
        from psycopg.errors import ObjectInUse

        for _ in attempts(DEADLINE):
            try:
                self.run(f"DROP DATABASE {name} WITH (FORCE)")
            except ObjectInUse as error:
                failure = error
            else:
                return
        raise failure

    @contextmanager
    def guarded_user(self, password: str) -> Iterator[str]:
        """Return a user who needs the password over TCP. It is dropped at the end.

        What it may do in a database is for the test to revoke.
        """
        name = f"guarded_{os.getpid()}_{next(_numbers)}"
        self.run(f"CREATE USER {name} PASSWORD '{password}' IN ROLE {_GUARDED}")
        try:
            yield name
        finally:
            self.run(f"DROP USER {name}")

    def url(self, database: str = "postgres", user: str = "postgres", password: str = "") -> str:
        """Return the URL of a database over TCP."""
        account = f"{user}:{password}" if password else user
        return f"postgresql://{account}@127.0.0.1:{self.port}/{database}"

    def socket_url(self, database: str = "postgres") -> str:
        """Return the URL of a database over the Unix socket."""
        return f"postgresql://postgres@/{database}?host={self.folder}&port={self.port}"

    def run(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Run a statement outside of a transaction, and return the rows of its result."""
        import psycopg  # every run of the tests imports this module

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def log(self) -> str:
        """Return what the server has logged."""
        return (self.folder / "server.log").read_text(errors="replace")

    def _create(self) -> None:
        if self._user is not None:
            shutil.chown(self.folder, self._user)
        options = ["--auth=trust", "--encoding=UTF8", "--no-locale", "--username=postgres"]
        ended = subprocess.run(
            [programs() / "initdb", *options, "--no-sync", "-D", self.folder / "data"],
            cwd=self.folder,
            user=self._user,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        (self.folder / "data/pg_hba.conf").write_text(_HBA)

    def _listens(self, port: int) -> bool:
        """Start the process; False if it ends, as it does when another one has the port."""
        durable = "on" if self._fsync else "off"
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": port,
            "unix_socket_directories": self.folder,
            "fsync": durable,
            "full_page_writes": durable,
            "shared_buffers": "128MB" if self._fsync else "32MB",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        process = subprocess.Popen(
            [programs() / "postgres", "-D", self.folder / "data", *options],
            cwd=self.folder,
            user=self._user,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        assert process.stderr is not None
        accepts: queue.SimpleQueue[bool] = queue.SimpleQueue()
        threading.Thread(target=self._keep_log, args=(process.stderr, accepts), daemon=True).start()
        if accepts.get(timeout=DEADLINE):
            self._process = process
            return True
        process.wait(DEADLINE)
        return False

    def _keep_log(self, lines: IO[str], accepts: "queue.SimpleQueue[bool]") -> None:
        with lines, (self.folder / "server.log").open("a", buffering=1) as log:
            for line in lines:
                log.write(line)
                if _READY in line:
                    accepts.put(True)
        accepts.put(False)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self.folder)


def _other_user() -> str:
    names = {each.pw_name for each in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"
