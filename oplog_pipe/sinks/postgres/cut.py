"""A bound for the time a connection to PostgreSQL may take."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg


@contextmanager
def cut_after(connection: psycopg.Connection[Any], seconds: float | None) -> Iterator[None]:
    """Cut the connection if the block takes longer: psycopg then raises OperationalError.

    The server's own time-outs do not work in a frozen server. None: no bound.
    """
    if seconds is None:
        yield
        return
    timer = threading.Timer(seconds, _cut, [connection])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _cut(connection: psycopg.Connection[Any]) -> None:
    try:
        with socket.socket(fileno=os.dup(connection.fileno())) as cut:
            cut.shutdown(socket.SHUT_RDWR)
    except (OSError, psycopg.Error):
        pass  # it has ended
