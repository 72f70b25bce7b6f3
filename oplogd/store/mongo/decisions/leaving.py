"""The sweep of pointers: rows and messages that leave with their entries.

The entries of aborted pointers are voided as by a rollback: the rings of agents learn of it from
the log. A note in ``oplog_aborted`` leaves when no entry of its pointer is left, in a log that is
gone, too.
"""

from collections.abc import Callable, Iterable

from oplogd.model.transaction import FIRST_ID
from oplogd.store.mongo.decisions.appends import PointerAppender
from oplogd.store.mongo.decisions.late import TimedOutList
from oplogd.store.mongo.decisions.rollbacks import Rollbacks
from oplogd.store.mongo.link.link import Link
from oplogd.store.mongo.link.topic_layout import (
    END_NUMBER,
    PUBLISH_BASE,
    Document,
    is_number,
    number_of,
    owner_of,
)
from oplogd.store.mongo.pointers.reports import Reports
from oplogd.store.mongo.pointers.rows import (
    ABORTED,
    PointerRows,
    key,
    pointer_and_log,
    pointer_and_number,
)
from oplogd.store.mongo.pointers.stored import MAX_NUMBER, StoredMessages
from oplogd.store.mongo.topics.append import TopicAppender
from oplogd.store.mongo.topics.catalogue import Catalogue


class Leaving:
    """Methods raise PyMongo's errors."""

    def __init__(
        self, link: Link, catalogue: Catalogue, stored: StoredMessages, appender: TopicAppender
    ) -> None:
        self._rows = PointerRows(link)
        self._reports = Reports(link)
        self._timed_out = TimedOutList(link)
        self._aborted = link.database[ABORTED]
        self._rollbacks = Rollbacks(link, catalogue, stored, PointerAppender(appender))
        self._stored = stored

    async def void_aborted(self, is_allowed: Callable[[], bool]) -> None:
        """Void the entries of aborted pointers while it is allowed."""
        while is_allowed() and (note := await self._aborted.find_one({})) is not None:
            pointer, log = pointer_and_log(note)
            todo = await self._rollbacks.pending(pointer, log)
            for each in todo or await self._rollbacks.note(pointer, log, None, is_free=True):
                await self._rollbacks.complete(each)
            if not todo:
                await self._aborted.delete_one({"_id": note["_id"]})

    async def remove_stored(self, log: int, entries: Iterable[Document]) -> None:
        """Remove the stored messages of leaving entries, and the notes about decisions."""
        ended: list[int] = []
        ranges: dict[tuple[int, int], int] = {}
        for each in entries:
            identity = each.get("x")
            if identity is None or not is_number(identity) or owner_of(identity) >= FIRST_ID:
                continue
            number = number_of(identity)
            if number == END_NUMBER:
                ended.append(owner_of(identity))
            upto = MAX_NUMBER if number == END_NUMBER else number - PUBLISH_BASE
            if upto > 0:
                pair = pointer_and_number(identity)
                ranges[pair] = max(upto, ranges.get(pair, 0))
        await self._stored.remove([(*pair, upto) for pair, upto in ranges.items()])
        if ended:
            await self._timed_out.remove(key(pointer, log) for pointer in ended)
            await self._reports.leave(log, ended)

    async def remove_log(self, log: int) -> None:
        """Remove what is left of the pointers of a log."""
        keys = await self._rows.of_log(log)
        await self._stored.remove([(*pointer_and_number(each), MAX_NUMBER) for each in keys])
        await self._rows.remove(keys)
