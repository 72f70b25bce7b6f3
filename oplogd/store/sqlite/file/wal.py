"""The size of the write-ahead log: SQLite cannot cut it back while a reader has an old state."""

import logging
from pathlib import Path

from oplogd.host.logs import Episode

# SQLite moves the log into the file every 40 MB and cuts it back to 64 MiB.
LARGE_BYTES = 96 * 1024 * 1024

logger = logging.getLogger("oplogd.store")


class WriteAheadLog:
    """The log beside the file at ``path``."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(f"{path.name}-wal")
        self._large = Episode(logger, f"store {path}: its write-ahead log is large")

    def size(self) -> int:
        """Return its size in bytes, 0 if there is none."""
        try:
            return self._path.stat().st_size
        except OSError:
            return 0

    def look(self) -> None:
        """Log the begin and the end of the time in which it is large. One thread calls it."""
        if self.size() > LARGE_BYTES:
            self._large.occurred(detail=_REASON)
        elif self._large.active:
            self._large.end()

    def warning(self) -> str | None:
        """Return the sentence for /status while it is large."""
        size = self.size()
        if size <= LARGE_BYTES:
            return None
        return f"the write-ahead log has {size >> 20} MiB: {_REASON}"


_REASON = (
    "a process that reads the file for long, or a very large transaction, keeps it so;"
    " find the process (fuser FILE) and end its read"
)
