"""Commands for a shell that run Python programs as forks.

A command sends its arguments, environment and standard streams to the process of the tests, passes
on signals, and ends with the exit code of the program. If it is killed, the program is killed.
"""

import marshal
import os
import socket
import sys
import threading
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.kits.processes import knock
from tests.kits.processes.forked import Forked

_MAX_REQUEST = 1 << 18


class Commands:
    """The commands in ``folder``, which belongs into PATH.

    ``programs``: name of a command -> arguments of Python, before those of the command.
    """

    def __init__(self, folder: Path, programs: Mapping[str, str]) -> None:
        door = f"oplog-tests-{uuid.uuid4()}"
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listening.bind(f"\0{door}")  # an abstract name: it may be long and needs no file
        self._listening.listen()
        folder.mkdir()
        for name, arguments in programs.items():
            command = f"{sys.executable} -I -S {knock.__file__} {door} {arguments}"
            (folder / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
            (folder / name).chmod(0o755)
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:  # closed
                return
            self._threads.append(threading.Thread(target=_serve, args=(connection,), daemon=True))
            self._threads[-1].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._listening.close()
        for thread in self._threads:
            thread.join()


def _serve(connection: socket.socket) -> None:
    """Run the program of one command."""
    with connection:
        raw, streams, _, _ = socket.recv_fds(connection, _MAX_REQUEST, 3)
        if not raw:
            return
        arguments, folder, environ = marshal.loads(raw)
        try:
            process = Forked[bytes](
                [sys.executable, *arguments],
                cwd=folder, env=environ, stdin=streams[0], stdout=streams[1], stderr=streams[2],
            )  # fmt: skip
        except (IndexError, ValueError):  # the command starts a new Python
            return
        finally:
            for stream in streams:
                os.close(stream)
        waiting = threading.Thread(target=_pass_on_signals, args=(connection, process))
        waiting.start()
        code = process.wait()
        with suppress(OSError):  # the command was killed
            connection.send(b"%d" % code)
        waiting.join()


def _pass_on_signals(connection: socket.socket, process: "Forked[bytes]") -> None:
    """Send each signal to the program until the command has ended, then kill the program."""
    with suppress(ConnectionResetError):
        while number := connection.recv(100):
            process.send_signal(int(number))
    process.kill()
