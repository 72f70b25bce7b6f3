"""The bounds of the records waiting in memory for the store. No I/O."""

from collections.abc import Iterator
from contextlib import contextmanager

from oplogd.errors import QueueFullError
from oplogd.watch.bounded import Admit, admit_all


class RecordRoom:
    """Room for the records of requests, from their decoding until the store has taken them.

    ``admit``: called for the records of each request.
    """

    def __init__(self, max_records: int, max_bytes: int, admit: Admit = admit_all) -> None:
        self._admit = admit
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._records = 0
        self._bytes = 0

    def require_disk(self) -> None:
        """Raise DiskFullError while nothing is taken because the disk is full."""
        self._admit(0, 0)

    @contextmanager
    def taken(self, records: int, size: int) -> Iterator[None]:
        """Take room. A request waiting alone gets it, if the disk has room.

        Raises QueueFullError and DiskFullError.
        """
        if self._records and (
            self._records + records > self._max_records or self._bytes + size > self._max_bytes
        ):
            raise QueueFullError(
                f"{self._bytes:,} bytes of records from other requests wait for the store;"
                " try again later"
            )
        self._admit(records, size)
        self._records += records
        self._bytes += size
        try:
            yield
        finally:
            self._records -= records
            self._bytes -= size
