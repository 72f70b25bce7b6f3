"""The bytes of messages waiting for their publish."""

from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.pointers.rows import PointerRows
from oplogd.store.mongo.pointers.stored import Stored, StoredMessages, number_in
from oplogd.store.topics import ENTRY_BYTES as ENTRY_OCTETS

# Pointers of a topic that one look counts: the oldest ones.
_MOST = 200


class WaitingBytes:
    """Methods raise PyMongo's errors."""

    def __init__(self, link: Link, stored: StoredMessages) -> None:
        self._rows = PointerRows(link)
        self._stored = stored

    async def octets(self, log: int) -> int:
        """Return the bytes that stored messages of open pointers count in a topic."""
        pointers = await self._rows.with_stored(log, _MOST)
        found = [await self._stored.find(pointer, log) for pointer in pointers]
        return sum(map(new_octets, found))


def new_octets(found: Stored) -> int:
    """Return the bytes that the messages count which can be published."""
    first, last = found.first_new, found.last_new
    if first is None or last is None:
        return 0
    count = number_in(last) - number_in(first) + 1
    return int(last["o"] + last["z"] - first["o"]) + ENTRY_OCTETS * count
