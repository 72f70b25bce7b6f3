"""Standard input as a dump."""

import io
import tempfile
from pathlib import Path
from typing import BinaryIO, cast

from oplog_sync.dump.files import MAGIC


def spool(source: BinaryIO, folder: Path) -> str:
    """Copy standard input to a file that Spark can read; its first bytes tell its compression."""
    head = source.read(4)
    suffix = next((name for magic, name in MAGIC.items() if head.startswith(magic)), "")
    with tempfile.NamedTemporaryFile(
        dir=folder, prefix="stdin.", suffix=f".jsonl{suffix}", delete=False
    ) as file:
        file.write(head)
        # Not read: it may wait for the whole of a chunk, and would be deaf to a signal meanwhile.
        while chunk := cast(io.BufferedReader, source).read1(1 << 20):
            file.write(chunk)
    return file.name
