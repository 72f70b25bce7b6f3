"""A Redis server for comparisons, from Debian's package redis-server."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kits.agents.agent import DEADLINE
from tests.kits.servers.ports import free_port


def is_installed() -> bool:
    return shutil.which("redis-server") is not None


@contextmanager
def redis_server(folder: Path) -> Iterator[tuple[int, int]]:
    """Run Redis that has each command on disk before its answer. Yield its port and process id."""
    port = free_port()
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
    command += ["--save", "", "--appendonly", "yes", "--appendfsync", "always"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + DEADLINE
            while not _answers(port):
                assert time.monotonic() < deadline, "redis-server does not answer"
                time.sleep(0.01)
            yield port, process.pid
        finally:
            process.terminate()


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.sendall(b"PING\r\n")
            return sock.recv(100) == b"+PONG\r\n"
    except ConnectionError:
        return False
