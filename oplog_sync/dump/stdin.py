"""Copy a dump from standard input to a file for Spark."""

import os
import select
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from oplog_sync.dump.files import MAGIC

_MAGIC_BYTES = max(map(len, MAGIC))
_CHUNK_BYTES = 1 << 20


def spool(source: BinaryIO, folder: Path) -> str:
    """Copy standard input to a file in the folder, and return its name.

    The source has been read by nobody before. In the main thread only, for the signals' sake.
    """
    with _waking() as signals:
        chunks = _chunks(source.fileno(), signals)
        head = b""
        while len(head) < _MAGIC_BYTES and (chunk := next(chunks, b"")):
            head += chunk
        suffix = next((name for magic, name in MAGIC.items() if head.startswith(magic)), "")
        with tempfile.NamedTemporaryFile(
            dir=folder, prefix="stdin.", suffix=f".jsonl{suffix}", delete=False
        ) as file:
            file.write(head)
            file.writelines(chunks)
    return file.name


def _chunks(source: int, signals: int | None) -> Iterator[bytes]:
    while True:
        if signals is not None and signals in select.select([source, signals], [], [])[0]:
            os.read(signals, _CHUNK_BYTES)  # Python calls its handler now
        elif chunk := os.read(source, _CHUNK_BYTES):
            yield chunk
        else:
            return


@contextmanager
def _waking() -> Iterator[int | None]:
    """Yield a descriptor that can be read when a signal has arrived. None: not on this platform.

    Otherwise a signal that arrives between Python's last look and the system call waits until the
    source says more.
    """
    if sys.platform == "win32":  # there, select knows sockets only
        yield None
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield reader
    finally:
        signal.set_wakeup_fd(before)
        os.close(reader)
        os.close(writer)
