"""A NATS server with JetStream for comparisons, and the bytes that its clients send."""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# The stream of tests/bench/nats takes messages of this subject. It has one message.
_PUBLISH = "bench"
_DIRECT_GET = "$JS.API.DIRECT.GET.BENCH"


@contextmanager
def nats_server(program: Path, *flags: str) -> Iterator[tuple[int, int]]:
    """Run the program of tests/bench/nats. Yield its port and process id."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(program), *flags, folder]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                yield int(process.stdout.readline()), process.pid
            finally:
                process.kill()


def opening(connection: int) -> bytes:
    """Return the first bytes of a connection. The answers to its requests come to it alone."""
    options = '{"verbose":false,"headers":true,"no_responders":true}'
    return f"CONNECT {options}\r\nSUB answer.{connection} 1\r\n".encode()


def publish(connection: int, payload: bytes) -> bytes:
    """Return a message that JetStream acknowledges."""
    return _message(_PUBLISH, connection, payload)


def get_oldest(connection: int) -> bytes:
    return _message(_DIRECT_GET, connection, b'{"seq":1}')


def _message(subject: str, connection: int, payload: bytes) -> bytes:
    return f"PUB {subject} answer.{connection} {len(payload)}\r\n".encode() + payload + b"\r\n"
