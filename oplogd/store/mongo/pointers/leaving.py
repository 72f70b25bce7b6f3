"""The part of the sweep that concerns pointers: what leaves with their entries."""

from collections.abc import Callable, Iterable

from oplogd.store.mongo.link import Link
from oplogd.store.mongo.pointers.aborted import Aborted
from oplogd.store.mongo.pointers.rows import Rows, pointer_and_number
from oplogd.store.mongo.pointers.stored import MAX_NUMBER, StoredMessages
from oplogd.store.mongo.topics.layout import (
    END_NUMBER,
    PUBLISH_BASE,
    Document,
    is_number,
    number_of,
    owner_of,
)
from oplogd.transaction import FIRST_ID


class Leaving:
    """Methods raise PyMongo's errors."""

    def __init__(self, link: Link, stored: StoredMessages) -> None:
        self._rows = Rows(link)
        self._aborted = Aborted(link, stored)
        self._stored = stored

    async def void_aborted(self, is_allowed: Callable[[], bool]) -> None:
        """Void the entries of aborted pointers, some at a time while it is allowed."""
        await self._aborted.void_all(is_allowed)

    async def remove_stored(self, entries: Iterable[Document]) -> None:
        """Remove the stored messages that leave with entries."""
        ranges: dict[tuple[int, int], int] = {}
        for each in entries:
            identity = each.get("x")
            if identity is None or not is_number(identity) or owner_of(identity) >= FIRST_ID:
                continue
            number = number_of(identity)
            upto = MAX_NUMBER if number == END_NUMBER else number - PUBLISH_BASE
            if upto > 0:
                pair = pointer_and_number(identity)
                ranges[pair] = max(upto, ranges.get(pair, 0))
        await self._stored.remove([(*pair, upto) for pair, upto in ranges.items()])

    async def remove_log(self, log: int) -> None:
        """Remove all that is left of the pointers of a log."""
        keys = await self._rows.of_log(log)
        await self._stored.remove([(*pointer_and_number(each), MAX_NUMBER) for each in keys])
        await self._rows.remove(keys)
