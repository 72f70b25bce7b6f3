"""The bound of the records that wait in memory for the store. No I/O."""

from collections.abc import Iterator
from contextlib import contextmanager

from oplogd.errors import QueueFullError


class Room:
    """Room for the records of requests, from their decoding until the store has taken them."""

    def __init__(self, max_records: int, max_octets: int) -> None:
        self._max_records = max_records
        self._max_octets = max_octets
        self._records = 0
        self._octets = 0

    @contextmanager
    def taken(self, records: int, octets: int) -> Iterator[None]:
        """Take room. A request that waits alone always gets it. Raises QueueFullError."""
        if self._records and (
            self._records + records > self._max_records or self._octets + octets > self._max_octets
        ):
            raise QueueFullError(
                f"{self._octets:,} bytes of records from other requests wait for the store;"
                " try again later"
            )
        self._records += records
        self._octets += octets
        try:
            yield
        finally:
            self._records -= records
            self._octets -= octets
