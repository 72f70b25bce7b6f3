"""Servers that all processes of a test run share. The first test that needs one starts it.

The main process of the run has the room, and ends the servers with the run. Its test processes ask
for a server by name over a Unix socket, whose path is in a variable of the environment.
"""

import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Protocol, Self

from tests.kits.servers import watch

VARIABLE = "OPLOG_TEST_SERVERS"
# Seconds for the start of a server on a busy machine.
DEADLINE = 300.0
# The end of a server's log that is told, in characters.
_TOLD = 4_000

Address = dict[str, Any]


class Server(Protocol):
    """A server that runs within ``with``."""

    def reached_at(self) -> Address:
        """Return all that another process needs to reach the server, for JSON."""

    def end_signal(self) -> tuple[int, int]:
        """Return a signal that ends the server at once, and the process that it is for."""

    def start(self) -> None:
        """Start the server again at the same address, with the data in its folder, if any."""

    def kill(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: Any) -> None: ...


class UnavailableError(Exception):
    """The server cannot run on this machine. The text names the missing program."""


class ServerRoom:
    """``makers``: how to make each server, given an empty folder. They raise UnavailableError.

    A server that ends before the run is started again without its data: its end fails the tests
    that it meets, not all that follow. FerretDB has hung over what a crash had left of a database.
    ``ended`` has a text for each such end, with what the server wrote last.
    """

    def __init__(self, makers: Mapping[str, Callable[[Path], Server]]) -> None:
        self._makers = makers
        self._locks = {name: threading.Lock() for name in makers}
        self._answers: dict[str, Address] = {}
        self.ended: list[str] = []
        self._servers = ExitStack()
        self._watch: subprocess.Popen[str] | None = None
        self._watch_lock = threading.Lock()
        self._is_closing = False
        self._folder = Path(tempfile.mkdtemp(prefix="oplog-servers-"))
        path = str(self._folder / "socket")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(path)
        self._listener.listen(64)
        os.environ[VARIABLE] = path
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), connection, connection.makefile("rw") as file:
            name = file.readline().strip()
            with self._locks[name]:
                answer = self._answers.get(name) or self._start(name)
            file.write(json.dumps(answer) + "\n")

    def _start(self, name: str) -> Address:
        """Start a server. A start that fails is tried again when the next test asks."""
        if self._is_closing:
            return {"error": "the run has ended"}
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        try:
            server = self._servers.enter_context(self._makers[name](folder))
        except UnavailableError as missing:
            self._answers[name] = {"unavailable": str(missing)}
        except Exception as error:
            return {"error": str(error)}
        else:
            self._answers[name] = server.reached_at()
            self._look_after(name, server)
        return self._answers[name]

    def _look_after(self, name: str, server: Server) -> None:
        self._tell_watch(*server.end_signal())
        process = os.pidfd_open(server.end_signal()[1])
        threading.Thread(target=self._await_end, args=(name, server, process), daemon=True).start()

    def _await_end(self, name: str, server: Server, process: int) -> None:
        select.select([process], [], [])
        os.close(process)
        with self._locks[name]:
            if self._is_closing:
                return
            folder = self._answers[name].get("folder") or self._folder / name
            log = Path(folder) / "server.log"
            said = log.read_text(errors="replace")[-_TOLD:] if log.exists() else ""
            self.ended.append(f"{name} ended before the run, and was started again.\n{said}")
            server.kill()
            shutil.rmtree(folder, ignore_errors=True)
            server.start()
            self._look_after(name, server)

    def _tell_watch(self, number: int, process: int) -> None:
        with self._watch_lock:
            if self._watch is None:
                self._watch = subprocess.Popen(
                    [sys.executable, "-I", "-S", watch.__file__, str(self._folder)],
                    stdin=subprocess.PIPE,
                    text=True,
                )
            assert self._watch.stdin is not None
            print(int(number), process, file=self._watch.stdin, flush=True)

    def close(self) -> None:
        """End all servers and remove their data."""
        self._is_closing = True
        self._listener.close()
        for lock in self._locks.values():
            lock.acquire()  # a server that starts now is ended, too
        self._servers.close()
        if self._watch is not None:
            self._watch.communicate("done\n", DEADLINE)
        shutil.rmtree(self._folder, ignore_errors=True)


def address_of(name: str) -> Address:
    """Return the address of a shared server. Start the server if no test has needed it yet.

    Raises UnavailableError.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(DEADLINE)
        sock.connect(os.environ[VARIABLE])
        with sock.makefile("rw") as file:
            file.write(f"{name}\n")
            file.flush()
            answer: Address = json.loads(file.readline())
    if reason := answer.get("unavailable"):
        raise UnavailableError(reason)
    assert "error" not in answer, f"{name} did not start:\n{answer['error']}"
    return answer
