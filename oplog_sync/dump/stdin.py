"""Read a dump from standard input."""

import io
import tempfile
from pathlib import Path
from typing import BinaryIO, cast

from oplog_sync.dump.files import MAGIC


def spool(source: BinaryIO, folder: Path) -> str:
    """Copy standard input to a file for Spark and return its name.

    The first bytes identify the compression.
    """
    head = source.read(4)
    suffix = next((name for magic, name in MAGIC.items() if head.startswith(magic)), "")
    with tempfile.NamedTemporaryFile(
        dir=folder, prefix="stdin.", suffix=f".jsonl{suffix}", delete=False
    ) as file:
        file.write(head)
        # Not read(): it may wait for a whole chunk, and signals would wait too.
        while chunk := cast(io.BufferedReader, source).read1(1 << 20):
            file.write(chunk)
    return file.name
